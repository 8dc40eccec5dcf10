//! The learner's memory over many updates. Alone in its process, so that nothing else moves the numbers.

#![allow(clippy::unwrap_used)]

use agent::Random;
use agent::{AgentConfig, Learner, ObservationKind, ObservationSpec, random_batch};
use rand::SeedableRng;
use tch::Device;

fn resident_bytes() -> u64 {
    let pages: u64 = std::fs::read_to_string("/proc/self/statm").unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

/// 2 000 updates with `MEME_TEST_ALL`, else 120. A tensor leaked in every update would be 0.5 MB or more each time.
#[test]
fn updates_leak_nothing() {
    tch::set_num_threads(1);
    let updates = if std::env::var_os("MEME_TEST_ALL").is_some_and(|value| value == "1") { 2000 } else { 120 };
    let network = config_schema::read_table(include_str!("../../../configs/tiny.toml"), "agent.network").unwrap();
    let config = AgentConfig { network, ..AgentConfig::default() };
    let spec = ObservationSpec::array(vec![10, 10], ObservationKind::U8);
    let mut learner = Learner::new(&config, &spec, 3, 0, Device::Cpu).unwrap();
    let batch = random_batch(&learner.networks, 20, &[20; 8], &mut Random::seed_from_u64(0));
    for _ in 0..40 {
        learner.step(&batch).unwrap();
    }
    let before = resident_bytes();
    for _ in 0..updates {
        learner.step(&batch).unwrap();
    }
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 16 << 20, "{grown} bytes more after {updates} updates");
}
