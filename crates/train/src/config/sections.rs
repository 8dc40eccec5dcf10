//! The sections that belong to this crate, with the paper's values as defaults.

use agent::intrinsic::Kernel;
use serde::{Deserialize, Serialize};

use super::field::Kind::{self, Choice, Switch, Whole};
use super::field::Paper::{Differs, Ours, Says, Silent};
use super::section::section;

/// What the networks run on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Device {
    /// The GPU where there is one that this build can use, else the CPU.
    Auto,
    /// The CPU.
    Cpu,
    /// The GPU; without one, training does not start.
    Cuda,
}

/// Which actions an Atari agent chooses from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ActionSet {
    /// All 18, in every game.
    Full,
    /// Those that do something in the game.
    Minimal,
}

section! {
    /// The run as a whole.
    RunConfig in "run" {
        /// Everything random follows from it: episodes, weights, exploration and the draws from replay.
        seed: u64 = 1, Whole(0, 4_294_967_295), "", Ours;
        /// Training ends when the actors have played so many. The paper's headline is at 200 million, its longest runs
        /// are five times that.
        frames: u64 = 200_000_000, Whole(1, 1_000_000_000_000), "emulator frames", Says("200_000_000");
        /// What the networks run on; `auto` takes the GPU where there is one.
        device: Device = Device::Auto, Choice(&["auto", "cpu", "cuda"]), "", Ours;
        /// One thread in a fixed order: slower, but a run on the CPU repeats bit for bit.
        lockstep: bool = false, Switch, "", Ours;
        /// Threads that libtorch computes with on the CPU; 0 takes one for each core.
        threads: usize = 0, Whole(0, 1024), "threads", Ours;
    }
}

section! {
    /// What the agent acts in. Built-in tasks and Gymnasium environments use the time limits and hidden rewards only.
    EnvConfig in "env" {
        /// Probability that the emulator repeats the action before instead of the chosen one, in each frame; 0.25 is
        /// the usual value where sticky actions are wanted, in training and evaluation alike.
        sticky_probability: f64 = 0.0, Kind::below(0.0, 1.0), "", Says("0.0");
        /// The actions to choose from: all 18, or those that do something in the game.
        action_set: ActionSet = ActionSet::Full, Choice(&["full", "minimal"]), "", Silent;
        /// An episode begins with 1 to this many frames without an action, drawn evenly; 0 begins at once.
        noop_max: u32 = 30, Whole(0, 1000), "emulator frames", Silent;
        /// An episode is cut off after so many; values bootstrap through the cut.
        frame_cap: u32 = 108_000, Whole(4, 100_000_000), "emulator frames", Says("108_000");
        /// Frames that a chosen action is held for; the agent sees the maximum over the last two.
        action_repeat: u32 = 4, Whole(1, 60), "emulator frames", Says("4");
        /// The agent sees no reward of the game: learner, networks and bandit are given 0, and only intrinsic reward is
        /// left. Scores are reported as they are.
        hide_rewards: bool = false, Switch, "", Ours;
        /// Addresses of an Atari game's RAM. What they hold after a step is the agent's position, and `actor/positions`
        /// counts the different ones. In montezuma_revenge 3 is the room, 42 and 43 are where the explorer stands.
        ram: Vec<u8> = Vec::new(), Kind::WholesOrNone(8, 0, 127), "addresses", Ours;
        /// A worker that takes longer for one step is replaced, and its episodes are cut off.
        step_limit_seconds: f64 = 30.0, Kind::number(0.001, 86_400.0), "s", Ours;
        /// A worker that takes longer to start, reset, save or restore is replaced.
        start_limit_seconds: f64 = 120.0, Kind::number(0.001, 86_400.0), "s", Ours;
        /// Training stops when a worker fails so often without a step between, or ten times as often without an episode.
        failure_limit: u32 = 3, Whole(1, 1000), "failures", Ours;
    }
}

section! {
    /// Who plays for the replay memory.
    ActorsConfig in "actors" {
        /// Environments that are played at the same time.
        environments: usize = 128, Whole(1, 65_536), "environments", Says("128");
        /// Environments in one worker process. The paper has 64 actors with 2 each; fewer processes cost less on one
        /// machine.
        environments_per_worker: usize = 8, Whole(1, 4096), "environments", Differs("2");
        /// Groups that a worker's environments are divided into: one steps while another waits for its actions.
        groups: usize = 2, Whole(1, 2), "groups", Ours;
        /// Actor i of n takes a random action with probability base^(1 + exponent * i / (n - 1)): this is the base.
        epsilon_base: f64 = 0.4, Kind::SHARE, "", Silent;
        /// The exponent of the same formula.
        epsilon_exponent: f64 = 7.0, Kind::number(0.0, 100.0), "", Silent;
    }
}

section! {
    /// The networks that choose actions, for many environments at a time.
    InferenceConfig in "inference" {
        /// A batch of so many environments waits for no others.
        max_batch: usize = 128, Whole(1, 65_536), "environments", Ours;
        /// How long the first request of a batch waits for others, unless all actors who could ask have asked.
        max_wait_microseconds: u64 = 2000, Whole(0, 10_000_000), "µs", Ours;
    }
}

section! {
    /// The reward for what is new: within the episode, times within the agent's life.
    IntrinsicConfig in "intrinsic" {
        table kernel: Kernel, "How familiar an observation is.";
        /// Actors get the newest f every so many updates. Embeddings of one episode can be compared only while f holds
        /// still: where an episode spans many updates, this is longer than `learner.publish_every`.
        embedding_every: u64 = 4, Whole(1, 1_000_000), "updates", Silent;
        /// And not before so many more updates than the last time, as a share of those until then: with 0.25, f holds
        /// still for ever longer, as it has less to learn.
        embedding_share: f64 = 0.0, Kind::number(0.0, 100.0), "", Ours;
        /// Observations that an environment's episodic memory holds; the oldest goes first.
        memory_capacity: usize = 30_000, Whole(1, 10_000_000), "observations", Silent;
        /// Weight of the normalised RND error in the life-long novelty ("RND Scale").
        rnd_scale: f64 = 0.5, Kind::number(0.0, 1000.0), "", Says("0.5");
        /// The life-long novelty is clamped to 1 and this ("RND Clip Threshold").
        rnd_clip: f64 = 5.0, Kind::number(1.0, 1e6), "", Says("5.0");
    }
}

section! {
    /// What the agent remembers, and how it is drawn.
    ReplayConfig in "replay" {
        /// Sequences held by all shards together; the oldest goes first.
        capacity: usize = 200_000, Whole(2, 100_000_000), "sequences", Says("200_000");
        /// Parts with a lock and priorities of their own. An environment always writes to the same one.
        shards: usize = 8, Whole(1, 1024), "shards", Says("8");
        /// Observations in a sequence; the last one only bootstraps.
        trace: usize = 160, Whole(2, 65_536), "agent steps", Says("160");
        /// A new sequence begins every so many steps.
        period: usize = 80, Whole(1, 65_535), "agent steps", Says("80");
        /// Sequences are drawn with probability proportional to priority to the power of this.
        priority_exponent: f64 = 0.6, Kind::SHARE, "", Says("0.6");
        /// Losses are weighted with the inverse of that probability to the power of this.
        importance_exponent: f64 = 0.4, Kind::SHARE, "", Says("0.4");
        /// How often a sequence is drawn, on average. Actors and learner wait for each other to hold it.
        samples_per_insert: f64 = 6.0, Kind::above(0.0, 10_000.0), "", Says("6.0");
        /// Learning begins when so many sequences are held; 6 250 as in NGU.
        minimum_fill: usize = 6250, Whole(1, 100_000_000), "sequences", Silent;
        /// How far samples may be ahead of or behind `samples_per_insert` before one side waits for the other.
        limiter_slack: f64 = 512.0, Kind::above(0.0, 1e9), "sampled sequences", Ours;
        /// Memory that all shards together may take, in units of 10^9 bytes; the oldest sequences go when it is
        /// reached. The paper's capacity takes 6 to 45 GB, by game.
        memory_limit_gb: f64 = 64.0, Kind::above(0.0, 1e6), "GB", Ours;
        /// Threads that decode batches.
        sampler_threads: usize = 4, Whole(1, 256), "threads", Ours;
    }
}

section! {
    /// How updates are fed and handed on; what an update does is under `agent`.
    LearnerConfig in "learner" {
        /// Sequences in a batch.
        batch_size: usize = 64, Whole(1, 65_536), "sequences", Says("64");
        /// Actors and evaluators get new parameters every so many updates.
        publish_every: u64 = 4, Whole(1, 1_000_000), "updates", Silent;
        /// Batches that are decoded ahead of the learner.
        prefetch: usize = 2, Whole(0, 64), "batches", Ours;
    }
}

section! {
    /// Greedy play with the averaged parameters while training goes on; nothing is learned from it.
    EvaluationConfig in "evaluation" {
        /// Environments that are played for evaluation.
        evaluators: usize = 5, Whole(0, 4096), "environments", Says("5");
        /// Episodes that the evaluation score is the mean of, which also decides which checkpoint is the best.
        mean_episodes: usize = 10, Whole(1, 100_000), "episodes", Ours;
    }
}

section! {
    /// What is saved so that the run can go on.
    CheckpointConfig in "checkpoint" {
        /// Time between two checkpoints; there is one at the end too.
        every_minutes: f64 = 10.0, Kind::above(0.0, 100_000.0), "min", Ours;
        /// The newest so many are kept.
        keep_last: usize = 2, Whole(1, 10_000), "checkpoints", Ours;
        /// Whether the one with the best evaluation score is kept besides.
        keep_best: bool = true, Switch, "", Ours;
    }
}

section! {
    /// What is written down about the run.
    MetricsConfig in "metrics" {
        /// Time between two lines of metrics.
        interval_seconds: f64 = 10.0, Kind::above(0.0, 86_400.0), "s", Ours;
        /// Frames between two lines of metrics in lockstep, where the clock must not matter.
        lockstep_frames: u64 = 5000, Whole(1, 1_000_000_000_000), "emulator frames", Ours;
    }
}
