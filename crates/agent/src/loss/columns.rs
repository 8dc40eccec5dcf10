//! The policies that the columns of a `[B, T, M]` tensor belong to.
//!
//! Heads with outputs for all policies give M = N columns, one per policy. Where the policy is an input of the network,
//! a sequence has M = 1 column, which belongs to the policy that acted in it. Then a batch has no information about
//! policies that acted in none of its sequences.

use tch::{Kind, Tensor};

use crate::batch::BatchTensors;
use crate::error::Result;

/// The policies of the columns.
#[derive(Debug)]
pub enum PolicyColumns {
    /// Column j is policy j.
    All,
    /// The only column is the policy that acted.
    Acted {
        /// It, `[B]`, i64.
        policy: Tensor,
        /// The same one-hot, f64 `[B, N]`.
        one_hot: Tensor,
    },
}

impl PolicyColumns {
    /// The columns of a batch: of all `policies`, or of the one that acted.
    pub fn new(batch: &BatchTensors, policies: usize, acted: bool) -> Result<Self> {
        if !acted {
            return Ok(Self::All);
        }
        let one_hot = batch.policy.f_one_hot(policies as i64)?.f_to_kind(Kind::Double)?;
        Ok(Self::Acted { policy: batch.policy.shallow_clone(), one_hot })
    }

    /// A value of each policy, `[N]`, as it broadcasts over `[B, T, M]`.
    pub fn spread(&self, values: &Tensor) -> Result<Tensor> {
        match self {
            Self::All => Ok(values.shallow_clone()),
            Self::Acted { policy, .. } => Ok(values.f_index_select(0, policy)?.f_view([-1, 1, 1])?),
        }
    }

    /// Sums `[B, T, M]` in f64 over the steps of each policy, `[N]`.
    pub fn sum(&self, x: &Tensor) -> Result<Tensor> {
        match self {
            Self::All => Ok(x.f_sum_dim_intlist(&[0i64, 1][..], false, Kind::Double)?),
            Self::Acted { one_hot, .. } => {
                Ok(one_hot.f_transpose(0, 1)?.f_mv(&x.f_sum_dim_intlist(&[1i64, 2][..], false, Kind::Double)?)?)
            }
        }
    }

    /// The largest value of each policy, `[N]`, of `[B, T, M, A]`; 0 for a policy without sequences.
    pub fn largest(&self, x: &Tensor) -> Result<Tensor> {
        match self {
            Self::All => Ok(x.f_amax([0i64, 1, 3], false)?),
            Self::Acted { one_hot, .. } => {
                let each = x.f_amax([1i64, 2, 3], false)?.f_unsqueeze(1)?;
                let own = one_hot.f_gt(0.0)?;
                let lowest = each.f_full_like(f64::NEG_INFINITY)?;
                let largest = each.f_where_self(&own, &lowest)?.f_amax([0i64], false)?;
                Ok(largest.f_where_self(&own.f_any_dim(0, false)?, &largest.f_zeros_like()?)?)
            }
        }
    }

    /// Column of the policy that acted, `[B, T]` of `[B, T, M]`.
    pub fn acted(&self, x: &Tensor, batch: &BatchTensors) -> Result<Tensor> {
        match self {
            Self::All => {
                let (b, t, _) = x.size3()?;
                let own = batch.policy.f_view([b, 1, 1])?.f_expand([b, t, 1], false)?;
                Ok(x.f_gather(-1, &own, false)?.f_squeeze_dim(-1)?)
            }
            Self::Acted { .. } => Ok(x.f_squeeze_dim(-1)?),
        }
    }
}
