//! What the learner hands to those who act.

use agent::TensorFile;
use agent::handover::Handover;
use agent::learner::{Learner, ParameterSource};
use agent::moments::Moments;
use agent::nets::parameters::ParameterSet;
use agent::networks::NetworkParameters;
use agent::weights::{export, import};
use serde::{Deserialize, Serialize};

use crate::error::{Result, TrainError};

const ONLINE: &str = "online.";
const AVERAGE: &str = "average.";
/// Under which the numbers beside the tensors are kept.
const METADATA: &str = "published";
/// Under which the number beside the tensors of f alone is kept.
const EMBEDDING: &str = "embedding_version";

/// Parameters of one version, for both roles.
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
    /// Until when the learner's device is still at work on them.
    handover: Handover,
}

/// The parameters of f, and the number of updates that made them.
///
/// An episodic memory compares embeddings of one episode, which it can only while f holds still. So f is handed over less
/// often than the rest.
#[derive(Debug)]
pub struct Embedding {
    /// The number of updates.
    pub version: u64,
    parameters: ParameterSet,
}

impl Embedding {
    /// A copy, to act with the same f when a run goes on.
    pub fn save(&self) -> Result<TensorFile> {
        let mut file = TensorFile::default();
        self.export_to(&mut file)?;
        file.metadata.insert(EMBEDDING.to_owned(), self.version.to_string());
        Ok(file)
    }

    /// Puts f's parameters into a file of all networks' parameters, in the place of others.
    pub fn export_to(&self, file: &mut TensorFile) -> agent::Result<()> {
        export(file, "", &self.parameters)
    }

    /// Takes over what [`save`](Self::save) gave.
    pub fn restore(&mut self, file: &TensorFile) -> Result<()> {
        let version = file.metadata.get(EMBEDDING).and_then(|version| version.parse().ok());
        let reason = || "it does not say how many updates made it".to_owned();
        let version = version.ok_or_else(|| TrainError::Part { part: EMBEDDING, reason: reason() })?;
        import(file, &mut [("", &mut self.parameters)])?;
        self.version = version;
        Ok(())
    }
}

#[derive(Serialize, Deserialize)]
struct PublishedMetadata {
    version: u64,
    embedding_version: u64,
    rnd_errors: Moments,
}

impl PublishedParameters {
    /// What a learner has learned so far.
    pub fn of(learner: &Learner) -> Result<Self> {
        let (online, average) =
            (learner.parameters(ParameterSource::Online)?, learner.parameters(ParameterSource::Ema)?);
        Self::new(learner.updates(), online, average, learner.rnd_errors().clone())
    }

    /// Parameters that so many updates have made.
    pub fn new(
        version: u64,
        online: NetworkParameters,
        average: NetworkParameters,
        rnd_errors: Moments,
    ) -> Result<Self> {
        let handover = Handover::mark(online.agent.flat().device())?;
        Ok(Self { version, online, average, rnd_errors, embedding_version: version, handover })
    }

    /// Has evaluators play with the online parameters, for comparison.
    pub fn evaluate_online(&mut self) {
        std::mem::swap(&mut self.online, &mut self.average);
    }

    /// Whether the device that computed them is done, so that another stream can go on with them.
    pub fn is_complete(&self) -> Result<bool> {
        Ok(self.handover.is_reached()?)
    }

    /// Waits until it is.
    pub fn wait(&self) -> Result<()> {
        Ok(self.handover.wait()?)
    }

    /// A copy of f.
    pub fn embedding(&self) -> Result<Embedding> {
        Ok(Embedding { version: self.embedding_version, parameters: self.online.action_prediction.duplicate()? })
    }

    /// Puts an older f in place of the newest.
    pub fn keep_embedding(&mut self, embedding: &Embedding) -> Result<()> {
        for parameters in [&mut self.online, &mut self.average] {
            parameters.action_prediction = embedding.parameters.duplicate()?;
        }
        self.embedding_version = embedding.version;
        self.handover = Handover::mark(embedding.parameters.flat().device())?;
        Ok(())
    }

    /// A copy, to act on with the same parameters until the learner publishes again.
    pub fn save(&self) -> Result<TensorFile> {
        let mut file = TensorFile::default();
        for (prefix, parameters) in [(ONLINE, &self.online), (AVERAGE, &self.average)] {
            for set in parameters.sets() {
                export(&mut file, prefix, set)?;
            }
        }
        let (version, embedding_version) = (self.version, self.embedding_version);
        let numbers = PublishedMetadata { version, embedding_version, rnd_errors: self.rnd_errors.clone() };
        let numbers = serde_json::to_string(&numbers).map_err(|cause| unusable(cause.to_string()))?;
        file.metadata.insert(METADATA.to_owned(), numbers);
        Ok(file)
    }

    /// Takes over what [`save`](Self::save) gave.
    pub fn restore(&mut self, file: &TensorFile) -> Result<()> {
        let numbers = file.metadata.get(METADATA).ok_or_else(|| unusable("it has no version".to_owned()))?;
        let PublishedMetadata { version, embedding_version, rnd_errors } =
            serde_json::from_str(numbers).map_err(|cause| unusable(cause.to_string()))?;
        let online = self.online.sets_mut().map(|set| (ONLINE, set));
        let average = self.average.sets_mut().map(|set| (AVERAGE, set));
        import(file, &mut online.into_iter().chain(average).collect::<Vec<_>>())?;
        (self.version, self.embedding_version, self.rnd_errors) = (version, embedding_version, rnd_errors);
        self.handover = Handover::mark(self.online.agent.flat().device())?;
        Ok(())
    }
}

fn unusable(reason: String) -> TrainError {
    TrainError::Part { part: METADATA, reason }
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
    fn evaluators_can_be_given_the_online_parameters() {
        let config = Sources { preset: Some("tiny".to_owned()), file: None, set: Vec::new() }.load().unwrap().config;
        let observation = ObservationSpec { shape: vec![8, 8], kind: ObservationKind::U8 };
        let mut learner = Learner::new(&config.agent, &observation, 3, 1, Device::Cpu).unwrap();
        let batch = random_batch(learner.networks(), 20, &[20, 5], &mut Random::seed_from_u64(1));
        learner.step(&batch).unwrap();
        let copies = |published: &PublishedParameters| {
            [&published.online, &published.average].map(|parameters| parameters.agent.flat().copy())
        };
        let mut published = PublishedParameters::of(&learner).unwrap();
        let [online, average]: [Tensor; 2] = copies(&published);
        assert_ne!(online, average);
        published.evaluate_online();
        assert_eq!(copies(&published), [average, online]);
    }
}
