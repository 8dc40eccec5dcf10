//! The agent of a run as one of its checkpoints has it, for playing.

use agent::intrinsic::DistanceMean;
use agent::learner::{AVERAGED, ONLINE};
use agent::weights::import_some;
use agent::{NamedTensors, NetworkParameters, Networks, ObservationSpec};
use tch::Device;

use crate::config::Config;
use crate::error::Result;
use crate::roles::bandit::SharedBandit;
use crate::roles::published_parameters::PublishedParameters;
use crate::run::checkpoint::Checkpoint;
use crate::run::checkpoint::contents::{self, AgentScalars};

/// Everything that playing needs.
#[derive(Debug)]
pub struct TrainedAgent {
    /// The parameters. Those of a best checkpoint, which keeps the average only, are the average for both roles.
    pub published: PublishedParameters,
    /// Whether the online parameters were saved.
    pub has_online: bool,
    /// The bandit, which knows the best policy.
    pub bandit: SharedBandit,
    /// d²_m of the f that acted. Without it, the first episodes would look newer or older than any in training.
    pub distances: DistanceMean,
}

impl TrainedAgent {
    /// Reads the agent from a checkpoint.
    pub fn read(
        checkpoint: &Checkpoint,
        config: &Config,
        observation: &ObservationSpec,
        actions: usize,
        device: Device,
    ) -> Result<Self> {
        let weights = contents::weights(checkpoint)?;
        let AgentScalars { updates, embedding_version, rnd_errors, distances, bandit, .. } =
            contents::agent(checkpoint)?;
        let networks = Networks::new(&config.agent, observation, actions)?;
        let has_online = weights.keys().any(|name| name.starts_with(ONLINE));
        let average = load(&weights, AVERAGED, &networks, device)?;
        let online = load(&weights, if has_online { ONLINE } else { AVERAGED }, &networks, device)?;
        let mut published = PublishedParameters::new(updates, online, average, rnd_errors)?;
        let mut embedding = published.embedding_network()?;
        embedding.restore(&weights, embedding_version)?;
        published.hold_embedding_network(&embedding)?;
        Ok(Self { published, has_online, bandit: SharedBandit::resume(bandit), distances: distances.mean })
    }
}

fn load(weights: &NamedTensors, prefix: &str, networks: &Networks, device: Device) -> Result<NetworkParameters> {
    let mut parameters = NetworkParameters::zeros(networks, device)?;
    import_some(weights, &mut parameters.sets_mut().map(|set| (prefix, set)))?;
    Ok(parameters)
}
