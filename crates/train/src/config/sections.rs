//! The sections of this crate; the defaults are the paper's values.

use std::time::Duration;

use agent::intrinsic::Kernel;
use config_schema::{above, below, choice, integer, integer_or_none, integers, number, switch};
use envs::{AleOptions, Limits, View};

use super::Config;

config_schema::section! {
    /// The run as a whole.
    pub struct RunConfig {
        /// Seed of everything random: episodes, initial weights, exploration and sampling from replay.
        seed: u64 = 1, integer(0, 4_294_967_295);
        /// Number of frames after which training ends. The paper's main results are at 200 million frames; its longest
        /// runs have five times as many.
        frames: u64 = 200_000_000, integer(1, 1_000_000_000_000).unit("emulator frames").paper().changeable();
        /// Device that the networks run on.
        device: Device = Device::Auto, choice::<Device>().changeable();
        /// Whether to run everything on one thread in a fixed order. Slower, but a run on the CPU is repeatable bit for
        /// bit.
        lockstep: bool = false, switch();
        /// Number of CPU threads of libtorch; 0 uses one per core.
        threads: usize = 0, integer(0, 1024).unit("threads").changeable();
    }
}

config_schema::choice! {
    /// Device that the networks run on.
    pub enum Device {
        /// The GPU if this build can use one, otherwise the CPU.
        Auto = "auto",
        /// The CPU.
        Cpu = "cpu",
        /// The GPU; without one, training does not start.
        Cuda = "cuda",
    }
}

config_schema::section! {
    /// Environment. Built-in tasks and Gymnasium environments use only `max_side`, `resize`, `frame_stack`, `hide_rewards`
    /// and the limits of workers.
    pub struct EnvConfig {
        /// Probability per frame that the emulator repeats the previous action. The usual value for sticky actions is
        /// 0.25; it applies to training and evaluation.
        sticky_probability: f64 = 0.0, below(0.0, 1.0).paper();
        /// Actions that the agent chooses from.
        action_set: ActionSet = ActionSet::Full, choice::<ActionSet>().silent();
        /// Largest side of an image. Larger images are averaged down by an integer factor as they arrive, so that replay
        /// and networks only handle the small ones.
        #[serde(with = "config_schema::zero_is_none")]
        max_side: Option<usize> = None, integer_or_none(8, 4096).unit("pixels").paper();
        /// Largest number of no-op frames at the start of an episode, drawn uniformly from 1; 0 disables them.
        noop_max: u32 = 30, integer(0, 1000).unit("emulator frames").silent();
        /// Length after which an episode is truncated. Values bootstrap through the truncation.
        frame_cap: u32 = 108_000, integer(4, 100_000_000).unit("emulator frames").paper();
        /// Number of frames per action. The agent sees the maximum over the last two.
        action_repeat: u32 = 4, integer(1, 60).unit("emulator frames").paper();
        /// Side of the square that grey images are resized to before the agent sees them; 0 leaves them as they are.
        #[serde(with = "config_schema::zero_is_none")]
        resize: Option<usize> = None, integer_or_none(8, 4096).unit("pixels").paper();
        /// Number of frames per observation, the newest last.
        frame_stack: usize = 1, integer(1, 16).unit("frames").paper();
        /// Whether to hide the game's rewards from learner, networks and bandit, which leaves the intrinsic reward.
        /// Reported scores do not change.
        hide_rewards: bool = false, switch();
        /// RAM addresses of an Atari game that together are the agent's position; `actor/positions` counts the distinct
        /// ones. In montezuma_revenge, 3 is the room, and 42 and 43 are the coordinates of the player.
        ram: Vec<u8> = Vec::new(), integers(0, 8, 0, 127).unit("addresses");
        /// Time limit of one step. A worker that exceeds it is replaced, and its episodes are cut off.
        step_limit_seconds: f64 = 30.0, number(0.001, 86_400.0).unit("s").changeable();
        /// Time limit of starting, resetting, saving and restoring a worker. A worker that exceeds it is replaced.
        start_limit_seconds: f64 = 120.0, number(0.001, 86_400.0).unit("s").changeable();
        /// Training stops after this many consecutive failures without a step, after this many hangs within 1 000 steps, or
        /// after ten times as many failures without a finished episode or 1 000 steps.
        failure_limit: u32 = 3, integer(1, 1000).unit("failures").changeable();
    }
}

config_schema::choice! {
    /// Actions that an Atari agent chooses from.
    pub enum ActionSet {
        /// All 18 actions in every game.
        Full = "full",
        /// Only the actions that have an effect in the game.
        Minimal = "minimal",
    }
}

impl EnvConfig {
    /// Returns the options of Atari games.
    pub fn ale_options(&self) -> AleOptions {
        AleOptions {
            action_repeat: self.action_repeat,
            noop_max: self.noop_max,
            sticky_probability: self.sticky_probability,
            full_actions: self.action_set == ActionSet::Full,
            frame_cap: u64::from(self.frame_cap),
        }
    }

    /// Returns what the agent sees of the images.
    pub fn view(&self) -> View {
        View { side: self.resize, stack: self.frame_stack }
    }

    /// Returns the limits of a worker.
    pub fn limits(&self) -> Limits {
        Limits {
            start_up: Duration::from_secs_f64(self.start_limit_seconds),
            step: Duration::from_secs_f64(self.step_limit_seconds),
            failures: self.failure_limit,
        }
    }
}

config_schema::section! {
    /// Actors: the environments that fill the replay memory.
    pub struct ActorsConfig {
        /// Number of environments that are played at the same time on the learner's machine. With 0, all of them are on
        /// other machines (`meme train --actors-listen`).
        environments: usize = 128, integer(0, 65_536).unit("environments").paper();
        /// Number of environments per worker process. The paper has 64 actors with 2 each; fewer processes are cheaper
        /// on one machine.
        environments_per_worker: usize = 8, integer(1, 4096).unit("environments").paper_has("2");
        /// Number of groups that a worker's environments are split into. One group steps while the other waits for its
        /// actions.
        groups: usize = 2, integer(1, 2).unit("groups");
        /// Base of the exploration rate: actor i of n takes a random action with probability
        /// base^(1 + exponent * i / (n - 1)).
        epsilon_base: f64 = 0.4, number(0.0, 1.0).silent();
        /// Exponent of the exploration rate.
        epsilon_exponent: f64 = 7.0, number(0.0, 100.0).silent();
    }
}

impl ActorsConfig {
    /// Returns the number of groups of a worker with this many environments.
    pub fn groups_of(&self, environments: usize) -> usize {
        if environments.is_multiple_of(self.groups) { self.groups } else { 1 }
    }
}

config_schema::section! {
    /// Inference server: chooses actions for many environments at a time.
    pub struct InferenceConfig {
        /// Largest batch. A full batch does not wait for more requests.
        max_batch: usize = 128, integer(1, 65_536).unit("environments").changeable();
        /// Longest time that the first request of a batch waits for others. It does not wait if no other can come.
        max_wait_microseconds: u64 = 2000, integer(0, 10_000_000).unit("µs").changeable();
    }
}

config_schema::section! {
    /// Intrinsic reward: novelty within the episode times novelty over the whole training.
    pub struct IntrinsicConfig {
        /// Number of updates after which actors get the newest embedding network f. Embeddings of one episode are only
        /// comparable while f is fixed, so if an episode spans many updates, choose more than `learner.publish_every`.
        embedding_every: u64 = 4, integer(1, 1_000_000).unit("updates").silent().changeable();
        /// Smallest relative growth of the number of updates between two publications of f. With 0.25, the intervals
        /// grow over the run, as f has less to learn.
        embedding_share: f64 = 0.0, number(0.0, 100.0).changeable();
        /// Number of observations in the episodic memory of an environment. The oldest are evicted first.
        memory_capacity: usize = 30_000, integer(1, 10_000_000).unit("observations").silent();
        /// Weight of the normalised RND error in the life-long novelty ("RND Scale").
        rnd_scale: f64 = 0.5, number(0.0, 1000.0).paper();
        /// Largest life-long novelty; the smallest is 1 ("RND Clip Threshold").
        rnd_clip: f64 = 5.0, number(1.0, 1e6).paper();
        table kernel: Kernel;
    }
}

config_schema::section! {
    /// Learner loop: batches in, parameters out. The update itself is configured under `agent`.
    pub struct LearnerConfig {
        /// Number of sequences per batch.
        batch_size: usize = 64, integer(1, 65_536).unit("sequences").paper();
        /// Number of updates after which actors and evaluators get new parameters.
        publish_every: u64 = 4, integer(1, 1_000_000).unit("updates").silent().changeable();
        /// Number of batches that are decoded ahead of the learner.
        prefetch: usize = 2, integer(0, 64).unit("batches").changeable();
    }
}

config_schema::section! {
    /// Evaluation during training: greedy play with the averaged parameters. Nothing is learned from it.
    pub struct EvaluationConfig {
        /// Number of environments that are played for evaluation.
        evaluators: usize = 5, integer(0, 4096).unit("environments").paper().changeable();
        /// Number of episodes whose mean is the evaluation score, rounded up so that every evaluator plays as many.
        mean_episodes: usize = 10, integer(1, 100_000).unit("episodes").changeable();
        /// When evaluators get new parameters.
        refresh: EvaluationRefresh = EvaluationRefresh::During, choice::<EvaluationRefresh>().paper().changeable();
        /// Length after which an evaluator's episode is truncated, even in a Gymnasium environment; at most
        /// `env.frame_cap` in an Atari game.
        frame_cap: u32 = 108_000, integer(4, 100_000_000).unit("emulator frames").paper().changeable();
        /// Largest share of the time that evaluators play. They play as fast as they can, and rest between two
        /// evaluations.
        share: f64 = 0.5, above(0.0, 1.0).changeable();
    }
}

config_schema::choice! {
    /// When evaluators get new parameters.
    pub enum EvaluationRefresh {
        /// Before each evaluation: all of its episodes are played with the same parameters.
        Between = "between",
        /// Whenever the learner publishes some, even during an episode.
        During = "during",
    }
}

impl EvaluationConfig {
    /// Returns how many episodes of each evaluator count in an evaluation.
    pub fn episodes_each(&self) -> usize {
        self.mean_episodes.div_ceil(self.evaluators.max(1))
    }
}

config_schema::section! {
    /// Checkpoints, from which a run resumes.
    pub struct CheckpointConfig {
        /// Time between two checkpoints. One more is saved at the end.
        every_minutes: f64 = 10.0, above(0.0, 100_000.0).unit("min").changeable();
        /// Number of newest checkpoints to keep.
        keep_last: usize = 2, integer(1, 10_000).unit("checkpoints").changeable();
        /// Whether to keep the checkpoint with the best evaluation score as well.
        keep_best: bool = true, switch().changeable();
    }
}

config_schema::section! {
    /// Metrics that the run writes.
    pub struct MetricsConfig {
        /// Time between two rows of metrics.
        interval_seconds: f64 = 10.0, above(0.0, 86_400.0).unit("s").changeable();
        /// Number of frames between two rows of metrics in lockstep mode, which must not depend on the clock.
        lockstep_frames: u64 = 5000, integer(1, 1_000_000_000_000).unit("emulator frames").changeable();
    }
}

impl Config {
    /// Returns the replay's configuration for these sizes of an observation and of the recurrent state.
    pub fn replay_for(&self, observation_bytes: usize, state: usize, seed: u64) -> replay::ReplayConfig {
        self.replay.config_for(observation_bytes, self.agent.network.intrinsic.embedding, state, seed)
    }
}

#[cfg(test)]
mod tests {
    use agent::{ObservationKind, ObservationSpec};

    use super::*;
    use crate::config::{PRESETS, Sources};

    #[test]
    fn defaults_match_those_of_the_environments() {
        assert_eq!(EnvConfig::default().ale_options(), AleOptions::default());
        assert_eq!(EnvConfig::default().limits(), Limits::default());
    }

    #[test]
    fn minimal_action_set_is_not_the_full_one() {
        let minimal = EnvConfig { action_set: ActionSet::Minimal, ..EnvConfig::default() };
        assert!(!minimal.ale_options().full_actions);
    }

    #[test]
    fn replay_sizes_match_the_paper() {
        let ours = Config::default().replay_for(33_600, 2048, 0);
        let paper = replay::ReplayConfig::paper_sized(33_600, 2048);
        assert_eq!((ours.layout, ours.shards, ours.capacity), (paper.layout, paper.shards, paper.capacity));
        assert_eq!(ours.priority_exponent, paper.priority_exponent);
        assert_eq!(ours.importance_exponent, paper.importance_exponent);
        assert_eq!(ours.rate_limiter.samples_per_insert, paper.rate_limiter.samples_per_insert);
    }

    #[test]
    fn every_preset_fits_atari_and_only_tiny_fits_small_images() {
        for preset in PRESETS {
            let sources = Sources { preset: Some(preset.name.to_owned()), ..Sources::default() };
            let config = sources.load().unwrap().config;
            let fits = |height: usize, width: usize, actions: usize| {
                let View { side, stack } = config.env.view();
                let [height, width] = side.map_or([height, width], |side| [side, side]);
                let observation = ObservationSpec::array(vec![height, width, stack], ObservationKind::U8);
                config.replay_for(observation.bytes(), 2 * config.agent.network.core, 1).check().unwrap();
                config.agent.validate_for(&observation, actions).is_ok()
            };
            assert!(fits(210, 160, 18), "{}", preset.name);
            let is_resized = config.env.resize.is_some();
            assert_eq!(fits(10, 10, 3), preset.name == "tiny" || is_resized, "{}", preset.name);
        }
    }
}
