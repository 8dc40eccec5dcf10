//! What a run starts from: nothing, its own checkpoint, or another run's weights.

use agent::error::WeightsProblem;
use config_schema::text::list_first;

use crate::run::checkpoint::Checkpoint;

/// Maximum number of parts of weights that a message names; the others are counted.
const MAX_NAMED: usize = 10;

/// What a run starts from.
#[derive(Debug, Default)]
pub enum StartingPoint {
    /// Nothing.
    #[default]
    Nothing,
    /// Its own checkpoint, with everything in it.
    Resume(Checkpoint),
    /// The weights of another run's checkpoint.
    Weights {
        /// The checkpoint.
        checkpoint: Checkpoint,
        /// Whether to take its replay too.
        with_replay: bool,
    },
}

impl StartingPoint {
    /// The run's own checkpoint, if it resumes.
    pub fn resumed(&self) -> Option<&Checkpoint> {
        if let Self::Resume(checkpoint) = self { Some(checkpoint) } else { None }
    }
}

impl From<Option<Checkpoint>> for StartingPoint {
    fn from(checkpoint: Option<Checkpoint>) -> Self {
        checkpoint.map_or(Self::Nothing, Self::Resume)
    }
}

/// Says which parts of another run's weights are used.
pub(crate) fn transfer_message(parts: usize, problems: &[WeightsProblem]) -> String {
    let fitting = parts - problems.len();
    if problems.is_empty() {
        return format!("starting from the other run's weights, all {parts} parts");
    }
    let named = list_first(problems, MAX_NAMED, "; ");
    format!("starting from the other run's weights, {fitting} of {parts} parts; the others are new: {named}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_names_ten_parts_and_counts_the_rest() {
        assert_eq!(transfer_message(4, &[]), "starting from the other run's weights, all 4 parts");
        let problems: Vec<_> = (0..12).map(|i| WeightsProblem::Missing { name: format!("p{i}") }).collect();
        let text = transfer_message(20, &problems);
        assert!(
            text.starts_with(
                "starting from the other run's weights, 8 of 20 parts; the others are new: p0 is missing; "
            )
        );
        assert!(text.ends_with("p9 is missing; and 2 more"), "{text}");
    }
}
