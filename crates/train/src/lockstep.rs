//! One thread in a fixed order: slower, but a run on the CPU repeats bit for bit.

use std::time::Duration;

use replay::{Replay, Snapshot};

use crate::assembly::Parts;
use crate::bandit::CentralBandit;
use crate::config::Config;
use crate::drawing::{Drawing, DrawnBatch};
use crate::error::Result;
use crate::learning::Learning;
use crate::player::Player;
use crate::saving::{Copied, Play};
use crate::session::{Afterwards, Session, Watch};
use crate::timesheet::Times;

/// A run that is moved on by hand, a round at a time.
pub struct Lockstep {
    parts: Parts,
    drawing: Drawing,
    batch: DrawnBatch,
    publish_every: u64,
}

impl Lockstep {
    /// A run of these parts.
    pub fn new(parts: Parts, config: &Config) -> Result<Self> {
        let drawing = Drawing::new(&parts.replay, 1, parts.learning.learner())?;
        let batch = drawing.memory(config.learner.batch_size)?;
        Ok(Self { drawing, batch, publish_every: config.learner.publish_every, parts })
    }

    /// One update, if the rate limiter has room for it.
    fn update(&mut self, watch: &mut dyn Watch) -> Result<bool> {
        if !self.drawing.draw(&mut self.batch, Duration::ZERO)? {
            return Ok(false);
        }
        let update = self.parts.learning.update(&self.batch)?;
        watch.update(&update);
        if update.report.update.is_multiple_of(self.publish_every) {
            self.parts.published = self.parts.learning.publish()?;
            self.parts.inference.refresh(&self.parts.published)?;
        }
        Ok(true)
    }
}

impl Session for Lockstep {
    /// One step of every environment, then as many updates as the rate limiter has room for.
    fn advance(&mut self, watch: &mut dyn Watch) -> Result<()> {
        let Parts { inference, bandit, actors, evaluators, .. } = &mut self.parts;
        let actor_sets = actors.len();
        for (i, player) in actors.iter_mut().chain(evaluators).enumerate() {
            for group in 0..player.groups() {
                player.decide(group, inference)?;
                player.wait(group, &mut |fault| watch.fault(&fault))?;
                player.absorb(group, bandit, &mut |report| watch.episode(&report))?;
            }
            let positions = player.take_positions();
            if i < actor_sets {
                watch.positions(&positions);
            }
        }
        loop {
            let mut all_in = true;
            for actor in &mut self.parts.actors {
                all_in &= actor.flush(Duration::ZERO)?;
            }
            let updated = self.update(watch)?;
            if all_in && !updated {
                return Ok(());
            }
        }
    }

    fn frames(&self) -> u64 {
        self.parts.actors.iter().map(|actor| actor.steps() * u64::from(actor.spec().frames_per_step)).sum()
    }

    fn bandit(&self) -> &CentralBandit {
        &self.parts.bandit
    }

    fn replay(&self) -> &Replay {
        &self.parts.replay
    }

    fn learning(&self) -> &Learning {
        &self.parts.learning
    }

    fn times(&self) -> Option<Times> {
        None
    }

    /// Nothing moves but in `advance`, so that all rest anyway.
    fn copy(&mut self, _afterwards: Afterwards, _watch: &mut dyn Watch) -> Result<Copied> {
        let frames = self.frames();
        let Parts { learning, replay, inference, published, bandit, actors, evaluators } = &mut self.parts;
        let writers = actors.iter().flat_map(Player::writers).collect();
        let play = Play {
            states: inference.save()?,
            bandit: bandit.state(),
            actors: actors.iter_mut().map(Player::save).collect(),
            evaluators: evaluators.iter_mut().map(Player::save).collect(),
        };
        let copied = Copied::new(frames, learning, Snapshot::take(replay, writers), play)?;
        Ok(copied.acting_on(published.save()?))
    }
}
