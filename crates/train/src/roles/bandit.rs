//! The bandit that chooses every episode's policy.

use std::sync::{Mutex, MutexGuard, PoisonError};

use agent::Random;
use agent::bandit::{Arm, Bandit, BanditParameters};
use rand::{RngExt, SeedableRng};
use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::roles::messages::Role;

/// Chooses policies for actors and evaluators and learns from the actors' episodes.
#[derive(Debug)]
pub struct CentralBandit(Mutex<BanditState>);

/// Saved state of the bandit.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BanditState {
    bandit: Bandit,
    random: Random,
    /// Episodes that actors have begun, per policy.
    pulls: Vec<u64>,
}

impl CentralBandit {
    /// A new bandit over `policies` policies.
    pub fn new(policies: usize, parameters: &BanditParameters, seed: u64) -> Self {
        let bandit = Bandit::new(policies, parameters.clone());
        Self::resume(BanditState { bandit, random: Random::seed_from_u64(seed), pulls: vec![0; policies] })
    }

    /// Resumes from a saved state.
    pub fn resume(state: BanditState) -> Self {
        Self(Mutex::new(state))
    }

    /// Copies the state.
    pub fn state(&self) -> BanditState {
        self.lock().clone()
    }

    /// Chooses the policy for the next episode: for an evaluator, the one with the best mean return.
    pub fn choose(&self, role: Role) -> usize {
        let mut state = self.lock();
        if role == Role::Evaluator {
            return state.bandit.greedy();
        }
        let uniforms = [state.random.random::<f64>(), state.random.random::<f64>()];
        let policy = state.bandit.choose(uniforms);
        state.pulls[policy] += 1;
        policy
    }

    /// Records the score of a finished episode; those of evaluators do not count.
    pub fn report(&self, role: Role, policy: usize, score: f64) -> Result<()> {
        if role == Role::Actor {
            self.lock().bandit.update(policy, score)?;
        }
        Ok(())
    }

    /// Records that an episode was lost.
    pub fn abandon(&self, role: Role, policy: usize) -> Result<()> {
        if role == Role::Actor {
            self.lock().bandit.abandon(policy)?;
        }
        Ok(())
    }

    /// Statistics of each policy, and the number of its episodes.
    pub fn arms(&self) -> (Vec<Arm>, Vec<u64>) {
        let state = self.lock();
        (state.bandit.arms.to_vec(), state.pulls.clone())
    }

    /// The policy with the best mean return.
    pub fn greedy(&self) -> usize {
        self.lock().bandit.greedy()
    }

    fn lock(&self) -> MutexGuard<'_, BanditState> {
        // The state is valid after every statement, even if a thread panicked while it held the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
