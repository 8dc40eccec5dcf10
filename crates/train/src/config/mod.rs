//! The config: one typed struct with the paper's values as defaults.
//!
//! What a user gives is laid over the defaults by [`Sources::load`], which lists everything that is wrong at once.
//! [`SECTIONS`] tells of every field what it may be, what the paper says and what it means; the checks, the hints and
//! `docs/config.md` all come from it.

mod agent_fields;
mod combinations;
mod convert;
mod difference;
mod field;
mod fields;
mod layer;
mod load;
mod page;
mod presets;
mod problem;
mod section;
mod sections;
#[cfg(test)]
mod tests;
mod text;
mod write;

use agent::bandit::BanditParameters;
use agent::config::AgentConfig;
use serde::{Deserialize, Serialize};

pub use difference::{Difference, differences};
pub use field::{Column, Field, Kind, Paper, Section};
pub use fields::{SECTIONS, fields};
pub use load::{Effective, Sources};
pub use page::page;
pub use presets::{PRESETS, Preset};
pub use problem::{ConfigError, Fault, Origin, Problem};
pub use sections::{
    ActionSet, ActorsConfig, CheckpointConfig, Device, EnvConfig, EvaluationConfig, InferenceConfig, IntrinsicConfig,
    LearnerConfig, MetricsConfig, ReplayConfig, RunConfig,
};

/// The file in a run's directory that holds its effective config.
pub const CONFIG_FILE: &str = "config.toml";

/// Everything about a run that a user may set, besides what is played.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The run as a whole.
    pub run: RunConfig,
    /// What the agent acts in.
    pub env: EnvConfig,
    /// Who plays for the replay memory.
    pub actors: ActorsConfig,
    /// The networks that choose actions.
    pub inference: InferenceConfig,
    /// Which policy plays the next episode.
    pub bandit: BanditParameters,
    /// The reward for what is new.
    pub intrinsic: IntrinsicConfig,
    /// What is remembered.
    pub replay: ReplayConfig,
    /// How updates are fed and handed on.
    pub learner: LearnerConfig,
    /// Greedy play while training goes on.
    pub evaluation: EvaluationConfig,
    /// What is saved so that the run can go on.
    pub checkpoint: CheckpointConfig,
    /// What is written down about the run.
    pub metrics: MetricsConfig,
    /// What the agent computes.
    pub agent: AgentConfig,
}
