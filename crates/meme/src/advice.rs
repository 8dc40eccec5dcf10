//! What the user can do about an error, in terms of this program's options.
//!
//! The libraries return typed errors that say what happened, with names and values. They know nothing of command-line
//! options: every sentence about those is here.

use std::error::Error;

use train::TrainError;

/// Returns the advice for the first error of the chain that has one.
pub fn advice(error: &anyhow::Error) -> Option<&'static str> {
    error.chain().find_map(of_cause)
}

/// A `transparent` variant hides its inner error from the chain, so the functions below pass it on.
fn of_cause(error: &(dyn Error + 'static)) -> Option<&'static str> {
    if let Some(error) = error.downcast_ref() {
        return of_training(error);
    }
    None
}

fn of_training(error: &TrainError) -> Option<&'static str> {
    match error {
        TrainError::NoGpu { .. } => Some("use `--set run.device=cpu` to train without one, slowly"),
        _ => None,
    }
}
