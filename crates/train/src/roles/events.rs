//! Events from the roles to the trainer.

use crate::roles::evaluation_rounds::EvaluationReport;
use crate::roles::learner_loop::LearnerUpdate;
use crate::roles::messages::{EpisodeReport, Position};

/// Something that happened in a run, for the metrics or the console.
pub enum Event {
    /// An episode ended.
    Episode(EpisodeReport),
    /// Actors reached positions that were new in their episodes.
    Positions(Vec<Position>),
    /// The learner finished an update.
    Update(LearnerUpdate),
    /// Evaluators have finished an evaluation.
    Evaluation(Box<EvaluationReport>),
    /// A message for the user, such as that a remote actor has joined.
    Notice(String),
    /// A message about a failure that was recovered from, such as a lost worker.
    Fault(String),
}
