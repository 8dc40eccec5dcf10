//! Acting: rows, states, agreement with the learner's pass, and the choice of actions.

use agent::Random;
use agent::acting::{ChosenAction, StepRewards, choose_action};
use agent::config::{ConvConfig, GreedyBy, PolicyInput, PreviousInputs, QCombination, QHeads, ValueNetworks};
use agent::learner::ParameterSource;
use agent::nets::agent_net::{NetInput, StepInput};
use agent::nets::core::CellStates;
use agent::nets::features::FeatureInput;
use agent::nets::folded_intrinsic::FoldedIntrinsic;
use agent::nets::parameters::ParameterSet;
use agent::networks::NetworkParameters;
use agent::rescaling::rescale_value;
use agent::{
    ActingNetwork, ActingOutput, ActingRow, AgentConfig, Learner, ObservationKind, ObservationSpec, RecurrentStates,
    random_batch,
};
use half::f16;
use rand::{RngExt, SeedableRng};
use rand_distr::StandardNormal;
use tch::{Device, Kind, Tensor};

use crate::setup::{self, ACTIONS, TRACE};

fn network(config: &AgentConfig, learner: &Learner) -> ActingNetwork {
    let mut network = ActingNetwork::new(config, &setup::image(), ACTIONS, Device::Cpu).unwrap();
    network.refresh(&learner.parameters(ParameterSource::Online).unwrap()).unwrap();
    network
}

fn states(network: &ActingNetwork, environments: usize) -> RecurrentStates {
    RecurrentStates::new(&network.networks, environments, Device::Cpu).unwrap()
}

/// Arrays of an acting input, owned.
#[derive(Clone)]
struct Rows {
    environments: Vec<usize>,
    observations: Vec<u8>,
    action: Vec<i64>,
    rewards: Vec<f32>,
    embedding: Vec<f16>,
    policy: Vec<usize>,
}

impl Rows {
    fn random(rows: usize, seed: u64) -> Self {
        let mut random = Random::seed_from_u64(seed);
        Self {
            environments: (0..rows).collect(),
            observations: (0..rows * 35).map(|_| random.random::<u8>()).collect(),
            action: (0..rows).map(|_| random.random_range(0..ACTIONS) as i64).collect(),
            rewards: (0..rows).map(|_| random.sample::<f64, _>(StandardNormal) as f32).collect(),
            embedding: (0..rows * 8).map(|_| f16::from_f64(random.sample::<f64, _>(StandardNormal))).collect(),
            policy: (0..rows).map(|_| random.random_range(0..4)).collect(),
        }
    }

    fn input(&self) -> Vec<ActingRow<'_>> {
        let row = |i: usize| {
            let reward = self.rewards[i];
            ActingRow {
                environment: self.environments[i],
                first: false,
                wants_state: false,
                observation: self.observations[i * 35..(i + 1) * 35].into(),
                action: self.action[i],
                rewards: StepRewards { extrinsic: reward, ngu: reward, rnd: reward, episodic: reward },
                embedding: &self.embedding[i * 8..(i + 1) * 8],
                policy: self.policy[i],
                kept_blocks: None,
            }
        };
        (0..self.environments.len()).map(row).collect()
    }
}

fn row(output: &ActingOutput, row: usize) -> [&[f32]; 4] {
    let part = |values: &'_ [f32], width: usize| -> std::ops::Range<usize> {
        assert!(values.len() >= (row + 1) * width);
        row * width..(row + 1) * width
    };
    [
        &output.logits[part(&output.logits, ACTIONS)],
        &output.q[part(&output.q, ACTIONS)],
        &output.embedding[part(&output.embedding, 8)],
        &output.rnd_error[part(&output.rnd_error, 1)],
    ]
}

#[test]
fn rows_do_not_influence_one_another() {
    let config = setup::config();
    let mut network = network(&config, &setup::learner(&config));
    let (one, mut other) = (Rows::random(5, 1), Rows::random(5, 2));
    // Row 3 is the same in both.
    other.observations[3 * 35..4 * 35].copy_from_slice(&one.observations[3 * 35..4 * 35]);
    other.embedding[24..32].copy_from_slice(&one.embedding[24..32]);
    (other.action[3], other.rewards[3], other.policy[3]) = (one.action[3], one.rewards[3], one.policy[3]);
    let (mut states1, mut states2) = (states(&network, 5), states(&network, 5));
    for _ in 0..3 {
        let output = network.step(&one.input(), &mut states1).unwrap();
        let second = network.step(&other.input(), &mut states2).unwrap();
        assert_eq!(row(&output, 3), row(&second, 3));
        assert_ne!(row(&output, 2), row(&second, 2));
        assert_eq!(states1.read(3).unwrap(), states2.read(3).unwrap());
    }
}

#[test]
fn environments_keep_their_states_in_any_order_and_subset() {
    let config = setup::config();
    let mut network = network(&config, &setup::learner(&config));
    let rows = Rows::random(4, 1);
    let mut states1 = states(&network, 4);
    let both = network.step(&rows.input(), &mut states1).unwrap();
    // The same four, two at a time and backwards.
    let mut states2 = states(&network, 4);
    for pair in [[3, 2], [1, 0]] {
        let mut part = Rows::random(2, 0);
        for (i, &source) in pair.iter().enumerate() {
            part.environments[i] = source;
            part.observations[i * 35..(i + 1) * 35].copy_from_slice(&rows.observations[source * 35..(source + 1) * 35]);
            part.embedding[i * 8..(i + 1) * 8].copy_from_slice(&rows.embedding[source * 8..(source + 1) * 8]);
            (part.action[i], part.rewards[i], part.policy[i]) =
                (rows.action[source], rows.rewards[source], rows.policy[source]);
        }
        let output = network.step(&part.input(), &mut states2).unwrap();
        for (i, &source) in pair.iter().enumerate() {
            for (found, expected) in row(&output, i).iter().zip(row(&both, source)) {
                assert!(found.iter().zip(expected).all(|(f, e)| (f - e).abs() <= 1e-5 * (1.0 + e.abs())));
            }
        }
    }
    for environment in 0..4 {
        let (one, two) = (states1.read(environment).unwrap(), states2.read(environment).unwrap());
        assert!(one.iter().zip(&two).all(|(a, b)| (a - b).abs() < 1e-6));
    }
    let kept = states1.read(1).unwrap();
    states1.write(2, &vec![0.0; kept.len()]).unwrap();
    assert!(states1.read(2).unwrap().iter().all(|&x| x == 0.0) && states1.read(1).unwrap().iter().any(|&x| x != 0.0));
    states1.write(2, &kept).unwrap();
    assert_eq!(states1.read(2).unwrap(), kept);
}

/// The first observation of an episode gets a zero state, whatever the table holds; rows return the state before the step
/// on request.
#[test]
fn an_episode_begins_with_a_zero_state_and_states_are_returned_on_request() {
    let config = setup::config();
    let mut network = network(&config, &setup::learner(&config));
    let rows = Rows::random(3, 1);
    let (mut kept, mut fresh) = (states(&network, 3), states(&network, 3));
    network.step(&rows.input(), &mut kept).unwrap();
    let before: Vec<Vec<f32>> = (0..3).map(|environment| kept.read(environment).unwrap()).collect();
    let mut input = rows.input();
    (input[1].first, input[1].wants_state, input[2].wants_state) = (true, true, true);
    let output = network.step(&input, &mut kept).unwrap();
    assert_eq!(output.state_before, [None, Some(vec![0.0; before[1].len()]), Some(before[2].clone())]);
    let alone = network.step(&rows.input(), &mut fresh).unwrap();
    assert_eq!(row(&output, 1), row(&alone, 1));
    assert_ne!(row(&output, 2), row(&alone, 2));
    assert_eq!(kept.read(1).unwrap(), fresh.read(1).unwrap());
}

/// A broken network chooses no actions: argmax would find one among NaNs.
#[test]
fn refuses_non_finite_outputs_and_names_their_row() {
    let config = setup::config();
    let learner = setup::learner(&config);
    let mut network = network(&config, &learner);
    let mut rows = Rows::random(4, 1);
    rows.policy = vec![0, 1, 2, 3];
    for (tensor, element, start) in [
        ("heads.policy.output.bias", 2 * ACTIONS as i64, "a logit of the policy of row 2 is NaN"),
        ("action_prediction.embedding.bias", 0, "an element of f of row 0 is NaN"),
    ] {
        let weights = learner.parameters(ParameterSource::Online).unwrap();
        let (_, broken) =
            weights.sets().into_iter().flat_map(|set| set.named()).find(|(name, _)| *name == tensor).unwrap();
        let _ = broken.view([-1]).get(element).fill_(f64::NAN);
        network.refresh(&weights).unwrap();
        let mut states = states(&network, 4);
        let error = network.step(&rows.input(), &mut states).unwrap_err();
        assert_eq!(error.to_string(), format!("{start}; the acting weights are broken"));
    }
}

/// The folded step for a GPU agrees with the network, in all its variants.
#[test]
fn folded_step_agrees_with_the_network() {
    let (heads, one_hot) = (PolicyInput::Heads, PolicyInput::OneHot);
    for (recurrent, q_heads, q_combination, distillation, policy_input) in [
        (true, QHeads::Separate, QCombination::Sum, true, heads),
        (true, QHeads::Combined, QCombination::Returns, true, heads),
        (false, QHeads::Separate, QCombination::Sum, false, heads),
        (false, QHeads::Combined, QCombination::Returns, false, heads),
        (true, QHeads::Single, QCombination::Sum, true, heads),
        (true, QHeads::Combined, QCombination::Sum, true, one_hot),
        (true, QHeads::Combined, QCombination::Returns, false, one_hot),
        (true, QHeads::Single, QCombination::Sum, false, one_hot),
        (false, QHeads::Separate, QCombination::Sum, true, one_hot),
    ] {
        let mut config = setup::config();
        config.network.recurrent = recurrent;
        (config.loss.q_heads, config.loss.q_combination) = (q_heads, q_combination);
        config.loss.distillation = distillation;
        config.network.policy_input = policy_input;
        check_folded_step(&config);
        (config.network.features, config.network.head_layers, config.network.head_skip) = (0, 1, false);
        config.network.inputs = PreviousInputs::Rewards;
        check_folded_step(&config);
        if q_heads == QHeads::Separate {
            config.network.value_networks = ValueNetworks::Separate;
            check_folded_step(&config);
            config.network.features = 5;
            check_folded_step(&config);
        }
    }
}

fn check_folded_step(config: &AgentConfig) {
    let learner = setup::learner(config);
    let agent = &learner.networks.agent;
    let parameters = learner.parameters(ParameterSource::Online).unwrap().agent;
    let mut random = Random::seed_from_u64(5);
    let mut draw = |size: &[i64]| {
        let values: Vec<f32> =
            (0..size.iter().product()).map(|_| random.sample::<f64, _>(StandardNormal) as f32).collect();
        Tensor::from_slice(&values).view(size)
    };
    let (rows, state) = (5, agent.state_length() as i64);
    let table = draw(&[7, state]);
    let (rewards, embedding) = (draw(&[rows, 4]) * 3.0, draw(&[rows, 8]));
    let observations = (draw(&[rows, 35]) * 50.0 + 128.0).clamp(0.0, 255.0).to_kind(Kind::Uint8);
    let action = Tensor::from_slice(&[0i64, 3, 1, 2, 3]);
    let policy = Tensor::from_slice(&[3i64, 0, 1, 2, 0]);
    let places = Tensor::from_slice(&[6i64, 2, 0, 1, 5]);
    let before = table.index_select(0, &places);
    let beta: Vec<f32> = config.policies.betas().iter().map(|&b| b as f32).collect();
    let beta = Tensor::from_slice(&beta).view([4, 1]);
    let whole = agent
        .unroll(
            &agent.prepare(&parameters).unwrap(),
            &NetInput {
                observations: observations.shallow_clone(),
                features: FeatureInput {
                    action: action.shallow_clone(),
                    rewards: rewards.shallow_clone(),
                    embedding: embedding.shallow_clone(),
                },
                state: before.copy(),
                policy: policy.shallow_clone(),
            },
            None,
        )
        .unwrap();
    let rescaled: Vec<f32> = Vec::<f32>::try_from(rewards.view([-1]))
        .unwrap()
        .into_iter()
        .map(|x| rescale_value(f64::from(x)) as f32)
        .collect();
    let one_hot = action.one_hot(ACTIONS as i64).to_kind(Kind::Float);
    let features = Tensor::cat(&[one_hot, Tensor::from_slice(&rescaled).view([rows, 4]), embedding], 1);
    let untouched = table.get(3).copy();
    let states = CellStates { before, table: table.shallow_clone(), places: places.shallow_clone() };
    let input = StepInput { observations, features, states, policy: policy.shallow_clone() };
    let step = agent.step(&agent.fold(&parameters, &beta).unwrap(), &input).unwrap();
    let own = |x: &Tensor| {
        if x.size()[2] == 1 {
            return x.squeeze_dim(1).squeeze_dim(1);
        }
        let index = policy.view([rows, 1, 1]).expand([-1, 1, ACTIONS as i64], false);
        x.squeeze_dim(1).gather(1, &index, false).squeeze_dim(1)
    };
    let close = |found: &Tensor, expected: &Tensor| found.allclose(expected, 1e-4, 1e-5, false);
    let of_heads = learner.networks.beta_of_heads(&beta, &policy).unwrap();
    assert!(close(&step.q, &own(&whole.heads.combined(&of_heads).unwrap())));
    assert_eq!(step.logits.is_some(), config.loss.distillation);
    if let (Some(found), Some(expected)) = (&step.logits, &whole.heads.policy) {
        assert!(close(found, &own(expected)));
    }
    assert!(close(&table.index_select(0, &places), &whole.state));
    assert_eq!(table.get(3), untouched);
}

/// A row that holds a stochastic-depth mask acts like the learner's pass with that mask; other rows are not touched by it.
#[test]
fn rows_hold_their_own_stochastic_depth_mask() {
    let config = setup::config();
    let mut learner = setup::learner(&config);
    // Branches start closed; a few updates open them.
    for seed in 0..3 {
        learner.step(&setup::batch(&learner, seed)).unwrap();
    }
    let mut network = network(&config, &learner);
    let rows = Rows::random(3, 8);
    let mut act = |masks: [Option<&[bool]>; 3]| {
        let mut input = rows.input();
        input.iter_mut().zip(masks).for_each(|(row, mask)| row.kept_blocks = mask);
        let mut states = states(&network, 3);
        network.step(&input, &mut states)
    };
    let plain = act([None; 3]).unwrap();
    assert_eq!(act([Some(&[true; 3]), None, None]).unwrap(), plain);
    let dropped = act([None, Some(&[true, false, true]), None]).unwrap();
    assert_eq!((row(&dropped, 0), row(&dropped, 2)), (row(&plain, 0), row(&plain, 2)));
    assert_ne!(row(&dropped, 1)[1], row(&plain, 1)[1]);
    let error = act([Some(&[true; 2]), None, None]).unwrap_err().to_string();
    assert!(error.contains("kept_blocks"), "{error}");
}

/// The same for f and RND, with and without squares that become channels.
#[test]
fn folded_intrinsic_networks_agree_with_the_networks() {
    let same = |kernel, stride| ConvConfig { channels: 4, kernel, stride, padding: 0 };
    let padded = ConvConfig { channels: 6, kernel: 3, stride: 2, padding: 1 };
    for (shape, first) in [(vec![21, 16], same(4, 2)), (vec![21, 16], same(3, 2)), (vec![9, 8, 3], same(4, 2))] {
        let mut config = setup::config();
        config.network.intrinsic.convolutions = vec![first, padded];
        let observation = ObservationSpec::array(shape, ObservationKind::U8);
        let learner = Learner::new(&config, &observation, ACTIONS, 3, Device::Cpu).unwrap();
        let networks = &learner.networks;
        let NetworkParameters { action_prediction, rnd_target, rnd_predictor, .. } =
            learner.parameters(ParameterSource::Online).unwrap();
        let trained = [action_prediction.trainable().unwrap(), rnd_predictor.trainable().unwrap()];
        let [f, target, predictor] = [&trained[0], &rnd_target, &trained[1]].map(ParameterSet::weights);
        let mut random = Random::seed_from_u64(6);
        let bytes: Vec<u8> = (0..5 * observation.bytes()).map(|_| random.random::<u8>()).collect();
        let observations = networks.input().upload(&bytes, 5, Device::Cpu).unwrap();
        let form =
            FoldedIntrinsic::new(&networks.action_prediction, &networks.rnd, networks.input(), Kind::Float).unwrap();
        let folded = form.fold([&f, &target, &predictor]).unwrap();
        // Not the first rows of their memory.
        let frames = form.frames(&observations.narrow(0, 1, 4)).unwrap();
        let found = [folded.f.forward(&frames).unwrap(), folded.rnd.error(&frames).unwrap()];
        let frames = networks.input().prepare(&observations.narrow(0, 1, 4)).unwrap();
        let expected = [
            networks.action_prediction.embed(&f, &frames).unwrap(),
            networks.rnd.error(&target, &predictor, &frames).unwrap(),
        ];
        let close = |found: &Tensor, expected: &Tensor| found.allclose(expected, 1e-4, 1e-5, false);
        for ((found, expected), trained) in found.iter().zip(&expected).zip(&trained) {
            assert!(close(found, expected));
            let gradients = |outcome: &Tensor| {
                let mut gradients = ParameterSet::zeros(trained.layout(), Device::Cpu).unwrap();
                gradients.fill_with_gradients(&outcome.square().sum(Kind::Float), trained).unwrap();
                gradients
            };
            let (found, expected) = (gradients(found), gradients(expected));
            assert!(expected.norm().unwrap().double_value(&[]) > 0.0);
            assert!(close(found.flat(), expected.flat()));
        }
    }
}

/// Acting step by step agrees with the learner's pass over the whole sequence.
#[test]
fn acting_agrees_with_the_learners_pass() {
    let (heads, one_hot) = (PolicyInput::Heads, PolicyInput::OneHot);
    for (distillation, greedy, policy_input, value_networks) in [
        (true, GreedyBy::Policy, heads, ValueNetworks::Shared),
        (true, GreedyBy::Values, heads, ValueNetworks::Separate),
        (false, GreedyBy::Policy, heads, ValueNetworks::Shared),
        (false, GreedyBy::Values, heads, ValueNetworks::Shared),
        (true, GreedyBy::Policy, one_hot, ValueNetworks::Shared),
        (false, GreedyBy::Policy, one_hot, ValueNetworks::Separate),
    ] {
        let mut config = setup::config();
        (config.loss.distillation, config.policies.greedy) = (distillation, greedy);
        (config.network.policy_input, config.network.value_networks) = (policy_input, value_networks);
        if value_networks == ValueNetworks::Separate {
            config.loss.q_heads = QHeads::Separate;
        }
        let learner = setup::learner(&config);
        let mut network = network(&config, &learner);
        let networks = &learner.networks;
        let mut batch = random_batch(networks, TRACE, &[TRACE], &mut Random::seed_from_u64(4));
        let j = 3;
        batch.sequences[0].policy = j;
        let tensors = setup::tensors(networks, &batch);
        let parameters = learner.parameters(ParameterSource::Online).unwrap();
        let weights = networks.agent.prepare(&parameters.agent).unwrap();
        let unrolled = networks.agent.unroll(&weights, &tensors.input, None).unwrap();
        let beta: Vec<f32> = config.policies.betas().iter().map(|&b| b as f32).collect();
        let beta = networks.beta_of_heads(&Tensor::from_slice(&beta).view([4, 1]), &tensors.input.policy).unwrap();
        let q = unrolled.heads.combined(&beta).unwrap();
        let column = if policy_input == one_hot { 0 } else { j as i64 };
        let mut states = states(&network, 1);
        states.write(0, &batch.state).unwrap();
        for t in 0..TRACE {
            let input = [ActingRow {
                environment: 0,
                first: false,
                wants_state: false,
                observation: batch.observations[t * 35..(t + 1) * 35].into(),
                action: batch.steps.action[t],
                rewards: StepRewards {
                    extrinsic: batch.steps.reward_extrinsic[t],
                    ngu: batch.steps.reward_ngu[t],
                    rnd: batch.steps.reward_rnd[t],
                    episodic: batch.steps.reward_episodic[t],
                },
                embedding: &batch.steps.embedding[t * 8..(t + 1) * 8],
                policy: j,
                kept_blocks: None,
            }];
            let output = network.step(&input, &mut states).unwrap();
            let expected: Vec<f32> = q.get(0).get(t as i64).get(column).try_into().unwrap();
            assert!(output.q.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-5), "step {t}");
            let preferred = if distillation && greedy == GreedyBy::Policy { &output.logits } else { &output.q };
            assert_eq!(output.preferences(config.acts_by_policy()), &preferred[..]);
            assert_eq!(output.logits.is_empty(), !distillation);
        }
        let last: Vec<f32> = unrolled.state.get(0).try_into().unwrap();
        assert!(states.read(0).unwrap().iter().zip(&last).all(|(a, b)| (a - b).abs() < 1e-5));
    }
}

#[test]
fn names_bad_rows_and_keeps_the_states() {
    let config = setup::config();
    let mut network = network(&config, &setup::learner(&config));
    let mut states = states(&network, 3);
    network.step(&Rows::random(3, 0).input(), &mut states).unwrap();
    let before: Vec<Vec<f32>> = (0..3).map(|e| states.read(e).unwrap()).collect();
    const BAD: [f16; 8] = [f16::INFINITY; 8];
    let nan = StepRewards { extrinsic: f32::NAN, ..StepRewards::default() };
    type Edit<'a> = &'a dyn Fn(&mut [ActingRow<'_>]);
    let cases: [(Edit<'_>, &str); 8] = [
        (&|r| r[1].action = 9, "action at row 1 is 9, which is not an action, 0 to 3"),
        (&|r| r[2].policy = 4, "policy at row 2 is 4"),
        (&|r| r[2].environment = 3, "environments at row 2 is 3, which is not one of 3 environments"),
        (&|r| r[2].environment = 1, "environments at row 2 is 1, which is not different from the rows before"),
        (&|r| r[1].observation = [0; 7][..].into(), "observation has 7 values, but row 1 needs 35"),
        (&|r| r[2].embedding = &[], "embedding has 0 values, but row 2 needs 8"),
        (&|r| r[1].embedding = &BAD, "embedding at row 1 is inf, which is not finite"),
        (&|r| r[2].rewards = nan, "reward_extrinsic at row 2 is NaN, which is not finite"),
    ];
    for (edit, sentence) in cases {
        let rows = Rows::random(3, 0);
        let mut input = rows.input();
        edit(&mut input);
        let error = network.step(&input, &mut states).unwrap_err().to_string();
        assert!(error.contains(sentence), "{error:?} does not say {sentence:?}");
    }
    assert!(states.write(0, &[0.0; 3]).unwrap_err().to_string().contains("state has 3 values"));
    assert!(states.read(3).is_err() && states.write(3, &before[0]).is_err());
    assert_eq!((0..3).map(|e| states.read(e).unwrap()).collect::<Vec<_>>(), before);
    let empty = network.step(&Rows::random(0, 0).input(), &mut states).unwrap();
    assert!(empty.q.is_empty() && empty.rnd_error.is_empty());
}

#[test]
fn uploads_ahead_change_nothing_and_bad_ones_are_named() {
    let config = setup::config();
    let mut network = network(&config, &setup::learner(&config));
    let (rows, other) = (Rows::random(3, 1), Rows::random(3, 2));
    let (mut sent, mut unsent) = (states(&network, 3), states(&network, 3));
    let wanted = network.step(&rows.input(), &mut unsent).unwrap();
    for sending in [&rows, &other] {
        let observations: Vec<_> = sending.input().iter().map(|row| (row.environment, row.observation)).collect();
        network.send(&observations, &sent).unwrap();
    }
    assert_eq!(network.step(&rows.input(), &mut sent).unwrap(), wanted);
    let good = rows.input()[0].observation;
    for (bad, sentence) in [
        ((3, good), "environments at observation 1 is 3, which is not one of 3 environments"),
        ((1, [0; 7][..].into()), "observation has 7 values, but observation 1 needs 35"),
    ] {
        let error = network.send(&[(0, good), bad], &sent).unwrap_err().to_string();
        assert!(error.contains(sentence), "{error:?} does not say {sentence:?}");
    }
}

/// Each role of a run has its own thread.
#[test]
fn everything_can_move_to_another_thread() {
    fn sendable<T: Send>() {}
    sendable::<(Learner, ActingNetwork, RecurrentStates, agent::NetworkParameters, agent::LearnerState)>();
}

#[test]
fn actions_are_epsilon_greedy_with_their_probability() {
    // A tie: the first best is the greedy one.
    let preferences = [0.5, 2.0, 2.0, -1.0];
    let chosen = |action, probability| ChosenAction { action, probability };
    assert_eq!(choose_action(&preferences, 0.0, [0.0, 0.9]), chosen(1, 1.0));
    assert_eq!(choose_action(&preferences, 0.4, [0.4, 0.9]), chosen(1, 0.7));
    assert_eq!(choose_action(&preferences, 0.4, [0.39, 0.9]), chosen(3, 0.1));
    // Exploring may choose the greedy action; its probability is the total.
    assert_eq!(choose_action(&preferences, 0.4, [0.0, 0.3]), chosen(1, 0.7));
    assert_eq!(choose_action(&preferences, 1.0, [0.99, 0.999_999_9]), chosen(3, 0.25));
    let mut random = Random::seed_from_u64(0);
    let mut counts = [0u32; 4];
    for _ in 0..40_000 {
        counts[choose_action(&preferences, 0.4, [random.random::<f64>(), random.random::<f64>()]).action] += 1;
    }
    for (count, expected) in counts.into_iter().zip([0.1, 0.7, 0.1, 0.1]) {
        assert!((f64::from(count) / 40_000.0 - expected).abs() < 0.01, "{counts:?}");
    }
}
