//! Agents, batches and comparisons.

use agent::Random;
use agent::config::{StageConfig, StemConfig};
use agent::{AgentConfig, ObservationKind, ObservationSpec};
use rand::RngExt;
use rand_distr::StandardNormal;
use tch::{Device, Kind, Tensor};

pub const GPU: Device = Device::Cuda(0);

/// The paper's agent, with a smaller core and smaller heads so that the CPU keeps up.
pub fn config() -> AgentConfig {
    let mut config = AgentConfig::default();
    config.network.core = 256;
    config.network.head_hidden = 128;
    config
}

/// The agent with the network of the `tiny` preset.
pub fn tiny() -> AgentConfig {
    with_network(include_str!("../../../../configs/tiny.toml"))
}

/// The agent with the network of the `quick` preset.
pub fn quick() -> AgentConfig {
    with_network(include_str!("../../../../configs/quick.toml"))
}

fn with_network(preset: &str) -> AgentConfig {
    let network = config_schema::read_table(preset, "agent.network").unwrap();
    AgentConfig { network, ..AgentConfig::default() }
}

/// Widths and a stem that the paper's network does not have.
pub fn narrow() -> AgentConfig {
    let mut config = config();
    config.network.torso.stem = StemConfig { channels: 32, kernel: 7, stride: 4 };
    config.network.torso.stages = vec![
        StageConfig { blocks: 1, channels: 32, stride: 1 },
        StageConfig { blocks: 2, channels: 16, stride: 2 },
        StageConfig { blocks: 1, channels: 256, stride: 2 },
    ];
    config
}

pub fn screen() -> ObservationSpec {
    ObservationSpec::array(vec![210, 160], ObservationKind::U8)
}

/// ‖a - b‖ / ‖b‖.
pub fn relative(found: &Tensor, wanted: &Tensor) -> f64 {
    let host = |x: &Tensor| x.to_device(Device::Cpu).to_kind(Kind::Double).reshape([-1]);
    let (found, wanted) = (host(found), host(wanted));
    let norm = |x: &Tensor| x.norm().double_value(&[]);
    norm(&(&found - &wanted)) / norm(&wanted).max(1e-30)
}

pub fn normal(size: &[i64], random: &mut Random) -> Tensor {
    let count = size.iter().product::<i64>() as usize;
    let values: Vec<f32> = (0..count).map(|_| random.sample::<f64, _>(StandardNormal) as f32).collect();
    Tensor::from_slice(&values).view(size)
}
