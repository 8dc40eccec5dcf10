//! Sizes, shapes and names of the networks.

use agent::Random;
use agent::config::{NetworkConfig, TorsoKind};
use agent::{AgentConfig, Learner, Networks, ObservationKind, ObservationSpec, StepReport, random_batch};
use rand::SeedableRng;
use replay::SequenceBatch;
use tch::Device;

use crate::setup::{self, ACTIONS, QUICK, TINY, preset};

fn image(height: usize, width: usize) -> ObservationSpec {
    ObservationSpec::array(vec![height, width], ObservationKind::U8)
}

#[test]
fn paper_network_has_41_5_million_parameters() {
    let networks = Networks::new(&AgentConfig::default(), &image(210, 160), 18).unwrap();
    let parameters = networks.agent.layout.elements();
    assert!((41_450_000..41_600_000).contains(&parameters), "{parameters}");
    assert_eq!(networks.state_length(), 2048);
    let shape = |name: &str| {
        let layout = &networks.agent.layout;
        layout.parameters().iter().find(|p| p.name == name).unwrap_or_else(|| panic!("no {name}")).shape.clone()
    };
    // 7x5 pixels of 64 channels and 256 features into the core; the core's output besides into the heads.
    assert_eq!(shape("lstm.weight_ih"), [4096, 2496]);
    assert_eq!(shape("heads.policy.hidden1.weight"), [1024, 3520]);
    assert_eq!(shape("heads.intrinsic.advantage.output.weight"), [288, 1024]);
    assert_eq!(shape("torso.stage1.block0.shortcut.weight"), [128, 64, 3, 3]);
}

#[test]
fn quick_network_costs_about_a_fifth() {
    let flops = |network, image| {
        let config = AgentConfig { network, ..AgentConfig::default() };
        Networks::new(&config, &image, 18).unwrap().agent.layout.flops()
    };
    // The paper's forward pass of one frame: 2.07 GFLOP (84.7 TFLOP for a step of 64 x 160 frames).
    let paper = flops(NetworkConfig::default(), image(210, 160));
    assert!((2.0e9..2.15e9).contains(&paper), "{paper}");
    let share = flops(preset(QUICK), image(105, 80)) / paper;
    assert!((0.19..0.22).contains(&share), "{share}");
}

#[test]
fn every_torso_takes_images_of_any_size() {
    for kind in [TorsoKind::Nfnet, TorsoKind::Resnet, TorsoKind::Dqn] {
        for shape in [vec![1, 1], vec![5, 10], vec![24, 24], vec![11, 3, 3], vec![60, 43]] {
            let mut config = setup::config();
            config.network.torso.kind = kind;
            let spec = ObservationSpec::array(shape, ObservationKind::U8);
            let mut learner = Learner::new(&config, &spec, 3, 0, Device::Cpu).unwrap();
            let batch = random_batch(&learner.networks, 4, &[4, 2], &mut Random::seed_from_u64(0));
            learner.step(&batch).unwrap_or_else(|e| panic!("{kind:?} {spec:?}: {e}"));
        }
    }
    // The paper's stages, too, come down to one pixel and no further.
    let mut config = AgentConfig::default();
    config.network.intrinsic = preset(TINY).intrinsic;
    assert!(Networks::new(&config, &image(3, 2), 3).is_ok());
}

#[test]
fn every_part_of_an_observation_gets_layers_of_its_own() {
    for (kind, last) in [(TorsoKind::Nfnet, "stage1.block0.skip_gain"), (TorsoKind::Dqn, "linear.bias")] {
        let mut config = setup::config();
        config.network.torso.kind = kind;
        let mut learner = Learner::new(&config, &setup::parts(), 3, 0, Device::Cpu).unwrap();
        let networks = &learner.networks;
        let layouts = [&networks.agent.layout, &networks.action_prediction.layout, &networks.rnd.target.layout];
        let names: Vec<&str> = layouts.iter().flat_map(|l| l.parameters()).map(|p| p.name.as_str()).collect();
        for image in ["camera", "map"] {
            assert!(names.contains(&&*format!("torso.{image}.{last}")), "{names:?}");
            assert!(names.contains(&&*format!("action_prediction.{image}.conv1.weight")), "{names:?}");
            assert!(names.contains(&&*format!("rnd.target.{image}.conv1.weight")), "{names:?}");
        }
        assert!(
            names.contains(&"torso.place.0.linear1.weight") && names.contains(&"rnd.target.place.0.linear1.weight")
        );
        // Both images drop the same blocks.
        assert_eq!(networks.agent.droppable_blocks(), if kind == TorsoKind::Nfnet { 3 } else { 0 });
        let batch = random_batch(&learner.networks, 5, &[5, 3], &mut Random::seed_from_u64(0));
        assert_intrinsic_losses_fall(&mut learner, &batch);
        // What replay returns past the end of a sequence may be anything; a float within it must be a number.
        let mut batch = batch;
        let bytes = setup::parts().bytes();
        batch.observations[8 * bytes..].fill(0xff);
        learner.step(&batch).unwrap();
        batch.observations[6 * bytes + 36 + 4..][..4].fill(0xff);
        let error = learner.step(&batch).unwrap_err().to_string();
        assert!(error.contains("sequence 1, observation 1, element 1"), "{error}");
    }
}

#[test]
fn flat_observations_get_linear_layers() {
    let config = setup::config();
    let mut learner = Learner::new(&config, &setup::flat(), 2, 0, Device::Cpu).unwrap();
    let names: Vec<&str> = learner.networks.agent.layout.parameters().iter().map(|p| p.name.as_str()).collect();
    let torso: Vec<&&str> = names.iter().filter(|name| name.starts_with("torso.")).collect();
    assert_eq!(torso, [&"torso.linear1.weight", &"torso.linear1.bias"]);
    let batch = random_batch(&learner.networks, 5, &[5, 3], &mut Random::seed_from_u64(0));
    assert_intrinsic_losses_fall(&mut learner, &batch);
}

/// Checks that f and RND learn from 30 updates on a batch.
fn assert_intrinsic_losses_fall(learner: &mut Learner, batch: &SequenceBatch) {
    let first = learner.step(batch).unwrap().losses;
    for _ in 0..30 {
        learner.step(batch).unwrap();
    }
    let last = learner.step(batch).unwrap().losses;
    assert!(last.action_prediction < first.action_prediction && last.rnd < first.rnd, "{first:?} {last:?}");
}

/// What each of a number of updates on one batch tells, in which every game ends; and the ε of what is distilled.
fn reports_on_a_fixed_batch(edit: impl Fn(&mut AgentConfig), updates: usize) -> (Vec<StepReport>, f64) {
    let mut config = setup::config();
    config.optimizer.learning_rate = 3e-3;
    config.intrinsic.action_prediction.learning_rate = 3e-3;
    config.copies.target_period = 20;
    config.network.torso.stochastic_depth.rate = 0.0;
    edit(&mut config);
    let mut learner = setup::learner(&config);
    let mut batch = setup::batch(&learner, 3);
    for (b, length) in setup::LENGTHS.into_iter().enumerate() {
        batch.steps.discount[b * (setup::TRACE + 1) + length - 1] = 0.0;
    }
    let reports = (0..updates).map(|_| learner.step(&batch).unwrap()).collect();
    (reports, config.loss.distillation_epsilon)
}

#[test]
fn a_fixed_batch_is_overfitted() {
    // Without bootstrapping it is plain regression on the rewards that came. The masks are off: a masked step has no
    // loss, so that a loss of steps that only became masked would look as small as that of steps that were learned.
    let regression = |config: &mut AgentConfig| {
        config.returns.kind = agent::config::ReturnKind::Peng;
        config.returns.lambda = 1.0;
        config.loss.td_normalisation = false;
        config.loss.trust_region = false;
        config.loss.kl_bound = 1e6;
    };
    let (reports, epsilon) = reports_on_a_fixed_batch(regression, 1000);
    let (first, last) = (&reports[0], &reports[reports.len() - 1]);
    let share = last.losses.td / first.losses.td;
    assert!(share < 0.01, "the TD loss is still {share} of {}", first.losses.td);
    // What is distilled is greedy but for ε: its own entropy is what no policy gets below.
    let other = epsilon / ACTIONS as f64;
    let greedy = 1.0 - epsilon + other;
    let floor = -(greedy * greedy.ln() + (ACTIONS - 1) as f64 * other * other.ln());
    // Only values of the actions that were taken are trained, so the greedy action of a step still changes at times, and
    // the policy has to follow.
    let above = |report: &StepReport| (report.losses.distillation - floor) / (first.losses.distillation - floor);
    let lately: Vec<f64> = reports[800..].iter().map(above).collect();
    let (least, mean) = (lately.iter().copied().fold(1.0, f64::min), lately.iter().sum::<f64>() / 200.0);
    assert!(least < 0.05 && mean < 0.3, "the distillation loss is still {least} to {mean} of what it was");
    assert!(last.policies.iter().all(|policy| policy.kl_share == 0.0 && policy.trust_region_share == 0.0));
    assert!(last.losses.action_prediction < 0.2 && last.action_prediction_accuracy == 1.0, "{:?}", last.losses);
    // The agent as it is chases its own values, and still comes down.
    let (reports, _) = reports_on_a_fixed_batch(|_| {}, 300);
    let error = |report: &StepReport| report.policies.iter().map(|policy| policy.td_error).sum::<f64>();
    let (first, last) = (error(&reports[0]), error(&reports[299]));
    assert!(last < 0.5 * first, "{last} from {first}");
}
