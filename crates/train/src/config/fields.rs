//! Every field there is, and how to find one.

use super::agent_fields as agent;
use super::field::{Field, Section};
use super::sections::{
    ActorsConfig, CheckpointConfig, EnvConfig, EvaluationConfig, InferenceConfig, IntrinsicConfig, LearnerConfig,
    MetricsConfig, ReplayConfig, RunConfig,
};
use crate::suggestion::suggest_path;

/// Every section, in the order in which a config is written; a section stands before those inside it.
pub const SECTIONS: &[Section] = &[
    RunConfig::SECTION,
    EnvConfig::SECTION,
    ActorsConfig::SECTION,
    InferenceConfig::SECTION,
    agent::BANDIT,
    IntrinsicConfig::SECTION,
    agent::KERNEL,
    ReplayConfig::SECTION,
    LearnerConfig::SECTION,
    EvaluationConfig::SECTION,
    CheckpointConfig::SECTION,
    MetricsConfig::SECTION,
    agent::POLICIES,
    agent::RETURNS,
    agent::LOSS,
    agent::OPTIMIZER,
    agent::INTRINSIC,
    agent::ACTION_PREDICTION,
    agent::RND,
    agent::COPIES,
    agent::NETWORK,
    agent::TORSO,
    agent::STEM,
    agent::STOCHASTIC_DEPTH,
    agent::INTRINSIC_NETWORK,
];

/// Every field, in the order in which a config is written.
pub fn fields() -> impl Iterator<Item = &'static Field> {
    SECTIONS.iter().flat_map(|section| section.fields)
}

/// What a path leads to.
#[derive(Debug)]
pub enum Place {
    /// A field.
    Field(&'static Field),
    /// A section, with the names of what lies in it.
    Section(Vec<&'static str>),
    /// Nothing: the path goes on after a field's name.
    Beyond(&'static Field),
    /// Nothing; this field is probably meant.
    Nowhere(Option<&'static str>),
}

/// Finds what a path leads to.
pub fn find(path: &str) -> Place {
    if let Some(field) = fields().find(|field| field.path == path) {
        return Place::Field(field);
    }
    let mut names: Vec<_> = fields().filter_map(|field| rest(path, field.path)?.split('.').next()).collect();
    if !names.is_empty() {
        names.dedup();
        return Place::Section(names);
    }
    match fields().find(|field| rest(field.path, path).is_some()) {
        Some(field) => Place::Beyond(field),
        None => Place::Nowhere(suggest_path(path, fields().map(|field| field.path))),
    }
}

/// What follows the section in a path that lies in it.
fn rest<'a>(section: &str, path: &'a str) -> Option<&'a str> {
    path.strip_prefix(section)?.strip_prefix('.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_lead_to_fields_sections_or_nowhere() {
        assert!(matches!(find("replay.trace"), Place::Field(field) if field.path == "replay.trace"));
        assert!(
            matches!(find("agent.intrinsic.rnd"), Place::Section(inside) if inside == ["learning_rate", "moments_decay"])
        );
        assert!(matches!(find("agent.network.torso.stem"), Place::Section(inside) if inside.len() == 3));
        assert!(matches!(find("replay.trace.x"), Place::Beyond(field) if field.path == "replay.trace"));
        assert!(matches!(find("replay.trase"), Place::Nowhere(Some("replay.trace"))));
        assert!(matches!(find("replay.traces"), Place::Nowhere(Some("replay.trace"))));
        assert!(matches!(find("q"), Place::Nowhere(None)));
    }
}
