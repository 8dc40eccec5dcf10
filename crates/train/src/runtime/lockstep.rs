//! All roles on one thread in a fixed order: slower, but a run on the CPU repeats bit for bit.

use std::time::Duration;

use replay::Snapshot;

use crate::config::Config;
use crate::error::Result;
use crate::roles::actor::Actor;
use crate::roles::bandit::SharedBandit;
use crate::roles::batch_prefetch::{BatchPrefetch, PrefetchedBatch};
use crate::roles::evaluation_rounds::EvaluationRounds;
use crate::roles::events::Event;
use crate::roles::inference::Inference;
use crate::roles::timesheet::ActivityTimes;
use crate::roles::training_agent::TrainingAgent;
use crate::run::checkpoint::contents::{EvaluatorStates, RoleStates, TrainingSnapshot};
use crate::runtime::assembly::Assembly;
use crate::runtime::{AfterSnapshot, TrainingRuntime};

/// A run that advances one round at a time.
pub struct Lockstep {
    assembly: Assembly,
    prefetch: BatchPrefetch,
    batch: PrefetchedBatch,
    evaluations: EvaluationRounds,
    /// State of the evaluators before the evaluation in progress: a checkpoint in between repeats it.
    before_evaluation: EvaluatorStates,
}

impl Lockstep {
    /// Prepares an assembled run.
    pub fn new(assembly: Assembly, config: &Config) -> Result<Self> {
        let learner_loop = &assembly.agent.learner_loop;
        let prefetch = BatchPrefetch::new(&learner_loop.replay, 1, &learner_loop.learner)?;
        let batch = prefetch.memory(config.learner.batch_size)?;
        let before_evaluation = assembly.evaluator_states.clone();
        let evaluations = EvaluationRounds::new(&config.evaluation, before_evaluation.due);
        Ok(Self { prefetch, batch, assembly, evaluations, before_evaluation })
    }

    fn evaluator_states(&self) -> EvaluatorStates {
        let evaluators = &self.assembly.evaluators;
        EvaluatorStates {
            episodes: evaluators.iter().flat_map(Actor::episodes_begun).collect(),
            steps: self.assembly.evaluator_states.steps + evaluators.iter().map(|actor| actor.steps).sum::<u64>(),
            due: self.evaluations.due(),
        }
    }

    /// Steps of all roles so far, which are the clock of evaluations.
    fn steps(&self) -> f64 {
        let actors = self.assembly.actors.iter().map(|actor| actor.steps).sum::<u64>();
        (actors + self.evaluator_states().steps) as f64
    }

    /// Begins an evaluation if it is due; while one is in progress, steps every evaluator once. Returns whether one is.
    fn evaluate(&mut self, on_event: &mut dyn FnMut(Event)) -> Result<bool> {
        let (now, frames) = (self.steps(), self.frames());
        if let Some(published) = self.evaluations.begin_if_due(now, frames, &self.assembly.agent)? {
            self.before_evaluation = self.evaluator_states();
            let Assembly { inference, agent, evaluators, .. } = &mut self.assembly;
            inference.refresh_evaluators(&published)?;
            for evaluator in evaluators {
                evaluator.restart(agent.distances.mean, &*agent.bandit)?;
            }
        }
        if !self.evaluations.is_playing() {
            return Ok(false);
        }
        let Assembly { inference, agent, evaluators, .. } = &mut self.assembly;
        let TrainingAgent { bandit, distances, .. } = agent;
        let evaluations = &mut self.evaluations;
        let mut record = |event| {
            if let Event::Episode(report) = &event {
                evaluations.record(report);
            }
            distances.record(&event);
            on_event(event);
        };
        evaluators.iter_mut().try_for_each(|evaluator| step(evaluator, inference, bandit, &mut record))?;
        let (now, frames) = (self.steps(), self.frames());
        self.evaluations.finish_if_complete(now, frames, &self.assembly.agent, on_event)?;
        Ok(true)
    }

    /// Makes one update, if the rate limiter allows it; returns whether it did.
    fn update(&mut self, on_event: &mut dyn FnMut(Event)) -> Result<bool> {
        if !self.prefetch.draw(&mut self.batch, Duration::ZERO)? {
            return Ok(false);
        }
        on_event(Event::Update(self.assembly.agent.learner_loop.update(&self.batch)?));
        if let Some(published) = self.assembly.agent.learner_loop.publish_if_due()? {
            self.assembly.inference.refresh(&published)?;
            self.assembly.published = published;
        }
        Ok(true)
    }
}

/// Steps every environment of an actor once.
fn step(
    actor: &mut Actor,
    inference: &mut Inference,
    bandit: &SharedBandit,
    on_event: &mut dyn FnMut(Event),
) -> Result<()> {
    for group in 0..actor.groups() {
        actor.decide(group, inference)?;
        actor.wait(group, on_event)?;
        actor.absorb(group, bandit, on_event)?;
    }
    Ok(())
}

impl TrainingRuntime for Lockstep {
    /// Steps every evaluator once while an evaluation is in progress, else every actor.
    ///
    /// After the actors' step it makes as many updates as the rate limiter allows.
    fn advance(&mut self, on_event: &mut dyn FnMut(Event)) -> Result<()> {
        if self.evaluate(on_event)? {
            return Ok(());
        }
        let Assembly { inference, agent, actors, .. } = &mut self.assembly;
        let TrainingAgent { bandit, distances, .. } = agent;
        let mut record = |event| {
            distances.record(&event);
            on_event(event);
        };
        actors.iter_mut().try_for_each(|actor| step(actor, inference, bandit, &mut record))?;
        loop {
            let mut all_inserted = true;
            for actor in &mut self.assembly.actors {
                all_inserted &= actor.flush(Duration::ZERO)?;
            }
            let updated = self.update(on_event)?;
            if all_inserted && !updated {
                return Ok(());
            }
        }
    }

    fn frames(&self) -> u64 {
        self.assembly.actors.iter().map(|actor| actor.steps * u64::from(actor.spec().frames_per_step)).sum()
    }

    fn agent(&self) -> &TrainingAgent {
        &self.assembly.agent
    }

    fn times(&self) -> Option<ActivityTimes> {
        None
    }

    /// Copies without a pause: nothing moves outside `advance`.
    fn snapshot(&mut self, _: AfterSnapshot, _: &mut dyn FnMut(Event)) -> Result<TrainingSnapshot> {
        let frames = self.frames();
        let evaluators =
            if self.evaluations.is_playing() { self.before_evaluation.clone() } else { self.evaluator_states() };
        let Assembly { agent, inference, published, actors, .. } = &mut self.assembly;
        let writers = actors.iter().flat_map(Actor::writers).collect();
        let roles = RoleStates {
            recurrent: inference.snapshot()?,
            actors: actors.iter_mut().map(Actor::snapshot).collect(),
            evaluators,
        };
        let replay = Snapshot::take(&agent.learner_loop.replay, writers);
        TrainingSnapshot::new(frames, agent, agent.bandit.state(), roles, replay)?.with_acting(published)
    }
}
