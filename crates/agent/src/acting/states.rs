//! The environments' recurrent states.

use tch::{Device, Kind, Tensor};
use torch_ext::Stream;

use crate::error::{AgentError, Result};
use crate::networks::Networks;

/// Rows of the table that belong to no environment.
const SPARE_ROWS: usize = 2;

/// Recurrent states of all environments, on the networks' device.
#[derive(Debug)]
pub struct RecurrentStates {
    /// `[environments + 2, state]`: the environments, then a row that stays zero and a scratch row.
    pub(super) table: Tensor,
}

impl RecurrentStates {
    /// Initial states.
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

    /// The row that stays zero, read at the start of an episode.
    pub(super) fn zero_row(&self) -> usize {
        self.environments()
    }

    /// The row that padding writes to.
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

    /// Waits for this thread's stream, since networks act on other streams.
    fn settle(&self) -> Result<()> {
        if torch_ext::serves(self.table.device()) {
            Stream::current()?.synchronize()?;
        }
        Ok(())
    }
}
