//! Status of a run, as numbers and as text.

use std::fmt;

use envs::games::Game;
use replay::Accounting;
use serde::{Deserialize, Serialize};

use crate::config::Config;
use crate::number_format::{duration, fixed, rounded};
use crate::roles::timesheet::ActivityTimes;
use crate::runtime::TrainingRuntime;
use crate::runtime::metrics_accumulator::MetricsAccumulator;
use crate::runtime::rates::Rates;

/// Status of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunStatus {
    /// Emulator frames of the actors.
    pub frames: u64,
    /// Frames at which training ends.
    pub budget: u64,
    /// Updates.
    pub updates: u64,
    /// Frames per second over the last seconds.
    pub frames_per_second: f64,
    /// Updates per second over the last seconds.
    pub updates_per_second: f64,
    /// Seconds until the budget is played, once the speed is known.
    pub seconds_left: Option<f64>,
    /// Sequences in replay.
    pub sequences: u64,
    /// Capacity of replay in sequences.
    pub capacity: u64,
    /// Bytes of replay.
    pub replay_bytes: u64,
    /// Sequences inserted so far.
    pub inserted: u64,
    /// Sequences sampled so far.
    pub sampled: u64,
    /// Sequences sampled per insert since learning started.
    pub samples_per_insert: f64,
    /// Mean score of the actors' recent episodes.
    pub actor_score: Option<f64>,
    /// Score of the actors' last episode.
    pub last_actor_score: Option<f64>,
    /// Mean intrinsic return of the actors' recent episodes.
    pub intrinsic_return: Option<f64>,
    /// Mean score of the last evaluation.
    pub evaluation_score: Option<f64>,
    /// Episodes of the last evaluation.
    pub evaluation_episodes: Option<u64>,
    /// Frames at which the parameters of the last evaluation were taken.
    pub evaluation_frames: Option<u64>,
    /// Seconds since then; unknown if the run resumed since.
    pub evaluation_age_seconds: Option<f64>,
    /// Human-normalised score of the last evaluation, for an Atari game.
    pub human_normalised: Option<f64>,
    /// Loss of the last update.
    pub loss: Option<f64>,
    /// The policy with the best mean return.
    pub favourite_policy: usize,
    /// What the learner waits for, if it has not started.
    pub waits_for: Option<String>,
    /// Bytes written of the checkpoint that is being saved, if any.
    pub saving: Option<u64>,
    /// How the roles have spent their time since the start, if each has its own threads.
    #[serde(skip)]
    pub times: Option<ActivityTimes>,
}

/// Returns the sequences sampled per insert since learning started.
pub fn samples_per_insert(config: &Config, accounting: &Accounting) -> f64 {
    let fill = config.replay.minimum_fill as u64;
    accounting.sampled as f64 / accounting.inserted.saturating_sub(fill).max(1) as f64
}

impl RunStatus {
    /// Collects the status. `game` is the Atari game, if it is one.
    pub fn new(
        config: &Config,
        runtime: &dyn TrainingRuntime,
        metrics: &MetricsAccumulator,
        rates: &Rates,
        game: Option<&Game>,
        saving: Option<u64>,
    ) -> Self {
        let accounting = runtime.agent().learner_loop.replay.accounting();
        let fill = config.replay.minimum_fill as u64;
        let waits_for =
            (accounting.inserted < fill).then(|| format!("replay: {} of {fill} sequences", accounting.inserted));
        let evaluation = metrics.evaluation();
        let evaluation_score = evaluation.map(|evaluation| rounded(evaluation.score.mean));
        let age = evaluation.and_then(|evaluation| evaluation.began).map(|began| began.elapsed().as_secs_f64());
        Self {
            frames: runtime.frames(),
            budget: config.run.frames,
            updates: metrics.last_update,
            frames_per_second: rates.frames_per_second,
            updates_per_second: rates.updates_per_second,
            seconds_left: rates.seconds_for(config.run.frames.saturating_sub(runtime.frames())),
            sequences: accounting.sequences,
            capacity: config.replay.capacity as u64,
            replay_bytes: accounting.bytes(),
            inserted: accounting.inserted,
            sampled: accounting.sampled,
            samples_per_insert: samples_per_insert(config, &accounting),
            actor_score: metrics.actor_score().map(rounded),
            last_actor_score: metrics.last_actor_score().map(rounded),
            intrinsic_return: metrics.intrinsic_return(),
            evaluation_score,
            evaluation_episodes: evaluation.map(|evaluation| evaluation.score.episodes),
            evaluation_frames: evaluation.map(|evaluation| evaluation.frames),
            // In lockstep nothing depends on the clock.
            evaluation_age_seconds: age.filter(|_| !config.run.lockstep),
            human_normalised: evaluation_score.zip(game).map(|(score, game)| game.normalised(score)),
            loss: metrics.last_loss,
            favourite_policy: runtime.agent().bandit.greedy(),
            waits_for,
            saving,
            times: runtime.times(),
        }
    }

    /// Whether all frames are played.
    pub fn is_finished(&self) -> bool {
        self.frames >= self.budget
    }

    /// Formats the status in three lines: progress, scores, and the learner.
    pub fn lines(&self) -> [String; 3] {
        // The last steps may pass the end, and 100 % must not appear before it.
        let share = (100.0 * self.frames as f64 / self.budget as f64).floor().min(100.0);
        let mut progress = format!("{} frames ({share} %), {:.0} frames/s", self.frames, self.frames_per_second);
        if let Some(seconds) = self.seconds_left.filter(|_| self.frames < self.budget) {
            progress += &format!(", {} left", duration(seconds));
        }
        if let Some(waits_for) = &self.waits_for {
            progress += &format!(", waiting for {waits_for}");
        }
        if let Some(bytes) = self.saving {
            progress += &format!(", saving ({:.0} MB so far)", bytes as f64 / 1e6);
        }
        let mut scores = Vec::new();
        if let (Some(mean), Some(last)) = (self.actor_score, self.last_actor_score) {
            scores.push(format!("score {} (last {})", fixed(mean, 2), fixed(last, 2)));
        }
        if let (Some(mean), Some(episodes)) = (self.evaluation_score, self.evaluation_episodes) {
            let age = self.evaluation_age_seconds.map_or(String::new(), |age| format!(", {} old", duration(age)));
            let human = self.human_normalised.map_or(String::new(), |human| format!(", {} of human", fixed(human, 2)));
            let plural = if episodes == 1 { "" } else { "s" };
            scores.push(format!("evaluation {} ({episodes} episode{plural}{age}{human})", fixed(mean, 2)));
        }
        if let Some(intrinsic) = self.intrinsic_return {
            scores.push(format!("intrinsic {}", fixed(intrinsic, 2)));
        }
        scores.push(format!("policy {}", self.favourite_policy));
        let mut learner = format!("update {} ({:.1}/s)", self.updates, self.updates_per_second);
        if let Some(loss) = self.loss {
            learner += &format!(", loss {}, {:.1} samples per insert", fixed(loss, 3), self.samples_per_insert);
        }
        learner += &format!(", replay {} of {}", self.sequences, self.capacity);
        learner += &format!(" ({:.0} MB)", self.replay_bytes as f64 / 1e6);
        [progress, scores.join(", "), learner]
    }
}

impl fmt::Display for RunStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.lines().join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_everything_that_is_known() {
        let mut status = RunStatus {
            frames: 250,
            budget: 1000,
            updates: 0,
            frames_per_second: 5.0,
            updates_per_second: 0.0,
            seconds_left: None,
            sequences: 3,
            capacity: 10,
            replay_bytes: 2_000_000,
            inserted: 3,
            sampled: 0,
            samples_per_insert: 0.0,
            actor_score: None,
            last_actor_score: None,
            intrinsic_return: None,
            evaluation_score: None,
            evaluation_episodes: None,
            evaluation_frames: None,
            evaluation_age_seconds: None,
            human_normalised: None,
            loss: None,
            favourite_policy: 4,
            waits_for: Some("replay: 3 of 5 sequences".to_owned()),
            saving: None,
            times: None,
        };
        assert_eq!(
            status.to_string(),
            "250 frames (25 %), 5 frames/s, waiting for replay: 3 of 5 sequences; policy 4; \
             update 0 (0.0/s), replay 3 of 10 (2 MB)"
        );
        status = RunStatus {
            actor_score: Some(1.0),
            last_actor_score: Some(2.0),
            intrinsic_return: Some(12.5),
            loss: Some(0.25),
            waits_for: None,
            saving: Some(1_234_000_000),
            samples_per_insert: 6.0,
            seconds_left: Some(150.0),
            updates: 7,
            ..status
        };
        let [progress, scores, learner] = status.lines();
        assert_eq!(progress, "250 frames (25 %), 5 frames/s, 2 min left, saving (1234 MB so far)");
        assert_eq!(scores, "score 1.00 (last 2.00), intrinsic 12.50, policy 4");
        assert_eq!(learner, "update 7 (0.0/s), loss 0.250, 6.0 samples per insert, replay 3 of 10 (2 MB)");
        status = RunStatus { evaluation_score: Some(4.0), evaluation_episodes: Some(1), ..status };
        assert!(status.lines()[1].contains("evaluation 4.00 (1 episode),"), "{status}");
        let evaluation_age_seconds = Some(125.0);
        status =
            RunStatus { evaluation_episodes: Some(10), human_normalised: Some(0.5), evaluation_age_seconds, ..status };
        assert!(status.lines()[1].contains("evaluation 4.00 (10 episodes, 2 min old, 0.50 of human)"), "{status}");
        status = RunStatus { actor_score: Some(-0.001), frames: 1000, ..status };
        let [progress, scores, _] = status.lines();
        assert_eq!(progress, "1000 frames (100 %), 5 frames/s, saving (1234 MB so far)");
        assert!(scores.starts_with("score 0.00 (last 2.00)"), "{scores}");
        for (frames, share) in [(999, "999 frames (99 %)"), (1008, "1008 frames (100 %)")] {
            status = RunStatus { frames, ..status };
            assert!(status.lines()[0].starts_with(share), "{:?}", status.lines());
        }
    }
}
