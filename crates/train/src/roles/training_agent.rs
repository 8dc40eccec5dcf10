//! What training changes: the learner, the bandit, and d²_m, the usual distance between neighbours.

use std::sync::Arc;

use agent::intrinsic::DistanceMean;
use envs::EnvSpec;
use serde::{Deserialize, Serialize};

use crate::roles::bandit::SharedBandit;
use crate::roles::events::Event;
use crate::roles::learner_loop::LearnerLoop;
use crate::roles::messages::Role;

/// The agent of a run in training.
pub struct TrainingAgent {
    /// The learner and the replay that it learns from.
    pub learner_loop: LearnerLoop,
    /// Chooses the policy of each episode.
    pub bandit: Arc<SharedBandit>,
    /// The d²_m that the trained agent starts to play with.
    pub distances: NeighbourDistances,
    /// The environments that it acts in.
    pub environment: EnvSpec,
}

/// d²_m of the evaluator whose episode ended last.
///
/// Until the first evaluator's episode ends, that of an actor.
///
/// Evaluators see the game as the trained agent plays it, actors as they explore it.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct NeighbourDistances {
    /// The running mean.
    pub mean: DistanceMean,
    from_evaluator: bool,
}

impl NeighbourDistances {
    /// Takes the distances of a finished episode.
    pub fn record(&mut self, event: &Event) {
        if let Event::Episode(report) = event
            && (report.role == Role::Evaluator || !self.from_evaluator)
        {
            self.mean = report.distances;
            self.from_evaluator = report.role == Role::Evaluator;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::roles::messages::{EpisodeReport, NoveltySums};

    #[test]
    fn prefers_distances_of_evaluators() {
        let mut trained = NeighbourDistances::default();
        let mut record = |role, distance: f32| {
            let mut distances = DistanceMean::default();
            distances.update(&[distance], 10);
            let (score, frames, positions, novelty) = (1.0, 4, 0, NoveltySums::default());
            let report =
                EpisodeReport { role, environment: 0, policy: 0, score, frames, positions, novelty, distances };
            trained.record(&Event::Episode(report));
            trained.mean.mean
        };
        assert_eq!(record(Role::Actor, 2.0), 2.0);
        assert_eq!(record(Role::Evaluator, 3.0), 3.0);
        assert_eq!(record(Role::Actor, 4.0), 3.0);
        assert_eq!(record(Role::Evaluator, 5.0), 5.0);
    }
}
