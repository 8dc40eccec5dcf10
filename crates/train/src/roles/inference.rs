//! The acting networks of both roles, and every environment's recurrent state.

use agent::ObservationSpec;
use agent::acting::{ActingNetwork, ActingOutput, ObservationRows, RecurrentStates};
use agent::intrinsic::multiplier_of_error;
use agent::moments::Moments;
use serde::{Deserialize, Serialize};
use tch::Device;

use crate::config::Config;
use crate::error::Result;
use crate::roles::messages::{ActRequest, ActRequests, Decision, Role};
use crate::roles::published_parameters::PublishedParameters;

/// Answers requests: the networks themselves, or a connection to them.
pub trait Decide {
    /// Returns one decision per request, in order. On success, the caller gets the requests' memory back.
    fn decide(&mut self, requests: &mut ActRequests) -> Result<Vec<Decision>>;
}

/// Networks for both roles.
#[derive(Debug)]
pub struct Inference {
    online: ActingNetwork,
    average: ActingNetwork,
    states: RecurrentStates,
    actors: usize,
    version: u64,
    /// Whether greedy actions follow the policies, and not the values.
    by_policy: bool,
    /// Of the actors' parameters and of the evaluators'.
    rnd_errors: [Moments; 2],
    rnd_scale: f64,
    rnd_clip: f64,
}

/// Number of environments per role. The actors' slots come first.
#[derive(Clone, Copy, Debug)]
pub struct RoleSizes {
    /// Environments of the online network.
    pub actors: usize,
    /// Environments of the averaged network.
    pub evaluators: usize,
    /// Environments of the online network on other machines; their slots come last.
    pub remote: usize,
}

/// The recurrent state of every actor environment, as a checkpoint keeps it.
#[derive(Serialize, Deserialize)]
pub struct RecurrentSnapshot(Vec<Vec<f32>>);

impl Inference {
    /// Networks for this many environments, with parameters from the learner.
    pub fn new(
        config: &Config,
        observation: &ObservationSpec,
        actions: usize,
        roles: RoleSizes,
        device: Device,
        published: &PublishedParameters,
    ) -> Result<Self> {
        let Config { agent, intrinsic, .. } = config;
        let online = ActingNetwork::new(agent, observation, actions, device)?;
        let average = ActingNetwork::new(agent, observation, actions, device)?;
        let RoleSizes { actors, evaluators, remote } = roles;
        let states = RecurrentStates::new(&online.networks, actors + evaluators + remote, device)?;
        let mut inference = Self {
            online,
            average,
            states,
            actors,
            version: 0,
            by_policy: agent.acts_by_policy(),
            rnd_errors: [published.rnd_errors.clone(), published.rnd_errors.clone()],
            rnd_scale: intrinsic.rnd_scale,
            rnd_clip: intrinsic.rnd_clip,
        };
        inference.refresh(published)?;
        inference.refresh_evaluators(published)?;
        inference.online.prepare(actors + remote, &inference.states)?;
        inference.average.prepare(evaluators, &inference.states)?;
        Ok(inference)
    }

    /// Length of f(x).
    pub fn embedding_length(&self) -> usize {
        self.average.networks.embedding_length
    }

    /// Memory for the observations of actors, in the order of their slots.
    ///
    /// `environments` has each actor's number of environments.
    pub fn observation_rows(&self, environments: &[usize]) -> Result<Vec<ObservationRows>> {
        Ok(self.online.observation_rows(environments)?)
    }

    /// Takes over newer parameters for actors, once the learner's device has finished them.
    pub fn refresh(&mut self, published: &PublishedParameters) -> Result<()> {
        published.wait()?;
        self.online.refresh(&published.online)?;
        self.rnd_errors[Role::Actor as usize] = published.rnd_errors.clone();
        self.version = published.version;
        Ok(())
    }

    /// Takes over newer parameters for evaluators, once the learner's device has finished them.
    pub fn refresh_evaluators(&mut self, published: &PublishedParameters) -> Result<()> {
        published.wait()?;
        self.average.refresh(&published.average)?;
        self.rnd_errors[Role::Evaluator as usize] = published.rnd_errors.clone();
        Ok(())
    }

    /// Returns the recurrent state of every actor environment.
    pub fn snapshot(&self) -> Result<RecurrentSnapshot> {
        let states = (0..self.actors).map(|slot| self.states.read(slot));
        Ok(RecurrentSnapshot(states.collect::<agent::Result<_>>()?))
    }

    /// Continues from saved recurrent states.
    pub fn restore(&mut self, saved: &RecurrentSnapshot) -> Result<()> {
        // Remote environments come last; there may be fewer of them than before.
        for (slot, state) in saved.0.iter().enumerate().take(self.states.environments()) {
            self.states.write(slot, state)?;
        }
        Ok(())
    }

    /// Sends an actor's observations to the device ahead of the decision. The rest is sent with it.
    pub fn send(&mut self, requests: &ActRequests) -> Result<()> {
        for (role, network) in [(Role::Actor, &mut self.online), (Role::Evaluator, &mut self.average)] {
            let of_role = requests.requests.iter().filter(|request| request.role == role);
            let observations = of_role.map(|request| Ok((request.slot, requests.observation(request)?)));
            network.send(&observations.collect::<Result<Vec<_>>>()?, &self.states)?;
        }
        Ok(())
    }

    /// Returns one decision per request of several actors, in order.
    pub fn decide_together(&mut self, actors: &[&ActRequests]) -> Result<Vec<Decision>> {
        let requests: Vec<(&ActRequests, &ActRequest)> =
            actors.iter().flat_map(|actor| actor.requests.iter().map(move |request| (*actor, request))).collect();
        let mut decisions: Vec<Option<Decision>> = vec![None; requests.len()];
        // An environment whose episode ended has two requests: its last observation goes first, with the old state.
        for last in [true, false] {
            let [actors, evaluators] = [Role::Actor, Role::Evaluator].map(|role| {
                let matches = |i: &usize| {
                    let (_, request) = requests[*i];
                    request.role == role && request.last_observation.is_some() == last
                };
                let mut chosen: Vec<usize> = (0..requests.len()).filter(matches).collect();
                // In the order of memory, whatever the order of arrival, so that neighbours travel together.
                chosen.sort_by_key(|&i| requests[i].1.slot);
                chosen
            });
            let rows = |chosen: &[usize]| {
                chosen.iter().map(|&i| requests[i].0.acting_row(requests[i].1)).collect::<Result<Vec<_>>>()
            };
            // Both networks start before either is waited for.
            let acting = self.online.begin(&rows(&actors)?, &mut self.states)?;
            let evaluating = self.average.begin(&rows(&evaluators)?, &mut self.states)?;
            for (role, chosen, output) in
                [(Role::Actor, actors, acting.finish()?), (Role::Evaluator, evaluators, evaluating.finish()?)]
            {
                for (i, decision) in chosen.into_iter().zip(self.decisions(role, output)) {
                    decisions[i] = Some(decision);
                }
            }
        }
        Ok(decisions.into_iter().flatten().collect())
    }

    fn decisions(&self, role: Role, output: ActingOutput) -> Vec<Decision> {
        let rnd_errors = &self.rnd_errors[role as usize];
        let rows = output.rnd_error.len().max(1);
        let (actions, embedding) = (output.q.len() / rows, output.embedding.len() / rows);
        let part = |values: &[f32], i: usize, length: usize| values[i * length..(i + 1) * length].to_vec();
        let decision = |(i, state): (usize, &Option<Vec<f32>>)| {
            let error = f64::from(output.rnd_error[i]);
            Decision {
                preferences: part(output.preferences(self.by_policy), i, actions),
                q: part(&output.q, i, actions),
                embedding: part(&output.embedding, i, embedding),
                rnd: multiplier_of_error(error, rnd_errors, self.rnd_scale, self.rnd_clip) as f32,
                state: state.clone(),
                version: self.version,
            }
        };
        output.state_before.iter().enumerate().map(decision).collect()
    }
}

impl Decide for Inference {
    fn decide(&mut self, requests: &mut ActRequests) -> Result<Vec<Decision>> {
        self.decide_together(&[requests])
    }
}
