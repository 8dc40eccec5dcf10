//! The configuration of a run: one typed struct with the paper's values as defaults.
//!
//! [`Sources::load`] layers a preset, a file and settings over the defaults and reports all problems at once. Every
//! section is declared next to the code that uses it; [`Config`] puts them together and [`SECTIONS`] lists them.

mod layer;
mod load;
mod problem;
mod rules;
mod sections;
#[cfg(test)]
mod tests;
mod write;

use std::sync::LazyLock;

use agent::bandit::BanditParameters;
use agent::config::AgentConfig;
use config_schema::{FlatField, FlatSection, Schema};
pub use config_schema::{Kind, Paper};
pub use replay::ReplaySection;

pub use load::{AGENTS, EffectiveConfig, PRESETS, Preset, Sources, presets_of};
pub use problem::{ConfigError, ConfigFault, ConfigProblem, Origin};
pub use sections::{
    ActionSet, ActorsConfig, CheckpointConfig, Device, EnvConfig, EvaluationConfig, EvaluationRefresh, InferenceConfig,
    IntrinsicConfig, LearnerConfig, MetricsConfig, RunConfig,
};
pub use write::{Difference, differences};

/// Name of the file in a run's directory that holds its effective config.
pub const CONFIG_FILE: &str = "config.toml";

config_schema::section! {
    /// Everything about a run that a user may set, except for the environment.
    pub struct Config {
        table run: RunConfig;
        table env: EnvConfig;
        table actors: ActorsConfig;
        table inference: InferenceConfig;
        table bandit: BanditParameters;
        table intrinsic: IntrinsicConfig;
        table replay: ReplaySection;
        table learner: LearnerConfig;
        table evaluation: EvaluationConfig;
        table checkpoint: CheckpointConfig;
        table metrics: MetricsConfig;
        table agent: AgentConfig;
    }
}

/// Every section, in the order in which a config is written.
pub static SECTIONS: LazyLock<Vec<FlatSection>> = LazyLock::new(|| Config::SECTION.flatten());

/// Returns every field, in the order in which a config is written.
pub fn fields() -> impl Iterator<Item = &'static FlatField> {
    SECTIONS.iter().flat_map(|section| &section.fields)
}
