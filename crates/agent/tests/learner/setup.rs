//! Small agents and batches for the tests.

use agent::Random;
use agent::batch::{BatchShape, BatchTensors};
use agent::config::{ConvConfig, NetworkConfig, StageConfig, StemConfig};
use agent::loader::LoadedBatch;
use agent::{
    AgentConfig, Learner, Networks, ObservationKind, ObservationPart, ObservationSpec, SequenceBatch, random_batch,
};
use rand::SeedableRng;
use tch::Device;

pub const ACTIONS: usize = 4;
pub const TRACE: usize = 9;
/// Full, cut off, ended, and the shortest that can be.
pub const LENGTHS: [usize; 5] = [9, 7, 5, 3, 2];

pub const QUICK: &str = include_str!("../../../../configs/quick.toml");
pub const TINY: &str = include_str!("../../../../configs/tiny.toml");

/// Returns the network of a preset.
pub fn preset(text: &str) -> NetworkConfig {
    config_schema::read_table(text, "agent.network").unwrap()
}

/// A network small enough to run many times, on one thread: tests run beside one another, and threads of libtorch that
/// have to wait for a core spin meanwhile.
pub fn config() -> AgentConfig {
    tch::set_num_threads(1);
    let mut config = AgentConfig { network: preset(TINY), ..AgentConfig::default() };
    let network = &mut config.network;
    network.torso.stem = StemConfig { channels: 4, kernel: 3, stride: 2 };
    network.torso.stages =
        vec![StageConfig { blocks: 2, channels: 4, stride: 1 }, StageConfig { blocks: 1, channels: 6, stride: 2 }];
    network.torso.convolutions = vec![ConvConfig { channels: 4, kernel: 3, stride: 2, padding: 1 }];
    network.torso.linear = 12;
    network.torso.hidden = vec![12];
    network.features = 6;
    network.core = 10;
    network.head_hidden = 12;
    network.intrinsic.convolutions = vec![ConvConfig { channels: 4, kernel: 3, stride: 2, padding: 1 }];
    network.intrinsic.embedding = 8;
    network.intrinsic.action_hidden = 8;
    network.intrinsic.rnd_output = 8;
    config.policies.count = 4;
    config
}

pub fn image() -> ObservationSpec {
    ObservationSpec::array(vec![7, 5], ObservationKind::U8)
}

pub fn flat() -> ObservationSpec {
    ObservationSpec::array(vec![6], ObservationKind::F32)
}

/// Two images, of bytes and of floats, and a vector, with padding between them.
pub fn parts() -> ObservationSpec {
    let part = |name: &str, shape: &[usize], kind| ObservationPart { name: name.into(), shape: shape.into(), kind };
    ObservationSpec {
        parts: vec![
            part("camera", &[7, 5, 1], ObservationKind::U8),
            part("map", &[6, 4], ObservationKind::F32),
            part("place.0", &[3], ObservationKind::F32),
        ],
    }
}

pub fn learner(config: &AgentConfig) -> Learner {
    Learner::new(config, &image(), ACTIONS, 7, Device::Cpu).unwrap()
}

pub fn batch(learner: &Learner, seed: u64) -> SequenceBatch {
    random_batch(&learner.networks, TRACE, &LENGTHS, &mut Random::seed_from_u64(seed))
}

pub fn loaded(learner: &Learner, batch: &SequenceBatch) -> LoadedBatch {
    let loader = learner.loader().unwrap();
    let mut memory = loader.memory(batch.sequences.len(), batch.trace).unwrap();
    memory.bytes().unwrap().copy_from_slice(&batch.observations);
    loader.load(batch, &mut memory).unwrap()
}

/// A batch as the networks and the loss get it.
pub fn tensors(networks: &Networks, batch: &SequenceBatch) -> BatchTensors {
    let shape = BatchShape {
        actions: networks.actions,
        policies: networks.policies,
        embedding: networks.embedding_length,
        state: networks.state_length(),
        intrinsic_steps: 5,
        burn_in: 0,
    };
    BatchTensors::upload(batch, &batch.observations, networks.input(), &shape, Device::Cpu).unwrap()
}

/// Random play for the loss, whose heads' outputs are then made up from the same generator.
pub struct Play {
    pub config: AgentConfig,
    pub batch: SequenceBatch,
    pub tensors: BatchTensors,
    pub random: Random,
}

/// Random play for a loss whose configuration is edited.
pub fn play(edit: impl Fn(&mut AgentConfig), seed: u64) -> Play {
    let mut config = config();
    // Narrow enough to mask some steps.
    config.loss.trust_region_radius = 0.5;
    edit(&mut config);
    let networks = Networks::new(&config, &image(), ACTIONS).unwrap();
    let mut random = Random::seed_from_u64(seed);
    let batch = random_batch(&networks, TRACE, &LENGTHS, &mut random);
    let tensors = tensors(&networks, &batch);
    Play { config, batch, tensors, random }
}
