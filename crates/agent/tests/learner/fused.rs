//! Which pieces the fused GPU path serves, and which fall back to libtorch's operations. It needs no GPU: the same
//! functions decide on one.

use agent::config::{HeldMask, PolicyInput, QHeads, TorsoKind, ValueNetworks};
use agent::{AgentConfig, Networks, ObservationKind, ObservationPart, ObservationSpec};

const AGENT57: &str = include_str!("../../../../configs/agent57.toml");
const NGU: &str = include_str!("../../../../configs/ngu.toml");
const QUICK: &str = include_str!("../../../../configs/quick.toml");
const R2D2: &str = include_str!("../../../../configs/r2d2.toml");

/// Why each network's torso falls back, for images of bytes of this shape.
fn torsos(config: &AgentConfig, shape: &[usize]) -> Vec<Option<String>> {
    torsos_of(config, &ObservationSpec::array(shape.to_vec(), ObservationKind::U8))
}

fn torsos_of(config: &AgentConfig, observation: &ObservationSpec) -> Vec<Option<String>> {
    Networks::new(config, observation, 18).unwrap().agent.unfused_torsos()
}

fn preset(text: &str) -> AgentConfig {
    config_schema::read_table(text, "agent").unwrap()
}

/// An agent's algorithm on the paper's network.
fn in_the_papers_size(text: &str) -> AgentConfig {
    let (mut config, paper) = (preset(text), AgentConfig::default().network);
    config.network.torso = paper.torso;
    (config.network.core, config.network.features) = (paper.core, paper.features);
    config
}

#[test]
fn every_agent_is_fused_in_the_papers_size_and_quick_in_its_own() {
    for (text, networks) in [("", 1), (R2D2, 1), (NGU, 1), (AGENT57, 2)] {
        assert_eq!(torsos(&in_the_papers_size(text), &[210, 160]), vec![None; networks]);
    }
    assert_eq!(torsos(&preset(QUICK), &[105, 80]), [None]);
    let mut config = AgentConfig::default();
    config.network.policy_input = PolicyInput::OneHot;
    assert_eq!(torsos(&config, &[210, 160]), [None]);
    (config.loss.q_heads, config.network.value_networks) = (QHeads::Separate, ValueNetworks::Separate);
    assert_eq!(torsos(&config, &[210, 160]), [None, None]);
}

#[test]
fn images_of_several_channels_are_fused() {
    let paper = AgentConfig::default();
    for shape in [&[84, 84][..], &[84, 84, 3], &[84, 84, 4], &[210, 160, 3], &[210, 160, 4], &[210, 160, 12]] {
        assert_eq!(torsos(&paper, shape), [None], "{shape:?}");
    }
    assert_eq!(torsos(&preset(QUICK), &[105, 80, 4]), [None]);
}

#[test]
fn other_torsos_and_images_fall_back() {
    let plain = Some("it is not a normalizer-free torso".to_owned());
    assert_eq!(torsos(&preset(R2D2), &[84, 84, 4]), vec![plain.clone(); 1]);
    assert_eq!(torsos(&preset(NGU), &[84, 84]), vec![plain.clone(); 1]);
    assert_eq!(torsos(&preset(AGENT57), &[84, 84]), vec![plain.clone(); 2]);
    let paper = AgentConfig::default();
    let odd = Some("images of 83x83x3 have rows of 249 bytes, which is not a multiple of 4".to_owned());
    assert_eq!(torsos(&paper, &[83, 83, 3]), [odd]);
    assert_eq!(torsos(&paper, &[84, 84, 20]), [Some("images of 84x84x20 do not fit the stem's kernel".to_owned())]);
    let part = |name: &str, shape: &[usize], kind| ObservationPart { name: name.into(), shape: shape.into(), kind };
    let (image, floats) = ([84, 84, 3], Some("images are not bytes".to_owned()));
    assert_eq!(torsos_of(&paper, &ObservationSpec::array(image.to_vec(), ObservationKind::F32)), [floats]);
    let parts = vec![part("camera", &image, ObservationKind::U8), part("place", &[3], ObservationKind::F32)];
    assert_eq!(torsos_of(&paper, &ObservationSpec { parts }), [Some("observations have several parts".to_owned())]);
    let mut resnet = AgentConfig::default();
    resnet.network.torso.kind = TorsoKind::Resnet;
    assert_eq!(torsos(&resnet, &[210, 160]), [plain]);
}

#[test]
fn acting_is_captured_unless_actors_hold_masks() {
    for text in ["", R2D2, NGU, AGENT57] {
        assert!(preset(text).captures_acting());
    }
    let mut config = AgentConfig::default();
    for held in [HeldMask::Episode, HeldMask::Steps] {
        config.network.torso.stochastic_depth.acting = held;
        assert!(!config.captures_acting());
    }
}
