//! R2D2, NGU and Agent57 as their presets make them, on small networks: forward pass, gradients, priorities and ten updates.

use agent::batch::BatchTensors;
use agent::config::IntrinsicTrainingConfig;
use agent::learner::{Learner, ParameterSource};
use agent::{AgentConfig, ObservationKind, ObservationSpec};
use serde_json::Value;
use tch::{Device, Kind, Tensor};

use crate::fixtures::{Case, assert_close, batch_shape, cases, convolutions, get, read_batch, valid};

const PRESETS: [(&str, &str); 3] = [
    ("r2d2", include_str!("../../../../configs/r2d2.toml")),
    ("ngu", include_str!("../../../../configs/ngu.toml")),
    ("agent57", include_str!("../../../../configs/agent57.toml")),
];

/// The preset of a case with the case's sizes, rates and periods.
fn config(case: &Case) -> AgentConfig {
    let (network, settings) = (&case.description["network"], &case.description["settings"]);
    let (_, text) = PRESETS.iter().find(|(name, _)| case.description["preset"] == *name).unwrap();
    let mut config: AgentConfig = config_schema::read_table(text, "agent").unwrap();
    config.network.torso.convolutions = convolutions(&network["convolutions"]);
    config.network.torso.linear = get(network, "linear");
    config.network.core = get(network, "core");
    config.network.head_hidden = get(network, "hidden");
    config.network.intrinsic.convolutions = convolutions(&network["convolutions"]);
    // f and RND take no part: their input may be anything.
    config.intrinsic = IntrinsicTrainingConfig { steps: 1, ..config.intrinsic };
    config.optimizer.learning_rate = get(settings, "learning_rate");
    config.optimizer.clip_norm = get(settings, "clip_norm");
    config.copies.target_period = get(settings, "target_period");
    if config.loss.burn_in > 0 {
        config.loss.burn_in = get(settings, "burn_in");
    }
    config
}

fn observation(network: &Value) -> ObservationSpec {
    let [frames, height, width]: [usize; 3] = get(network, "observation");
    let shape = if frames == 1 { vec![height, width] } else { vec![height, width, frames] };
    ObservationSpec::array(shape, ObservationKind::U8)
}

/// A learner with the parameters of a case.
fn learner(case: &Case, config: &AgentConfig) -> Learner {
    let (observation, actions) = (observation(&case.description["network"]), case.actions());
    let mut state = Learner::new(config, &observation, actions, 0, Device::Cpu).unwrap().save().unwrap();
    let mut found = 0;
    for (name, tensor) in &mut state.weights {
        if let Some(start) = case.tensors.get(&format!("start.{name}")) {
            assert_eq!(tensor.shape, start.shape, "{name}");
            *tensor = start.clone();
            found += 1;
        }
    }
    let in_file = case.tensors.keys().filter(|name| name.starts_with("start.")).count();
    assert_eq!(found, in_file, "{}: parameters", case.name);
    Learner::restore(config, &observation, actions, &state, Device::Cpu).unwrap()
}

fn check_forward(case: &Case, config: &AgentConfig, learner: &Learner) {
    let (networks, batch) = (&learner.networks, read_batch(&case.tensors, "batch0"));
    let shape = batch_shape(&batch, config, case.actions());
    let tensors = BatchTensors::upload(&batch, &batch.observations, networks.input(), &shape, Device::Cpu).unwrap();
    let parameters = learner.parameters(ParameterSource::Online).unwrap();
    let weights = networks.agent.prepare(&parameters.agent).unwrap();
    let heads = networks.agent.unroll(&weights, &tensors.input, None).unwrap().heads;
    let beta = Tensor::from_slice(&config.policies.betas()).to_kind(Kind::Float).view([-1, 1]);
    let q = heads.combined(&networks.beta_of_heads(&beta, &tensors.input.policy).unwrap()).unwrap();
    case.assert_close("q", &(q.squeeze_dim(2) * valid(&batch, 0).unsqueeze(-1)));
}

fn check(case: &Case) {
    let config = config(case);
    let mut learner = learner(case, &config);
    check_forward(case, &config, &learner);
    let batches = ["batch0", "batch1"].map(|name| read_batch(&case.tensors, name));
    let steps = case.tensor("loss").size()[0];
    for step in 0..steps {
        let report = learner.step(&batches[step as usize % 2]).unwrap();
        let what = |name: &str| format!("{}: {name} of update {}", case.name, step + 1);
        let wanted = |name: &str| case.tensor(name).get(step).to_kind(Kind::Double);
        let loss = Tensor::from(report.losses.td);
        assert_close(&what("loss"), &loss, &wanted("loss"), 1e-4);
        let priorities: Vec<f64> = report.priorities.iter().map(|&priority| f64::from(priority)).collect();
        assert_close(&what("priority"), &Tensor::from_slice(&priorities), &wanted("priority"), 1e-4);
        let norm = wanted("norms").square().sum(Kind::Double).sqrt();
        assert_close(&what("gradient norm"), &Tensor::from(report.gradient_norms.agent), &norm, 1e-4);
        if step == 0 {
            case.assert_gradients(learner.gradients());
            let in_file = case.tensors.keys().filter(|name| name.starts_with("gradient.")).count();
            assert_eq!(in_file, learner.gradients().named().count(), "{}: number of gradients", case.name);
        }
    }
    let state = learner.save().unwrap();
    for (name, end) in case.tensors.iter().filter(|(name, _)| name.starts_with("end.")) {
        let name = name.trim_start_matches("end.");
        let (found, wanted) = (state.weights[name].tensor().unwrap(), end.tensor().unwrap());
        assert_close(&format!("{}: end of {name}", case.name), &found, &wanted, 1e-5);
        // The parameter's own size would hide an error in its change.
        let start = case.tensor(&format!("start.{name}"));
        let largest = |x: Tensor| x.abs().max().double_value(&[]);
        let (error, change) = (largest(&found - &wanted), largest(&wanted - &start));
        assert!(error <= 1e-3 * change + 1e-6 * largest(start), "{}: change of {name}: {error:e}", case.name);
    }
}

#[test]
fn agents_of_the_presets_agree_with_their_references() {
    let cases = cases("agent_steps");
    let seen: Vec<&str> = cases.iter().map(|case| case.description["preset"].as_str().unwrap()).collect();
    assert_eq!(seen, PRESETS.map(|(name, _)| name));
    cases.iter().for_each(check);
}
