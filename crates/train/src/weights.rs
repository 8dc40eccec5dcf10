//! What is kept of the best evaluation: the averaged parameters, as a safetensors file in a checkpoint of their own.

use std::io::Write;

use agent::Learner;
use agent::learner::ParameterSource;

use crate::run::checkpoint::{CheckpointError, CheckpointWriter};

const WEIGHTS: &str = "weights";

/// Writes the averaged parameters.
pub fn write(learner: &Learner, checkpoint: &mut CheckpointWriter) -> Result<(), CheckpointError> {
    checkpoint.part(WEIGHTS, |mut out: &mut dyn Write| learner.weights(ParameterSource::Ema)?.write_to(&mut out))
}
