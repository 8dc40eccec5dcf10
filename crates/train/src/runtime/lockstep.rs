//! All roles on one thread in a fixed order: slower, but a run on the CPU repeats bit for bit.

use std::time::Duration;

use replay::Snapshot;

use crate::config::Config;
use crate::error::Result;
use crate::roles::actor::Actor;
use crate::roles::batch_prefetch::{BatchPrefetch, PrefetchedBatch};
use crate::roles::training_agent::TrainingAgent;
use crate::run::checkpoint::contents::{RoleStates, TrainingSnapshot};
use crate::runtime::assembly::Assembly;
use crate::runtime::events::Event;
use crate::runtime::timesheet::ActivityTimes;
use crate::runtime::{AfterCopy, TrainingRuntime};

/// A run that advances one round at a time.
pub struct Lockstep {
    assembly: Assembly,
    prefetch: BatchPrefetch,
    batch: PrefetchedBatch,
}

impl Lockstep {
    /// Prepares an assembled run.
    pub fn new(assembly: Assembly, config: &Config) -> Result<Self> {
        let learner_loop = &assembly.agent.learner_loop;
        let prefetch = BatchPrefetch::new(learner_loop.replay(), 1, learner_loop.learner())?;
        let batch = prefetch.memory(config.learner.batch_size)?;
        Ok(Self { prefetch, batch, assembly })
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

impl TrainingRuntime for Lockstep {
    /// One step of every environment, then as many updates as the rate limiter allows.
    fn advance(&mut self, on_event: &mut dyn FnMut(Event)) -> Result<()> {
        let Assembly { inference, agent, actors, evaluators, .. } = &mut self.assembly;
        let TrainingAgent { bandit, distances, .. } = agent;
        let mut record = |event| {
            distances.record(&event);
            on_event(event);
        };
        for actor in actors.iter_mut().chain(evaluators) {
            for group in 0..actor.groups() {
                actor.decide(group, inference)?;
                actor.wait(group, &mut record)?;
                actor.absorb(group, bandit, &mut record)?;
            }
        }
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
        self.assembly.actors.iter().map(|actor| actor.steps() * u64::from(actor.spec().frames_per_step)).sum()
    }

    fn agent(&self) -> &TrainingAgent {
        &self.assembly.agent
    }

    fn times(&self) -> Option<ActivityTimes> {
        None
    }

    /// Copies without a pause: nothing moves outside `advance`.
    fn copy(&mut self, _: AfterCopy, _: &mut dyn FnMut(Event)) -> Result<TrainingSnapshot> {
        let frames = self.frames();
        let Assembly { agent, inference, published, actors, evaluators } = &mut self.assembly;
        let writers = actors.iter().flat_map(Actor::writers).collect();
        let roles = RoleStates {
            recurrent: inference.save()?,
            actors: actors.iter_mut().map(Actor::save).collect(),
            evaluators: evaluators.iter_mut().map(Actor::save).collect(),
        };
        let replay = Snapshot::take(agent.learner_loop.replay(), writers);
        TrainingSnapshot::new(frames, agent, agent.bandit.state(), roles, replay)?.with_acting(published)
    }
}
