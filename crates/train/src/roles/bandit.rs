//! The choice of every episode's policy.

use std::sync::{Mutex, MutexGuard, PoisonError};

use agent::Random;
use agent::bandit::{Arm, BanditKind, BanditParameters, DiscountedUcb, best_mean};
use agent::sliding_window::SlidingWindow;
use rand::{RngExt, SeedableRng};
use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::roles::messages::Role;

/// Where episodes get their policies: the bandit itself, or a connection to it.
pub trait PolicySource {
    /// Chooses the policy for an environment's next episode.
    fn choose(&self, role: Role, environment: usize) -> Result<usize>;
    /// Records the score of a finished episode.
    fn report(&self, role: Role, environment: usize, policy: usize, score: f64) -> Result<()>;
    /// Records that an episode was lost.
    fn abandon(&self, role: Role, policy: usize) -> Result<()>;
}

/// Chooses policies for actors and evaluators and learns from the actors' episodes.
#[derive(Debug)]
pub struct SharedBandit(Mutex<BanditState>);

/// Saved state of the bandit.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BanditState {
    chooser: PolicyChooser,
    random: Random,
    /// Episodes that actors have begun, per policy.
    pulls: Vec<u64>,
}

/// What policies are chosen by.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum PolicyChooser {
    /// One bandit for all actors.
    #[serde(rename = "Central")]
    Shared(DiscountedUcb),
    /// One bandit for each actor.
    PerActor(Vec<SlidingWindow>),
    /// The actor's index. The bandit only keeps statistics.
    Fixed(DiscountedUcb),
}

impl SharedBandit {
    /// A new bandit over `policies` policies for this many actors.
    pub fn new(policies: usize, actors: usize, parameters: &BanditParameters, seed: u64) -> Self {
        let bandit = || DiscountedUcb::new(policies, parameters.clone());
        let chooser = match parameters.kind {
            BanditKind::DiscountedUcb => PolicyChooser::Shared(bandit()),
            BanditKind::SlidingWindow => {
                PolicyChooser::PerActor(vec![SlidingWindow::new(policies, parameters.clone()); actors])
            }
            BanditKind::Fixed => PolicyChooser::Fixed(bandit()),
        };
        Self::resume(BanditState { chooser, random: Random::seed_from_u64(seed), pulls: vec![0; policies] })
    }

    /// Resumes from a saved state.
    pub fn resume(state: BanditState) -> Self {
        Self(Mutex::new(state))
    }

    /// Copies the state.
    pub fn state(&self) -> BanditState {
        self.lock().clone()
    }

    /// Statistics of each policy, of all actors together, and the number of its episodes.
    pub fn arms(&self) -> (Vec<Arm>, Vec<u64>) {
        let state = self.lock();
        (state.chooser.arms(), state.pulls.clone())
    }

    /// The policy that evaluators play: the one with the best mean return.
    ///
    /// The first policy if actors have fixed ones.
    pub fn greedy(&self) -> usize {
        self.lock().chooser.greedy()
    }

    fn lock(&self) -> MutexGuard<'_, BanditState> {
        // The state is valid after every statement, even if a thread panicked while it held the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PolicySource for SharedBandit {
    /// For an evaluator, chooses the policy with the best mean return.
    fn choose(&self, role: Role, environment: usize) -> Result<usize> {
        let mut state = self.lock();
        if role == Role::Evaluator {
            return Ok(state.chooser.greedy());
        }
        let uniforms = [state.random.random::<f64>(), state.random.random::<f64>()];
        let policies = state.pulls.len();
        let policy = match &mut state.chooser {
            PolicyChooser::Shared(bandit) => bandit.choose(uniforms),
            PolicyChooser::PerActor(bandits) => own(bandits, environment).choose(uniforms),
            // NGU, appendix A: h = j mod (N - 1).
            PolicyChooser::Fixed(_) => environment % policies.saturating_sub(1).max(1),
        };
        state.pulls[policy] += 1;
        Ok(policy)
    }

    /// Learns from the score of an actor's episode; those of evaluators do not count.
    fn report(&self, role: Role, environment: usize, policy: usize, score: f64) -> Result<()> {
        if role == Role::Actor {
            match &mut self.lock().chooser {
                PolicyChooser::Shared(bandit) | PolicyChooser::Fixed(bandit) => bandit.update(policy, score)?,
                PolicyChooser::PerActor(bandits) => own(bandits, environment).update(policy, score)?,
            }
        }
        Ok(())
    }

    fn abandon(&self, role: Role, policy: usize) -> Result<()> {
        // An actor's own bandit loses a first try, which the window forgets anyway.
        if let (Role::Actor, PolicyChooser::Shared(bandit)) = (role, &mut self.lock().chooser) {
            bandit.abandon(policy)?;
        }
        Ok(())
    }
}

/// The bandit of an environment. There may be more remote environments now than when the run began.
fn own(bandits: &mut [SlidingWindow], environment: usize) -> &mut SlidingWindow {
    let count = bandits.len();
    &mut bandits[environment % count]
}

impl PolicyChooser {
    fn arms(&self) -> Vec<Arm> {
        match self {
            Self::Shared(bandit) | Self::Fixed(bandit) => bandit.arms.to_vec(),
            Self::PerActor(bandits) => {
                let mut all: Vec<Arm> = Vec::new();
                for arms in bandits.iter().map(SlidingWindow::statistics) {
                    all.resize(arms.len(), Arm::default());
                    all.iter_mut().zip(&arms).for_each(|(all, own)| all.merge(own));
                }
                all
            }
        }
    }

    fn greedy(&self) -> usize {
        match self {
            Self::Shared(bandit) => bandit.greedy(),
            Self::PerActor(_) => best_mean(&self.arms()),
            Self::Fixed(_) => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bandit(kind: BanditKind, actors: usize) -> SharedBandit {
        SharedBandit::new(4, actors, &BanditParameters { kind, epsilon: 0.0, ..BanditParameters::default() }, 3)
    }

    #[test]
    fn fixed_policies_are_the_actors_and_evaluators_play_the_first() {
        let bandit = bandit(BanditKind::Fixed, 6);
        for _ in 0..2 {
            assert_eq!([0, 1, 2, 3, 4, 5].map(|actor| bandit.choose(Role::Actor, actor).unwrap()), [0, 1, 2, 0, 1, 2]);
        }
        bandit.report(Role::Actor, 2, 2, 9.0).unwrap();
        assert_eq!((bandit.choose(Role::Evaluator, 0).unwrap(), bandit.greedy()), (0, 0));
        assert_eq!(bandit.arms().0[2].mean(), Some(9.0));
        assert_eq!(bandit.arms().1, [4, 4, 4, 0]);
    }

    #[test]
    fn each_actor_has_a_window_of_its_own_and_evaluators_see_all() {
        let bandit = bandit(BanditKind::SlidingWindow, 2);
        for actor in 0..2 {
            for policy in 0..4 {
                assert_eq!(bandit.choose(Role::Actor, actor).unwrap(), policy);
                let best = if actor == 0 { 1 } else { 3 };
                bandit.report(Role::Actor, actor, policy, if policy == best { 10.0 } else { 0.0 }).unwrap();
            }
        }
        assert_eq!([0, 1].map(|actor| bandit.choose(Role::Actor, actor).unwrap()), [1, 3]);
        bandit.report(Role::Actor, 1, 3, 10.0).unwrap();
        // Policy 3 has a mean of 20/3 over both actors, policy 1 of 5.
        assert_eq!((bandit.greedy(), bandit.choose(Role::Evaluator, 0).unwrap()), (3, 3));
        bandit.report(Role::Evaluator, 0, 1, 1e6).unwrap();
        assert_eq!(bandit.greedy(), 3);
        let resumed = SharedBandit::resume(bandit.state());
        assert_eq!(resumed.arms(), bandit.arms());
    }
}
