//! Rules between fields: values that are each valid but do not work together.

use config_schema::Problem;
use config_schema::text::{grouped, short_number};

use super::sections::Device;
use super::{Config, fields};

/// A rule that a config breaks.
#[derive(Debug, Clone, PartialEq)]
pub struct BrokenRule {
    /// The fields involved.
    pub fields: Vec<&'static str>,
    /// The fields with their values, and what would work.
    pub what: String,
}

/// Returns every rule that the config breaks.
pub fn broken(config: &Config) -> Vec<BrokenRule> {
    let mut rules = Rules(Vec::new());
    rules.roles(config);
    rules.replay(config);
    rules.agent(config);
    rules.0
}

struct Rules(Vec<BrokenRule>);

impl Rules {
    /// Reports the rule unless it holds.
    fn require<const N: usize>(&mut self, holds: bool, fields: [&'static str; N], what: impl FnOnce() -> String) {
        if !holds {
            self.0.push(BrokenRule { fields: fields.to_vec(), what: what() });
        }
    }

    fn at_most(&mut self, (path, value): (&'static str, usize), (limit, most): (&'static str, usize)) {
        self.require(value <= most, [path, limit], || {
            format!("{path} is {}; it must be at most {limit}, {}", grouped(value as i64), grouped(most as i64))
        });
    }

    fn multiple_of(&mut self, (path, value): (&'static str, usize), (unit, of): (&'static str, usize)) -> bool {
        let holds = value.is_multiple_of(of);
        self.require(holds, [path, unit], || format!("{path} is {value}; it must be a multiple of {unit}, {of}"));
        holds
    }

    fn roles(&mut self, config: &Config) {
        let Config { run, env, actors, inference, evaluation, replay, .. } = config;
        self.require(!run.lockstep || run.device != Device::Cuda, ["run.lockstep", "run.device"], || {
            "run.lockstep is true, which is repeatable only on the CPU; run.device must be cpu or auto, not cuda".into()
        });
        let pauses = evaluation.evaluators == 0 || evaluation.share < 1.0;
        self.require(!run.lockstep || pauses, ["run.lockstep", "evaluation.share"], || {
            "evaluation.share is 1, but with run.lockstep actors only play while evaluators rest; it must be below 1"
                .into()
        });
        self.require(env.frame_cap > env.noop_max, ["env.frame_cap", "env.noop_max"], || {
            let (cap, noops) = (env.frame_cap, env.noop_max);
            format!("env.frame_cap is {cap}; it must be above env.noop_max, {noops}, or the agent never acts")
        });
        self.require(evaluation.frame_cap > env.noop_max, ["evaluation.frame_cap", "env.noop_max"], || {
            let (cap, noops) = (evaluation.frame_cap, env.noop_max);
            format!("evaluation.frame_cap is {cap}; it must be above env.noop_max, {noops}, or evaluators never act")
        });
        let environments = ("actors.environments", actors.environments);
        let per_worker = ("actors.environments_per_worker", actors.environments_per_worker);
        self.multiple_of(environments, per_worker);
        if self.multiple_of(per_worker, ("actors.groups", actors.groups)) {
            let group = per_worker.1 / actors.groups;
            let fields = ["inference.max_batch", per_worker.0, "actors.groups"];
            self.require(inference.max_batch >= group, fields, || {
                let batch = inference.max_batch;
                format!(
                    "inference.max_batch is {batch}; it must be at least {group}, the environments of a worker's group"
                )
            });
        }
        // Without environments of its own, a run has those on other machines.
        if environments.1 > 0 {
            self.at_most(("evaluation.evaluators", evaluation.evaluators), environments);
            // A shard without a writer would waste its part of the capacity.
            self.at_most(("replay.shards", replay.shards), environments);
        }
    }

    fn replay(&mut self, config: &Config) {
        let Config { replay, learner, intrinsic, agent, .. } = config;
        for (problem, limit) in replay.conflicts() {
            self.report("replay", &[&problem.path, limit], &problem);
        }
        let burn_in = agent.loss.burn_in;
        let fields = ["agent.loss.burn_in", "replay.trace", "replay.period"];
        self.require(burn_in == 0 || burn_in + replay.period < replay.trace, fields, || {
            format!(
                "agent.loss.burn_in is {burn_in}; it must be below {}, replay.trace less replay.period, or some steps \
                 would never carry loss",
                replay.trace.saturating_sub(replay.period)
            )
        });
        self.at_most(("learner.batch_size", learner.batch_size), ("replay.capacity", replay.capacity));
        let least = replay.least_slack(learner.batch_size);
        let fields = ["replay.limiter_slack", "learner.batch_size", "replay.samples_per_insert"];
        self.require(replay.limiter_slack >= least, fields, || {
            format!(
                "replay.limiter_slack is {}; it must be at least {}, half the sum of learner.batch_size, {}, and \
                 replay.samples_per_insert, {}, or batches and inserts could block each other forever",
                short_number(replay.limiter_slack),
                short_number(least),
                learner.batch_size,
                short_number(replay.samples_per_insert)
            )
        });
        let least = least_memory_gb(config);
        let fields = ["replay.memory_limit_gb", "replay.minimum_fill", "agent.network.core"];
        self.require(replay.memory_limit_gb > least, fields, || {
            format!(
                "replay.memory_limit_gb is {}; it must be above {}, the size of the recurrent states alone of \
                 replay.minimum_fill, {} sequences, or the first are evicted before learning starts",
                short_number(replay.memory_limit_gb),
                short_number(two_digits(least)),
                grouped(replay.minimum_fill as i64)
            )
        });
        self.at_most(
            ("intrinsic.kernel.neighbours", intrinsic.kernel.neighbours),
            ("intrinsic.memory_capacity", intrinsic.memory_capacity),
        );
        self.at_most(("agent.intrinsic.steps", agent.intrinsic.steps), ("replay.trace", replay.trace));
    }

    /// Adds the agent's own rules.
    fn agent(&mut self, config: &Config) {
        for problem in config.agent.problems() {
            // An entry of a list, `network.torso.convolutions[1].padding`, belongs to the list.
            let name = problem.path.split('[').next().unwrap_or_default();
            self.report("agent", &[name], &problem);
        }
    }

    /// Reports a broken rule that a section itself checks, with the fields it is about.
    fn report(&mut self, section: &str, names: &[&str], problem: &Problem) {
        let paths: Vec<String> = names.iter().map(|name| format!("{section}.{name}")).collect();
        let known = fields().map(|field| field.path.as_str());
        let fields = known.filter(|known| paths.iter().any(|path| path == known)).collect();
        self.0.push(BrokenRule { fields, what: format!("{section}.{problem}") });
    }
}

/// Rounds a positive number to two significant digits.
fn two_digits(number: f64) -> f64 {
    format!("{number:.1e}").parse().unwrap_or(number)
}

/// Returns the size of the recurrent states of the sequences needed to start learning.
///
/// Their frames take far more, but how much depends on the game.
fn least_memory_gb(config: &Config) -> f64 {
    let network = &config.agent.network;
    let state = if network.recurrent { 2 * size_of::<f32>() * network.core } else { 0 };
    config.replay.minimum_fill as f64 * state as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the only rule that the defaults break after this change.
    fn complaint(change: impl FnOnce(&mut Config)) -> String {
        let mut config = Config::default();
        change(&mut config);
        let found = broken(&config);
        assert_eq!(found.len(), 1, "{found:?}");
        for field in &found[0].fields {
            assert!(fields().any(|known| known.path == *field), "{field} is not a field");
        }
        found[0].what.clone()
    }

    #[test]
    fn defaults_break_no_rule() {
        assert_eq!(broken(&Config::default()), []);
    }

    #[test]
    fn each_broken_rule_names_fields_and_values() {
        for (complaint, start) in [
            (complaint(|c| (c.run.lockstep, c.run.device) = (true, Device::Cuda)), "run.lockstep is true"),
            (complaint(|c| c.env.frame_cap = 30), "env.frame_cap is 30; it must be above env.noop_max, 30"),
            (complaint(|c| c.evaluation.frame_cap = 9), "evaluation.frame_cap is 9; it must be above env.noop_max, 30"),
            (complaint(|c| c.actors.environments = 129), "actors.environments is 129; it must be a multiple"),
            (
                complaint(|c| (c.actors.environments, c.actors.environments_per_worker) = (129, 3)),
                "actors.environments_per_worker is 3; it must be a multiple of actors.groups, 2",
            ),
            (complaint(|c| c.inference.max_batch = 3), "inference.max_batch is 3; it must be at least 4"),
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
                "replay.memory_limit_gb is 0.05; it must be above 0.051, the size of the recurrent states",
            ),
            (
                complaint(|c| (c.replay.memory_limit_gb, c.replay.minimum_fill) = (0.0001, 20)),
                "replay.memory_limit_gb is 0.0001; it must be above 0.00016, the size of the recurrent states",
            ),
            (complaint(|c| c.intrinsic.memory_capacity = 9), "intrinsic.kernel.neighbours is 10; it must be at most"),
            (
                complaint(|c| (c.replay.trace, c.replay.period) = (4, 2)),
                "agent.intrinsic.steps is 5; it must be at most replay.trace, 4",
            ),
            (
                complaint(|c| c.agent.policies.gamma_min = 0.9999),
                "agent.policies.gamma_min is 0.9999; it must be at most policies.gamma_max, 0.9997",
            ),
            (
                complaint(|c| c.agent.network.torso.stem.kernel = 6),
                "agent.network.torso.stem.kernel is 6; it must be odd",
            ),
        ] {
            assert!(complaint.starts_with(start), "{complaint}\n{start}");
        }
    }
}
