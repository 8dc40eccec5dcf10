//! The parameters that the learner publishes to inference.

use agent::NamedTensors;
use agent::handover::Handover;
use agent::learner::{AVERAGED, Learner, ONLINE, ParameterSource};
use agent::moments::Moments;
use agent::nets::parameters::ParameterSet;
use agent::networks::NetworkParameters;
use agent::weights::{export, import, import_some};
use serde::{Deserialize, Serialize};

use crate::error::Result;

/// Parameters of one version, for actors and evaluators.
#[derive(Debug)]
pub struct PublishedParameters {
    /// The number of updates that made them.
    pub version: u64,
    /// For actors.
    pub online: NetworkParameters,
    /// For evaluators: the moving average.
    pub average: NetworkParameters,
    /// Running mean and deviation of the RND error.
    pub rnd_errors: Moments,
    /// The number of updates that made f, which may be older than the rest.
    pub embedding_version: u64,
    /// Reached when the learner's device has computed them.
    handover: Handover,
}

/// The network f, with the number of updates that made its parameters.
///
/// An episodic memory compares embeddings of one episode, which requires that f stays the same. So f is published less
/// often than the rest.
#[derive(Debug)]
pub struct EmbeddingNetwork {
    /// The number of updates.
    pub version: u64,
    parameters: ParameterSet,
}

impl EmbeddingNetwork {
    /// Adds f's parameters to the averaged weights, in place of newer ones.
    pub fn export(&self, weights: &mut NamedTensors) -> Result<()> {
        Ok(export(weights, AVERAGED, &self.parameters)?)
    }

    /// Restores f from averaged weights.
    pub fn restore(&mut self, weights: &NamedTensors, version: u64) -> Result<()> {
        import_some(weights, &mut [(AVERAGED, &mut self.parameters)])?;
        self.version = version;
        Ok(())
    }
}

/// The part of published parameters that is not a tensor.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PublishedScalars {
    version: u64,
    embedding_version: u64,
    rnd_errors: Moments,
}

impl PublishedParameters {
    /// Copies a learner's present parameters.
    pub fn of(learner: &Learner) -> Result<Self> {
        let (online, average) =
            (learner.parameters(ParameterSource::Online)?, learner.parameters(ParameterSource::Averaged)?);
        Self::new(learner.updates(), online, average, learner.rnd_errors.clone())
    }

    /// Parameters that `version` updates have made.
    pub fn new(
        version: u64,
        online: NetworkParameters,
        average: NetworkParameters,
        rnd_errors: Moments,
    ) -> Result<Self> {
        let handover = Handover::mark(online.agent.flat().device())?;
        Ok(Self { version, online, average, rnd_errors, embedding_version: version, handover })
    }

    /// Swaps the parameters of actors and evaluators.
    ///
    /// Evaluators then play with the online ones, for comparison.
    pub fn swap_online_and_average(&mut self) {
        std::mem::swap(&mut self.online, &mut self.average);
    }

    /// Whether the device has computed them, so that another stream can use them.
    pub fn is_complete(&self) -> Result<bool> {
        Ok(self.handover.is_reached()?)
    }

    /// Waits until they are computed.
    pub fn wait(&self) -> Result<()> {
        Ok(self.handover.wait()?)
    }

    /// Copies f.
    pub fn embedding_network(&self) -> Result<EmbeddingNetwork> {
        Ok(EmbeddingNetwork { version: self.embedding_version, parameters: self.online.action_prediction.duplicate()? })
    }

    /// Puts an older f in place of the newest.
    pub fn hold_embedding_network(&mut self, embedding: &EmbeddingNetwork) -> Result<()> {
        for parameters in [&mut self.online, &mut self.average] {
            parameters.action_prediction = embedding.parameters.duplicate()?;
        }
        self.embedding_version = embedding.version;
        self.handover = Handover::mark(embedding.parameters.flat().device())?;
        Ok(())
    }

    /// Copies the parameters, to act with the same ones until the learner publishes again.
    pub fn snapshot(&self) -> Result<(NamedTensors, PublishedScalars)> {
        let mut tensors = NamedTensors::new();
        self.online.export(&mut tensors, ONLINE)?;
        self.average.export(&mut tensors, AVERAGED)?;
        let (version, embedding_version) = (self.version, self.embedding_version);
        Ok((tensors, PublishedScalars { version, embedding_version, rnd_errors: self.rnd_errors.clone() }))
    }

    /// Restores what [`snapshot`](Self::snapshot) returned.
    pub fn restore(&mut self, tensors: &NamedTensors, scalars: PublishedScalars) -> Result<()> {
        let PublishedScalars { version, embedding_version, rnd_errors } = scalars;
        let online = self.online.sets_mut().map(|set| (ONLINE, set));
        let average = self.average.sets_mut().map(|set| (AVERAGED, set));
        import(tensors, &mut online.into_iter().chain(average).collect::<Vec<_>>())?;
        (self.version, self.embedding_version, self.rnd_errors) = (version, embedding_version, rnd_errors);
        self.handover = Handover::mark(self.online.agent.flat().device())?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use agent::Random;
    use agent::{ObservationKind, ObservationSpec, random_batch};
    use rand::SeedableRng;
    use tch::{Device, Tensor};

    use super::*;
    use crate::config::Sources;

    #[test]
    fn evaluators_can_use_the_online_parameters() {
        let config = Sources { preset: Some("tiny".to_owned()), file: None, set: Vec::new() }.load().unwrap().config;
        let observation = ObservationSpec::array(vec![8, 8], ObservationKind::U8);
        let mut learner = Learner::new(&config.agent, &observation, 3, 1, Device::Cpu).unwrap();
        let batch = random_batch(&learner.networks, 20, &[20, 5], &mut Random::seed_from_u64(1));
        learner.step(&batch).unwrap();
        let copies = |published: &PublishedParameters| {
            [&published.online, &published.average].map(|parameters| parameters.agent.flat().copy())
        };
        let mut published = PublishedParameters::of(&learner).unwrap();
        let [online, average]: [Tensor; 2] = copies(&published);
        assert_ne!(online, average);
        published.swap_online_and_average();
        assert_eq!(copies(&published), [average, online]);
    }
}
