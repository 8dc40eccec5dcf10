//! The input of a step besides the observations, packed into one buffer.

use std::ops::Range;

use tch::{Kind, Tensor};

use super::{ActingRow, RecurrentStates};
use crate::error::Result;
use crate::networks::Networks;
use crate::rescaling::rescale_value;

/// Alignment of the parts in bytes, so that kernels can read them in wide words.
const ALIGNMENT: usize = 256;

/// Byte ranges of the parts of a step's input.
#[derive(Clone, Debug)]
pub(super) struct Packing {
    /// Capacity in rows.
    pub rows: usize,
    /// Four parts of i64: rows of the state table to read and to write, policies, and rows of the observation table.
    indices: [Range<usize>; 4],
    /// The action one-hot, the rescaled rewards and the embedding, f32.
    features: Range<usize>,
    actions: usize,
}

/// The parts as tensors.
#[derive(Debug)]
pub(super) struct Unpacked {
    /// `[rows]`, i64.
    pub from: Tensor,
    /// `[rows]`, i64.
    pub to: Tensor,
    /// `[rows]`, i64.
    pub policy: Tensor,
    /// `[rows]`, i64.
    pub seen: Tensor,
    /// `[rows, ..]`, f32.
    pub features: Tensor,
}

impl Packing {
    /// A packing with room for `rows` rows.
    pub fn new(networks: &Networks, rows: usize) -> Self {
        let mut end = 0usize;
        let mut part = |bytes: usize| {
            let start = end.next_multiple_of(ALIGNMENT);
            end = start + rows * bytes;
            start..end
        };
        let features = networks.actions + PREVIOUS_REWARDS + networks.embedding_length;
        Self {
            rows,
            indices: std::array::from_fn(|_| part(size_of::<i64>())),
            features: part(features * size_of::<f32>()),
            actions: networks.actions,
        }
    }

    /// Total size in bytes.
    pub fn bytes(&self) -> usize {
        self.features.end
    }

    /// Views of the parts in a byte tensor.
    pub fn unpack(&self, bytes: &Tensor) -> Result<Unpacked> {
        let rows = self.rows as i64;
        let part = |range: &Range<usize>, kind: Kind| -> Result<Tensor> {
            let part = bytes.f_narrow(0, range.start as i64, range.len() as i64)?;
            Ok(part.f_view_dtype(kind)?.f_view([rows, -1])?)
        };
        let flat = |range: &Range<usize>| -> Result<Tensor> { Ok(part(range, Kind::Int64)?.f_view([rows])?) };
        let [from, to, policy, seen] = self.indices.each_ref().map(flat);
        let features = part(&self.features, Kind::Float)?;
        Ok(Unpacked { from: from?, to: to?, policy: policy?, seen: seen?, features })
    }

    /// Writes the rows to `bytes`; `observations` are their rows in the observation table.
    ///
    /// Padding rows read observation `blank` and a zero state, and write to the scratch state.
    pub fn pack(
        &self,
        rows: &[ActingRow<'_>],
        observations: &[usize],
        blank: usize,
        states: &RecurrentStates,
        bytes: &mut [u8],
    ) {
        let mut features = Vec::with_capacity(self.features.len() / size_of::<f32>());
        let mut indices = Vec::with_capacity(self.rows);
        for (row, &seen) in rows.iter().zip(observations) {
            let from = if row.first { states.zero_row() } else { row.environment };
            indices.push([from, row.environment, row.policy, seen]);
            features.extend((0..self.actions).map(|action| if action as i64 == row.action { 1.0 } else { 0.0 }));
            features.extend(row.rewards.in_order().map(|x| rescale_value(f64::from(x)) as f32));
            features.extend(row.embedding.iter().map(|value| value.to_f32()));
        }
        indices.resize(self.rows, [states.zero_row(), states.scratch_row(), 0, blank]);
        for (i, range) in self.indices.iter().enumerate() {
            for (to, values) in bytes[range.clone()].chunks_exact_mut(size_of::<i64>()).zip(&indices) {
                to.copy_from_slice(&(values[i] as i64).to_ne_bytes());
            }
        }
        for (to, value) in bytes[self.features.clone()].chunks_exact_mut(size_of::<f32>()).zip(&features) {
            to.copy_from_slice(&value.to_ne_bytes());
        }
    }
}

/// Number of rewards among the features.
const PREVIOUS_REWARDS: usize = crate::nets::features::REWARDS as usize;

#[cfg(test)]
mod tests {
    use half::f16;
    use tch::Device;

    use super::super::StepRewards;
    use super::*;
    use crate::config::AgentConfig;
    use crate::observation::{ObservationKind, ObservationSpec};

    const ACTIONS: usize = 3;
    const ENVIRONMENTS: usize = 5;

    #[test]
    fn unpacks_what_was_packed_and_pads_with_zero_and_scratch_rows() {
        let network =
            config_schema::read_table(include_str!("../../../../configs/tiny.toml"), "agent.network").unwrap();
        let config = AgentConfig { network, ..AgentConfig::default() };
        let spec = ObservationSpec::array(vec![4], ObservationKind::F32);
        let networks = Networks::new(&config, &spec, ACTIONS).unwrap();
        let states = RecurrentStates::new(&networks, ENVIRONMENTS, Device::Cpu).unwrap();
        let embedding = vec![f16::from_f32(0.5); networks.embedding_length];
        let rewards = StepRewards { extrinsic: 3.0, ngu: -2.0, rnd: 1.0, episodic: 0.0 };
        let row = |environment, first, action, policy| ActingRow {
            environment,
            first,
            wants_state: false,
            observation: [0; 16][..].into(),
            action,
            rewards,
            embedding: &embedding,
            policy,
            kept_blocks: None,
        };
        let rows = [row(4, false, 1, 2), row(1, true, 0, 0), row(0, false, 2, 1)];
        let (blank, zero, scratch) = (10, ENVIRONMENTS as i64, ENVIRONMENTS as i64 + 1);
        // The buffer still holds a larger batch.
        let packing = Packing::new(&networks, 4);
        let mut bytes = vec![7; packing.bytes()];
        packing.pack(&rows, &[9, 1, 7], blank, &states, &mut bytes);
        let unpacked = packing.unpack(&Tensor::from_slice(&bytes)).unwrap();
        let values = |tensor: &Tensor| Vec::<i64>::try_from(tensor).unwrap();
        assert_eq!(values(&unpacked.from), [4, zero, 0, zero]);
        assert_eq!(values(&unpacked.to), [4, 1, 0, scratch]);
        assert_eq!(values(&unpacked.policy), [2, 0, 1, 0]);
        assert_eq!(values(&unpacked.seen), [9, 1, 7, blank as i64]);
        let features = Vec::<f32>::try_from(unpacked.features.get(2)).unwrap();
        let rescaled = [3.0, -2.0, 1.0, 0.0].map(|x| rescale_value(x) as f32);
        assert_eq!(features[..ACTIONS + 4], [&[0.0, 0.0, 1.0], &rescaled[..]].concat());
        assert_eq!(features[ACTIONS + 4..], vec![0.5; embedding.len()]);
    }
}
