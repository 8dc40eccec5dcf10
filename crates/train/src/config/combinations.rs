//! Values that are each allowed but can't work together.

use super::Config;
use super::sections::Device;
use super::text::{shown_number, shown_whole};

/// Fields that don't go together.
#[derive(Debug, Clone, PartialEq)]
pub struct Combination {
    /// The fields.
    pub fields: Vec<&'static str>,
    /// The sentence, with their values and what would work.
    pub what: String,
}

/// Every combination in this config that can't work.
pub fn impossible(config: &Config) -> Vec<Combination> {
    let mut found = Vec::new();
    roles(config, &mut found);
    replay(config, &mut found);
    intrinsic(config, &mut found);
    agent(config, &mut found);
    found
}

fn roles(config: &Config, found: &mut Vec<Combination>) {
    let Config { run, env, actors, inference, evaluation, replay, .. } = config;
    if run.lockstep && run.device == Device::Cuda {
        found.push(Combination {
            fields: vec!["run.lockstep", "run.device"],
            what: "run.lockstep repeats bit for bit on the CPU only; run.device must be cpu or auto, not cuda"
                .to_owned(),
        });
    }
    if env.frame_cap <= env.noop_max {
        found.push(Combination {
            fields: vec!["env.frame_cap", "env.noop_max"],
            what: format!(
                "env.frame_cap is {}; it must be above env.noop_max, {}, or no action is ever chosen",
                env.frame_cap, env.noop_max
            ),
        });
    }
    let (environments, per_worker) = (actors.environments, actors.environments_per_worker);
    if !environments.is_multiple_of(per_worker) {
        found.push(Combination {
            fields: vec!["actors.environments", "actors.environments_per_worker"],
            what: format!(
                "actors.environments is {environments}; it must be a multiple of actors.environments_per_worker, \
                 {per_worker}"
            ),
        });
    }
    if !per_worker.is_multiple_of(actors.groups) {
        found.push(Combination {
            fields: vec!["actors.environments_per_worker", "actors.groups"],
            what: format!(
                "actors.environments_per_worker is {per_worker}; it must be a multiple of actors.groups, {}",
                actors.groups
            ),
        });
    } else if inference.max_batch < per_worker / actors.groups {
        found.push(Combination {
            fields: vec!["inference.max_batch", "actors.environments_per_worker", "actors.groups"],
            what: format!(
                "inference.max_batch is {}; it must be at least the {} environments of a worker's group",
                inference.max_batch,
                per_worker / actors.groups
            ),
        });
    }
    at_most(found, ("evaluation.evaluators", evaluation.evaluators), ("actors.environments", environments));
    // A shard that nobody writes to would hold its share of the capacity for nothing.
    at_most(found, ("replay.shards", replay.shards), ("actors.environments", environments));
}

fn replay(config: &Config, found: &mut Vec<Combination>) {
    let Config { replay, learner, .. } = config;
    if replay.period >= replay.trace {
        found.push(Combination {
            fields: vec!["replay.period", "replay.trace"],
            what: format!(
                "replay.period is {}; it must be below replay.trace, {}: the last observation of a sequence only \
                 bootstraps, so some steps would be in no sequence",
                replay.period, replay.trace
            ),
        });
    }
    at_most(found, ("learner.batch_size", learner.batch_size), ("replay.capacity", replay.capacity));
    at_most(found, ("replay.minimum_fill", replay.minimum_fill), ("replay.capacity", replay.capacity));
    at_most(found, ("replay.shards", replay.shards), ("replay.capacity", replay.capacity));
    let least_slack = (learner.batch_size as f64 + replay.samples_per_insert) / 2.0;
    if replay.limiter_slack < least_slack {
        found.push(Combination {
            fields: vec!["replay.limiter_slack", "learner.batch_size", "replay.samples_per_insert"],
            what: format!(
                "replay.limiter_slack is {}; it must be at least {}, half of learner.batch_size, {}, and \
                 replay.samples_per_insert, {}, together, or neither a batch nor an insert might ever go on",
                shown_number(replay.limiter_slack),
                shown_number(least_slack),
                learner.batch_size,
                shown_number(replay.samples_per_insert)
            ),
        });
    }
    let least = least_memory_gb(config);
    if replay.memory_limit_gb <= least {
        found.push(Combination {
            fields: vec!["replay.memory_limit_gb", "replay.minimum_fill", "agent.network.core"],
            what: format!(
                "replay.memory_limit_gb is {}; it must be above {least:.3}, which the recurrent states of \
                 replay.minimum_fill, {} sequences, take without any frame, or the first of them would be gone before \
                 learning begins",
                shown_number(replay.memory_limit_gb),
                shown(replay.minimum_fill)
            ),
        });
    }
}

/// What the recurrent states of the sequences needed to begin take. Their frames take far more, but how much depends on
/// the game.
fn least_memory_gb(config: &Config) -> f64 {
    let network = &config.agent.network;
    let state = if network.recurrent { 2 * size_of::<f32>() * network.core } else { 0 };
    config.replay.minimum_fill as f64 * state as f64 / 1e9
}

fn intrinsic(config: &Config, found: &mut Vec<Combination>) {
    let Config { intrinsic, replay, agent, .. } = config;
    at_most(
        found,
        ("intrinsic.kernel.neighbours", intrinsic.kernel.neighbours),
        ("intrinsic.memory_capacity", intrinsic.memory_capacity),
    );
    at_most(found, ("agent.intrinsic.steps", agent.intrinsic.steps), ("replay.trace", replay.trace));
}

/// What the agent itself finds.
fn agent(config: &Config, found: &mut Vec<Combination>) {
    for problem in config.agent.problems() {
        let what = problem.to_string();
        // The agent names entries of lists too, `network.torso.stages[1].stride`.
        let path = format!("agent.{}", problem.field.split('[').next().unwrap_or_default());
        let fields = super::fields().map(|field| field.path).filter(|known| *known == path).collect();
        found.push(Combination { fields, what });
    }
}

fn at_most(found: &mut Vec<Combination>, (path, value): (&'static str, usize), (limit, most): (&'static str, usize)) {
    if value > most {
        found.push(Combination {
            fields: vec![path, limit],
            what: format!("{path} is {}; it must be at most {limit}, {}", shown(value), shown(most)),
        });
    }
}

fn shown(value: usize) -> String {
    i64::try_from(value).map_or_else(|_| value.to_string(), shown_whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The only complaint about the defaults after this change.
    fn complaint(change: impl FnOnce(&mut Config)) -> String {
        let mut config = Config::default();
        change(&mut config);
        let found = impossible(&config);
        assert_eq!(found.len(), 1, "{found:?}");
        for field in &found[0].fields {
            assert!(super::super::fields().any(|known| known.path == *field), "{field} is no field");
        }
        found[0].what.clone()
    }

    #[test]
    fn the_defaults_go_together() {
        assert_eq!(impossible(&Config::default()), []);
    }

    #[test]
    fn each_impossible_combination_is_named() {
        for (complaint, start) in [
            (complaint(|c| (c.run.lockstep, c.run.device) = (true, Device::Cuda)), "run.lockstep repeats"),
            (complaint(|c| c.env.frame_cap = 30), "env.frame_cap is 30; it must be above env.noop_max, 30"),
            (complaint(|c| c.actors.environments = 129), "actors.environments is 129; it must be a multiple"),
            (
                complaint(|c| (c.actors.environments, c.actors.environments_per_worker) = (129, 3)),
                "actors.environments_per_worker is 3; it must be a multiple of actors.groups, 2",
            ),
            (complaint(|c| c.inference.max_batch = 3), "inference.max_batch is 3; it must be at least the 4"),
            (
                complaint(|c| c.evaluation.evaluators = 129),
                "evaluation.evaluators is 129; it must be at most actors.environments, 128",
            ),
            (complaint(|c| c.replay.shards = 129), "replay.shards is 129; it must be at most actors.environments, 128"),
            (complaint(|c| c.replay.period = 160), "replay.period is 160; it must be below replay.trace, 160"),
            (
                complaint(|c| (c.replay.capacity, c.replay.minimum_fill) = (63, 1)),
                "learner.batch_size is 64; it must be at most replay.capacity, 63",
            ),
            (
                complaint(|c| c.replay.minimum_fill = 200_001),
                "replay.minimum_fill is 200_001; it must be at most replay.capacity, 200_000",
            ),
            (
                complaint(|c| (c.replay.capacity, c.replay.minimum_fill, c.learner.batch_size) = (7, 1, 1)),
                "replay.shards is 8; it must be at most replay.capacity, 7",
            ),
            (complaint(|c| c.replay.limiter_slack = 34.9), "replay.limiter_slack is 34.9; it must be at least 35.0"),
            (
                complaint(|c| c.replay.memory_limit_gb = 0.05),
                "replay.memory_limit_gb is 0.05; it must be above 0.051, which the recurrent states",
            ),
            (complaint(|c| c.intrinsic.memory_capacity = 9), "intrinsic.kernel.neighbours is 10; it must be at most"),
            (
                complaint(|c| (c.replay.trace, c.replay.period) = (4, 2)),
                "agent.intrinsic.steps is 5; it must be at most replay.trace, 4",
            ),
            (complaint(|c| c.agent.policies.gamma_min = 0.9999), "agent.policies.gamma_min is 0.9999, but must not"),
            (complaint(|c| c.agent.network.torso.stem.kernel = 6), "agent.network.torso.stem.kernel is 6, but"),
        ] {
            assert!(complaint.starts_with(start), "{complaint}\n{start}");
        }
    }
}
