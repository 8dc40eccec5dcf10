//! Every network's outputs, and the torsos' gradients.

use agent::batch::BatchTensors;
use agent::nets::action_prediction::ActionPrediction;
use agent::nets::agent_net::AgentNet;
use agent::nets::parameters::{Layout, ParameterSet};
use agent::nets::rnd::RndPair;
use agent::nets::torso::Torso;
use agent::observation::ObservationInput;
use agent::{NetworkParameters, Networks};
use std::collections::HashSet;
use std::sync::Arc;
use tch::{Device, Kind, Tensor};

use crate::fixtures::{Case, batch_shape, cases, load, read_batch};

fn input(case: &Case) -> ObservationInput {
    ObservationInput::new(case.observation())
}

/// `[.., 1, H, W]` bytes as the networks take them.
fn frames(case: &Case, name: &str) -> Vec<Tensor> {
    let input = input(case);
    let host = case.host(name);
    let frames = host.bytes.len() / input.spec().bytes();
    input.prepare(&input.upload(&host.bytes, frames, Device::Cpu).unwrap()).unwrap()
}

fn check_torso(case: &Case, has_keep: bool) {
    let mut layout = Layout::default();
    let torso = Torso::new(layout.scope("torso"), &case.config().network.torso, input(case).parts());
    let layout = Arc::new(layout);
    let mut parameters = ParameterSet::zeros(&layout, Device::Cpu).unwrap();
    load(&case.tensors, "parameters.", &mut parameters, |_| true);
    let parameters = parameters.trainable().unwrap();
    let mut weights = parameters.weights();
    torso.prepare(&mut weights).unwrap();
    let frames = frames(case, "observations");
    let wanted = case.tensor("output");
    let (b, t) = (wanted.size()[0], wanted.size()[1]);
    let keep = has_keep.then(|| case.tensor("keep").to_kind(Kind::Float).repeat_interleave_self_int(t, 1, b * t));
    let output = torso.forward(&weights, &frames, keep.as_ref()).unwrap().view([b, t, -1]);
    case.assert_close("output", &output);
    if has_keep {
        let acting = torso.forward(&weights, &frames, None).unwrap().view([b, t, -1]);
        case.assert_close("output_acting", &acting);
    }
    let mut gradients = ParameterSet::zeros(&layout, Device::Cpu).unwrap();
    let loss = (output * case.tensor("probe")).sum(Kind::Float);
    gradients.fill_with_gradients(&loss, &parameters).unwrap();
    case.assert_gradients(&gradients);
}

#[test]
fn normalizer_free_torso_agrees_with_the_reference() {
    let cases = cases("forward_torso");
    assert!(cases.iter().any(|c| c.description["network"]["torso"]["activation"] == "gelu"));
    cases.iter().for_each(|case| check_torso(case, true));
}

#[test]
fn plain_torso_agrees_with_the_reference() {
    cases("forward_torso_dqn").iter().for_each(|case| check_torso(case, false));
}

#[test]
fn features_core_and_heads_agree_with_the_reference() {
    for case in cases("forward_network").into_iter().chain(cases("forward_parts")) {
        let config = case.config();
        let net = AgentNet::new(&config, input(&case), case.actions());
        let mut parameters = ParameterSet::zeros(&net.layout, Device::Cpu).unwrap();
        load(&case.tensors, "parameters.", &mut parameters, is_agents);
        let weights = net.prepare(&parameters).unwrap();
        let mut batch = read_batch(&case.tensors, "batch");
        // The file holds outputs for padding too, so every observation counts as valid here.
        batch.sequences.iter_mut().for_each(|sequence| sequence.length = batch.trace);
        let shape = batch_shape(&batch, &config, case.actions());
        let tensors = BatchTensors::upload(&batch, &batch.observations, &net.input, &shape, Device::Cpu).unwrap();
        let keep = net.depth_mask(&case.tensor("keep").to_kind(Kind::Float), batch.trace as i64, Device::Cpu).unwrap();
        let torsos = net.torsos(&weights, &tensors.input, Some(&keep)).unwrap();
        let stages = net.stages(&weights, &tensors.input, torsos, 0).unwrap().remove(0);
        case.assert_close("torso", &stages.torso);
        case.assert_close("features", &stages.features);
        case.assert_close("lstm", &stages.core);
        let output = net.unroll(&weights, &tensors.input, Some(&keep)).unwrap();
        case.assert_close("state_final", &output.state);
        case.assert_close("q_extrinsic", &output.heads.extrinsic);
        case.assert_close("q_intrinsic", &output.heads.intrinsic.unwrap());
        case.assert_close("logits", &output.heads.policy.unwrap());
    }
}

/// Whether a parameter is the value and policy network's.
fn is_agents(name: &str) -> bool {
    !name.starts_with("action_prediction.") && !name.starts_with("rnd.")
}

#[test]
fn embedding_and_novelty_of_several_parts_agree_with_the_reference() {
    for case in cases("forward_parts") {
        let networks = Networks::new(&case.config(), &case.observation(), case.actions()).unwrap();
        let mut parameters = NetworkParameters::zeros(&networks, Device::Cpu).unwrap();
        for set in parameters.sets_mut() {
            let own: HashSet<_> = set.named().map(|(name, _)| name.to_owned()).collect();
            load(&case.tensors, "parameters.", set, |name| own.contains(name));
        }
        let NetworkParameters { action_prediction, rnd_target, rnd_predictor, .. } = &parameters;
        let frames = frames(&case, "batch.observations");
        let embedding = networks.action_prediction.embed(&action_prediction.weights(), &frames).unwrap();
        case.assert_close("embedding", &embedding);
        let error = networks.rnd.error(&rnd_target.weights(), &rnd_predictor.weights(), &frames).unwrap();
        case.assert_close("rnd_error", &error);
    }
}

#[test]
fn action_prediction_agrees_with_the_reference() {
    for case in cases("forward_action_prediction") {
        let net = ActionPrediction::new(&case.config().network, &input(&case), case.actions());
        let mut parameters = ParameterSet::zeros(&net.layout, Device::Cpu).unwrap();
        load(&case.tensors, "parameters.", &mut parameters, |_| true);
        let weights = parameters.weights();
        let embedding = net.embed(&weights, &frames(&case, "observations")).unwrap();
        let next = net.embed(&weights, &frames(&case, "observations_next")).unwrap();
        case.assert_close("embedding", &embedding);
        case.assert_close("logits", &net.predict(&weights, &embedding, &next).unwrap());
    }
}

#[test]
fn random_network_distillation_agrees_with_the_reference() {
    for case in cases("forward_rnd") {
        let pair = RndPair::new(&case.config().network, &input(&case));
        let mut target = ParameterSet::zeros(&pair.target.layout, Device::Cpu).unwrap();
        let mut predictor = ParameterSet::zeros(&pair.predictor.layout, Device::Cpu).unwrap();
        load(&case.tensors, "parameters.", &mut target, |name| name.starts_with("rnd.target."));
        load(&case.tensors, "parameters.", &mut predictor, |name| name.starts_with("rnd.predictor."));
        let (target, predictor) = (target.weights(), predictor.weights());
        let frames = frames(&case, "observations");
        case.assert_close("output_target", &pair.target.layers.forward(&target, &frames).unwrap());
        case.assert_close("output_predictor", &pair.predictor.layers.forward(&predictor, &frames).unwrap());
        case.assert_close("error", &pair.error(&target, &predictor, &frames).unwrap());
    }
}
