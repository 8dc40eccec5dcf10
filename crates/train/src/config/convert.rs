//! The config in the terms of the crates that do the work.

use std::time::Duration;

use envs::{AleOptions, Limits};
use replay::{Layout, RateLimiterConfig};

use super::Config;
use super::sections::{ActionSet, EnvConfig};

impl EnvConfig {
    /// How Atari games are played.
    pub fn ale_options(&self) -> AleOptions {
        AleOptions {
            repeat: self.action_repeat,
            noop_max: self.noop_max,
            sticky: self.sticky_probability,
            full_actions: self.action_set == ActionSet::Full,
            max_frames: u64::from(self.frame_cap),
        }
    }

    /// How long a worker may take, and how often it may fail.
    pub fn limits(&self) -> Limits {
        Limits {
            start_up: Duration::from_secs_f64(self.start_limit_seconds),
            step: Duration::from_secs_f64(self.step_limit_seconds),
            failures: self.failure_limit,
        }
    }
}

impl Config {
    /// What the replay is told, for observations of so many bytes and a recurrent state of so many values; its draws
    /// follow from `seed`.
    pub fn replay_for(&self, observation_bytes: usize, state: usize, seed: u64) -> replay::ReplayConfig {
        let Self { replay, agent, .. } = self;
        replay::ReplayConfig {
            layout: Layout {
                observation_bytes,
                embedding: agent.network.intrinsic.embedding,
                state,
                trace: replay.trace,
                period: replay.period,
            },
            shards: replay.shards,
            capacity: replay.capacity,
            memory_limit: Some((replay.memory_limit_gb * 1e9) as u64),
            priority_exponent: replay.priority_exponent,
            importance_exponent: replay.importance_exponent,
            rate_limiter: RateLimiterConfig {
                samples_per_insert: replay.samples_per_insert,
                min_fill: replay.minimum_fill as u64,
                slack: replay.limiter_slack,
            },
            seed,
        }
    }
}

#[cfg(test)]
mod tests {
    use agent::{ObservationKind, ObservationSpec};
    use replay::ReplayConfig;

    use super::*;
    use crate::config::{PRESETS, Sources};

    #[test]
    fn the_defaults_are_those_of_the_environments() {
        assert_eq!(EnvConfig::default().ale_options(), AleOptions::default());
        assert_eq!(EnvConfig::default().limits(), Limits::default());
    }

    #[test]
    fn the_minimal_action_set_is_not_the_full_one() {
        let minimal = EnvConfig { action_set: ActionSet::Minimal, ..EnvConfig::default() };
        assert!(!minimal.ale_options().full_actions);
    }

    #[test]
    fn the_papers_sizes_are_those_of_the_replay() {
        let ours = Config::default().replay_for(33_600, 2048, 0);
        let paper = ReplayConfig::paper(33_600, 2048);
        assert_eq!((ours.layout, ours.shards, ours.capacity), (paper.layout, paper.shards, paper.capacity));
        assert_eq!(ours.priority_exponent, paper.priority_exponent);
        assert_eq!(ours.importance_exponent, paper.importance_exponent);
        assert_eq!(ours.rate_limiter.samples_per_insert, paper.rate_limiter.samples_per_insert);
    }

    #[test]
    fn every_preset_fits_atari_and_small_tasks_as_far_as_it_should() {
        for preset in PRESETS {
            let sources = Sources { preset: Some(preset.name.to_owned()), ..Sources::default() };
            let config = sources.load().unwrap().config;
            let fits = |height: usize, width: usize, actions: usize| {
                let observation = ObservationSpec { shape: vec![height, width], kind: ObservationKind::U8 };
                config.replay_for(observation.bytes(), 2 * config.agent.network.core, 1).check().unwrap();
                config.agent.validate_for(&observation, actions).is_ok()
            };
            assert!(fits(210, 160, 18), "{}", preset.name);
            // The convolutions of the others are made for large images.
            assert_eq!(fits(10, 10, 3), preset.name == "tiny", "{}", preset.name);
        }
    }
}
