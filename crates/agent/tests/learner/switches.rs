//! Every switch changes what it should and nothing else.

use std::collections::{BTreeMap, BTreeSet};

use agent::Random;
use agent::config::{
    Bootstrap, DropSchedule, PolicyInput, QCombination, QHeads, ReturnKind, TorsoKind, TrainedPolicies, ValueNetworks,
};
use agent::loss::{AgentLoss, TdScale, TdStatistics, running_sigmas};
use agent::nets::heads::HeadOutputs;
use agent::{AgentConfig, Networks, SequenceBatch, random_batch};
use rand::{RngExt, SeedableRng};
use rand_distr::StandardNormal;
use tch::{Device, Kind, Tensor};

use crate::setup::{self, ACTIONS, LENGTHS, Play, TRACE};

/// Every quantity of the loss by name, with made-up outputs of the heads.
fn quantities(edit: impl Fn(&mut AgentConfig)) -> BTreeMap<&'static str, Vec<f32>> {
    let Play { config, tensors, mut random, .. } = setup::play(edit, 5);
    let n = config.policies.count;
    let mut head = |scale: f64| {
        let values: Vec<f32> = (0..LENGTHS.len() * TRACE * n * ACTIONS)
            .map(|_| (scale * random.sample::<f64, _>(StandardNormal)) as f32)
            .collect();
        Tensor::from_slice(&values).view([LENGTHS.len() as i64, TRACE as i64, n as i64, ACTIONS as i64])
    };
    let mut heads = || HeadOutputs {
        extrinsic: head(1.0),
        intrinsic: Some(head(1.0)),
        policy: Some(head(0.5)),
        combination: config.loss.q_combination,
    };
    let (mut online, mut target) = (heads(), heads());
    for outputs in [&mut online, &mut target] {
        if !config.loss.distillation {
            outputs.policy = None;
        }
        if config.loss.q_heads == QHeads::Single {
            outputs.intrinsic = None;
        }
    }
    let loss = AgentLoss::new(&config, Device::Cpu).unwrap();
    let scale = TdScale::new(n, 0.99, 0.01);
    let least: Vec<Tensor> = (0..loss.scales()).map(|_| running_sigmas(&scale, Device::Cpu).unwrap()).collect();
    let output = loss.evaluate(&online, &target, &tensors, &least).unwrap();
    let mut all = BTreeMap::new();
    let mut add = |name, x: &Tensor| {
        all.insert(name, Vec::<f32>::try_from(x.detach().to_kind(Kind::Float).reshape([-1])).unwrap());
    };
    add("q", &output.q);
    add("target policy", &output.target_policy);
    add("traces", &output.traces);
    add("td", &output.td);
    add("distillation", &output.distillation);
    add("total", &output.total);
    add("priorities", &output.priorities);
    let names = [
        ["value", "returns", "error", "normalised", "sigma", "keep", "step loss"],
        ["value 2", "returns 2", "error 2", "normalised 2", "sigma 2", "keep 2", "step loss 2"],
    ];
    for (head, names) in output.heads.iter().zip(names) {
        let td = &head.td;
        let sigma =
            Tensor::from_slice(&TdStatistics::new(&Vec::<f64>::try_from(td.statistics.reshape([-1])).unwrap()).sigma);
        let quantities = [&head.value, &head.returns, &td.error, &td.normalised, &sigma, &td.mask, &td.loss];
        names.into_iter().zip(quantities).for_each(|(name, x)| add(name, x));
    }
    if let Some(policy) = &output.policy {
        add("kl", &policy.kl);
        add("kl keep", &policy.mask);
        add("policy loss", &policy.loss);
    }
    all
}

/// Names of the quantities that differ, appear or vanish when the configuration is edited.
fn changed(edit: impl Fn(&mut AgentConfig)) -> BTreeSet<&'static str> {
    let (before, after) = (quantities(|_| {}), quantities(edit));
    before.keys().chain(after.keys()).copied().filter(|name| before.get(name) != after.get(name)).collect()
}

const TARGETS: [&str; 10] =
    ["returns", "error", "sigma", "normalised", "keep", "step loss", "td", "total", "priorities", "traces"];

fn set(names: &[&'static str], more: &[&'static str]) -> BTreeSet<&'static str> {
    names.iter().chain(more).copied().collect()
}

#[test]
fn returns_change_traces_and_what_follows_from_them() {
    // Peng's and Retrace's target policy and values are those of Soft Watkins.
    assert_eq!(changed(|c| c.returns.kind = ReturnKind::Peng), set(&TARGETS, &[]));
    assert_eq!(changed(|c| c.returns.kind = ReturnKind::Retrace), set(&TARGETS, &[]));
    assert_eq!(changed(|c| c.returns.kind = ReturnKind::Watkins), set(&TARGETS, &["target policy", "value"]));
}

#[test]
fn n_step_returns_change_what_follows_from_the_values() {
    assert_eq!(changed(|c| c.returns.kind = ReturnKind::NStep), set(&TARGETS, &[]));
    let steps = |n| move |c: &mut AgentConfig| (c.returns.kind, c.returns.n) = (ReturnKind::NStep, n);
    assert_ne!(quantities(steps(1))["returns"], quantities(steps(2))["returns"]);
    // No sequence has more than eight steps.
    assert_eq!(quantities(steps(8)), quantities(steps(100)));
}

#[test]
fn double_q_learning_takes_the_target_networks_values_and_the_online_networks_policy() {
    let mut expected = set(&TARGETS, &["value"]);
    expected.remove("traces");
    assert_eq!(changed(|c| c.returns.bootstrap = Bootstrap::Double), expected);
}

#[test]
fn temperature_0_is_the_greedy_policy_and_the_limit_of_low_ones() {
    let greedy = quantities(|c| c.returns.temperature = 0.0);
    assert_eq!(changed(|c| c.returns.temperature = 0.0), set(&TARGETS, &["target policy", "value"]));
    assert!(greedy["target policy"].iter().all(|&p| p == 0.0 || p == 1.0));
    assert_eq!(greedy["target policy"], quantities(|c| c.returns.temperature = 1e-6)["target policy"]);
}

#[test]
fn functional_regularisation_adds_the_distance_from_the_target_network() {
    let found = changed(|c| c.loss.functional_regularisation = 0.5);
    assert_eq!(found, set(&["step loss", "td", "total"], &[]));
    let loss = |weight| quantities(move |c| c.loss.functional_regularisation = weight)["td"][0];
    let (none, half, whole) = (loss(0.0), loss(0.5), loss(1.0));
    assert!(half > none && (whole - none - 2.0 * (half - none)).abs() < 1e-4 * whole, "{none} {half} {whole}");
}

#[test]
fn the_intrinsic_reward_does_not_reach_the_extrinsic_network() {
    let mut config = setup::config();
    (config.loss.q_heads, config.network.value_networks) = (QHeads::Separate, ValueNetworks::Separate);
    let names = parameter_names(&config);
    let shared = parameter_names(&setup::config());
    let is_own = |name: &&String| name.starts_with("intrinsic_network.");
    let rest: BTreeSet<String> = names.iter().filter(|name| !is_own(name)).cloned().collect();
    let expected = shared.iter().filter(|name| !name.starts_with("heads.intrinsic.")).cloned().collect();
    assert_eq!(rest, expected);
    let own = |name: &str| names.contains(&format!("intrinsic_network.{name}"));
    assert!(own("lstm.weight_ih") && own("heads.intrinsic.value.output.bias") && own("features.linear.weight"));
    assert!(!own("heads.extrinsic.value.output.bias") && !own("heads.policy.output.bias"));
    let gradients = |edit: &dyn Fn(&mut SequenceBatch)| {
        let mut learner = setup::learner(&config);
        assert_eq!(learner.networks.state_length(), 2 * 2 * config.network.core);
        let mut batch = setup::batch(&learner, 3);
        edit(&mut batch);
        learner.step(&batch).unwrap();
        let gradients = learner.gradients().named();
        let values = |x: &Tensor| Vec::<f32>::try_from(x.reshape([-1])).unwrap();
        gradients.map(|(name, x)| (name.to_owned(), values(x))).collect::<BTreeMap<_, _>>()
    };
    // Rewards of steps; the network sees those before.
    let last = |batch: &SequenceBatch| batch.trace;
    let before = gradients(&|_| {});
    let ngu = gradients(&|batch| {
        let entry = last(batch);
        batch.steps.reward_ngu[entry] += 3.0;
    });
    let differing: BTreeSet<&String> = before.keys().filter(|name| before[*name] != ngu[*name]).collect();
    assert!(!differing.is_empty() && differing.iter().all(is_own), "{differing:?}");
}

#[test]
fn a_policy_that_is_an_input_has_statistics_of_what_it_played() {
    let mut config = setup::config();
    config.network.policy_input = PolicyInput::OneHot;
    let mut learner = setup::learner(&config);
    let mut batch = setup::batch(&learner, 3);
    let played = [1, 3, 3, 1, 3];
    batch.sequences.iter_mut().zip(played).for_each(|(sequence, policy)| sequence.policy = policy);
    let report = learner.step(&batch).unwrap();
    let steps: Vec<f64> = report.policies.iter().map(|policy| policy.steps).collect();
    // Lengths are 9, 7, 5, 3 and 2.
    assert_eq!(steps, [0.0, 8.0 + 2.0, 0.0, 6.0 + 4.0 + 1.0]);
    for (policy, statistics) in report.policies.iter().enumerate() {
        assert_eq!(statistics.td_error > 0.0, [1, 3].contains(&policy), "{policy}");
        let updates = learner.td_scales[0].running()[policy].updates();
        assert_eq!(updates, u64::from([1, 3].contains(&policy)));
    }
    // Heads are those of one policy, and the core sees which.
    let shape = |name: &str| -> Vec<i64> {
        let parameters = learner.networks.agent.layout.parameters();
        parameters.iter().find(|p| p.name == name).unwrap().shape.clone()
    };
    assert_eq!(shape("heads.extrinsic.value.output.weight")[0], 1);
    assert_eq!(shape("heads.policy.output.weight")[0], ACTIONS as i64);
    let heads = Networks::new(&setup::config(), &setup::image(), ACTIONS).unwrap();
    let inputs = heads.agent.layout.parameters().iter().find(|p| p.name == "lstm.weight_ih").unwrap().shape[1];
    assert_eq!(shape("lstm.weight_ih")[1], inputs + 4);
    // With all policies trained, every one has all steps.
    let mut learner = setup::learner(&setup::config());
    let report = learner.step(&setup::batch(&learner, 3)).unwrap();
    assert!(report.policies.iter().all(|policy| policy.steps == 21.0));
}

#[test]
fn burn_in_takes_the_loss_from_the_first_steps_of_sequences_that_start_within_an_episode() {
    let mut config = setup::config();
    config.loss.burn_in = 3;
    let mut learner = setup::learner(&config);
    let mut batch = setup::batch(&learner, 3);
    // The last sequences are shorter than the burn-in: their last step stays.
    let state = learner.networks.state_length();
    let starts = |batch: &mut SequenceBatch, i: usize| batch.state[i * state..(i + 1) * state].fill(0.0);
    for i in 0..LENGTHS.len() {
        let zero = batch.state[i * state..(i + 1) * state].iter().all(|&x| x == 0.0);
        assert!(!zero, "sequence {i}");
    }
    assert_eq!(learner.step(&batch).unwrap().steps, 5 + 3 + 1 + 1 + 1);
    starts(&mut batch, 0);
    assert_eq!(learner.step(&batch).unwrap().steps, 8 + 3 + 1 + 1 + 1);
    // The discount of step 1 enters its return and those before it, and nothing else.
    let mut gradients = |burn_in: usize, discount: f32| {
        config.loss.burn_in = burn_in;
        let mut learner = setup::learner(&config);
        let mut batch = setup::batch(&learner, 3);
        batch.steps.discount[2] = discount;
        learner.step(&batch).unwrap();
        learner.gradients().flat().copy()
    };
    assert_eq!(gradients(3, 1.0), gradients(3, 0.0));
    assert_ne!(gradients(0, 1.0), gradients(0, 0.0));
}

#[test]
fn bootstrapping_from_the_target_network_changes_only_the_targets() {
    let found = changed(|c| c.returns.bootstrap = Bootstrap::Target);
    assert_eq!(found, set(&TARGETS, &["target policy", "value"]));
}

#[test]
fn the_trust_region_changes_which_steps_have_a_loss() {
    assert_eq!(changed(|c| c.loss.trust_region = false), set(&["keep", "step loss", "td", "total"], &[]));
}

#[test]
fn normalisation_changes_loss_and_priorities_but_not_the_trust_region() {
    let found = changed(|c| c.loss.td_normalisation = false);
    assert_eq!(found, set(&["normalised", "step loss", "td", "total", "priorities"], &[]));
}

#[test]
fn the_mixture_changes_how_policies_are_summed() {
    let sums = set(&["td", "distillation", "total"], &[]);
    assert_eq!(changed(|c| c.loss.cross_mixture = 0.0), sums);
    assert_eq!(changed(|c| c.loss.trained_policies = TrainedPolicies::Behaviour), sums);
    let behaviour = quantities(|c| c.loss.trained_policies = TrainedPolicies::Behaviour);
    assert_eq!(behaviour, quantities(|c| c.loss.cross_mixture = 1.0));
}

#[test]
fn without_distillation_targets_use_epsilon_greedy_values() {
    let found = changed(|c| c.loss.distillation = false);
    let policy = ["target policy", "value", "kl", "kl keep", "policy loss", "distillation"];
    assert_eq!(found, set(&TARGETS, &policy));
    let all = quantities(|c| c.loss.distillation = false);
    let largest = all["target policy"].iter().copied().fold(0.0, f32::max);
    assert!((largest - (1.0 - 0.75e-4)).abs() < 1e-6, "{largest}");
    let mut config = setup::config();
    config.loss.distillation = false;
    assert!(!parameter_names(&config).iter().any(|name| name.starts_with("heads.policy.")));
}

#[test]
fn separate_losses_train_each_head_on_its_own_reward() {
    let found = changed(|c| c.loss.q_heads = QHeads::Separate);
    let second = ["value 2", "returns 2", "error 2", "normalised 2", "sigma 2", "keep 2", "step loss 2", "value"];
    let mut expected = set(&TARGETS, &second);
    // Shared by both heads, and taken from their sum.
    expected.remove("traces");
    assert_eq!(found, expected);
}

#[test]
fn a_sum_of_returns_changes_q_and_what_follows_from_it() {
    let found = changed(|c| c.loss.q_combination = QCombination::Returns);
    assert!(["q", "value", "returns", "error"].iter().all(|&name| found.contains(name)), "{found:?}");
    assert!(!found.contains("kl") && !found.contains("target policy"), "{found:?}");
}

#[test]
fn one_head_has_no_intrinsic_parameters() {
    let mut config = setup::config();
    config.loss.q_heads = QHeads::Single;
    let names = parameter_names(&config);
    assert!(names.iter().any(|name| name.starts_with("heads.extrinsic.")));
    assert!(!names.iter().any(|name| name.starts_with("heads.intrinsic.")));
    let found = changed(|c| c.loss.q_heads = QHeads::Single);
    assert!(found.contains("q") && !found.contains("kl"), "{found:?}");
}

fn parameter_names(config: &AgentConfig) -> BTreeSet<String> {
    let networks = Networks::new(config, &setup::image(), ACTIONS).unwrap();
    networks.agent.layout.parameters().iter().map(|p| p.name.clone()).collect()
}

#[test]
fn another_torso_changes_only_the_torsos_parameters() {
    let rest = |names: &BTreeSet<String>| -> BTreeSet<String> {
        names.iter().filter(|name| !name.starts_with("torso.")).cloned().collect()
    };
    let nfnet = parameter_names(&setup::config());
    for (kind, own) in [(TorsoKind::Resnet, "torso.stage0.block0.norm1.gain"), (TorsoKind::Dqn, "torso.linear.weight")]
    {
        let mut config = setup::config();
        config.network.torso.kind = kind;
        let names = parameter_names(&config);
        assert!(names.contains(own) && !nfnet.contains(own), "{kind:?}");
        assert_eq!(rest(&names), rest(&nfnet), "{kind:?}");
    }
}

#[test]
fn nothing_is_remembered_without_the_lstm() {
    let mut config = setup::config();
    config.network.recurrent = false;
    let names = parameter_names(&config);
    assert!(names.contains("core.weight") && !names.iter().any(|name| name.starts_with("lstm.")));
    let mut learner = setup::learner(&config);
    assert_eq!(learner.networks.state_length(), 0);
    learner.step(&setup::batch(&learner, 0)).unwrap();
    // The output at the last step depends on the first observation only with the LSTM.
    for recurrent in [false, true] {
        config.network.recurrent = recurrent;
        let networks = Networks::new(&config, &setup::image(), ACTIONS).unwrap();
        let mut random = Random::seed_from_u64(0);
        let parameters = agent::NetworkParameters::initialised(&networks, &mut random, Device::Cpu).unwrap();
        let mut batch = random_batch(&networks, TRACE, &[TRACE], &mut random);
        let weights = networks.agent.prepare(&parameters.agent).unwrap();
        let last = |batch: &SequenceBatch| {
            let tensors = setup::tensors(&networks, batch);
            networks.agent.unroll(&weights, &tensors.input, None).unwrap().heads.extrinsic.get(0).get(TRACE as i64 - 1)
        };
        let before = last(&batch);
        batch.observations[..35].fill(255);
        assert_eq!(before == last(&batch), !recurrent);
    }
}

#[test]
fn stochastic_depth_drops_the_share_it_should() {
    let depth = setup::config().network.torso.stochastic_depth;
    assert_eq!([0, 1, 2].map(|block| depth.block_rate(block, 3)), [0.0, 0.125, 0.25]);
    let flat = agent::config::StochasticDepthConfig { schedule: DropSchedule::Flat, ..depth };
    assert_eq!([0, 2].map(|block| flat.block_rate(block, 3)), [0.25, 0.25]);
    // With blocks that are always left out, their parameters get no gradient; the learner draws them anew each time.
    let mut config = setup::config();
    config.network.torso.stochastic_depth =
        agent::config::StochasticDepthConfig { rate: 0.9, schedule: DropSchedule::Flat, ..depth };
    let mut learner = setup::learner(&config);
    let batch = setup::batch(&learner, 1);
    let blocks = learner.networks.agent.droppable_blocks();
    let all_dropped = vec![0u8; blocks * batch.sequences.len()];
    let options = agent::learner::StepOptions { depth_mask: Some(&all_dropped), observer: None };
    learner.step_with(&batch, options).unwrap();
    for (name, gradient) in learner.gradients().named() {
        if name.ends_with("skip_gain") || name.contains(".conv2.") {
            assert_eq!(gradient.abs().sum(Kind::Float).double_value(&[]), 0.0, "{name}");
        }
    }
}
