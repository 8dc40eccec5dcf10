//! Every environment's recurrent state.

use tch::{Device, Kind, Tensor};
use torch_ext::Stream;

use crate::error::{AgentError, Result};
use crate::networks::Networks;

/// Rows of the table that belong to no environment.
const SPARE_ROWS: usize = 2;

/// Recurrent states of a number of environments, kept beside the networks.
#[derive(Debug)]
pub struct RecurrentStates {
    /// `[environments + 2, state]`: after the environments' rows one that stays zero, and one that may hold anything.
    table: Tensor,
}

impl RecurrentStates {
    /// All at an episode's start.
    pub fn new(networks: &Networks, environments: usize, device: Device) -> Result<Self> {
        let size = [(environments + SPARE_ROWS) as i64, networks.state_length() as i64];
        let states = Self { table: Tensor::f_zeros(size, (Kind::Float, device))? };
        states.settle()?;
        Ok(states)
    }

    /// Number of environments.
    pub fn environments(&self) -> usize {
        self.table.size()[0] as usize - SPARE_ROWS
    }

    /// The state of an environment, h then c.
    pub fn read(&self, environment: usize) -> Result<Vec<f32>> {
        Ok(Vec::try_from(self.row(environment)?)?)
    }

    /// Sets the state of an environment.
    pub fn write(&mut self, environment: usize, state: &[f32]) -> Result<()> {
        let (expected, found) = (self.table.size()[1] as usize, state.len());
        if expected != found {
            let what = "a recurrent state".to_owned();
            return Err(AgentError::Length { field: "state", what, expected, found });
        }
        self.row(environment)?.f_copy_(&Tensor::f_from_slice(state)?)?;
        self.settle()
    }

    /// All rows, the spare ones included.
    pub(super) fn table(&self) -> &Tensor {
        &self.table
    }

    /// The row that an episode begins with; nobody writes to it.
    pub(super) fn zero_row(&self) -> usize {
        self.environments()
    }

    /// The row that is nobody's.
    pub(super) fn scratch_row(&self) -> usize {
        self.environments() + 1
    }

    pub(super) fn check(&self, environment: usize, place: impl FnOnce() -> String) -> Result<()> {
        let environments = self.environments();
        if environment < environments {
            return Ok(());
        }
        let expected = format!("one of {environments} environments");
        Err(AgentError::Value { field: "environments", place: place(), value: environment.to_string(), expected })
    }

    fn row(&self, environment: usize) -> Result<Tensor> {
        self.check(environment, || "environment".to_owned())?;
        Ok(self.table.f_select(0, environment as i64)?)
    }

    /// Networks act on streams of their own, which don't wait for this thread's.
    fn settle(&self) -> Result<()> {
        if self.table.device().is_cuda() && torch_ext::available() {
            Stream::current()?.synchronize()?;
        }
        Ok(())
    }
}
