//! Reading golden files, building the described agents, and comparing.

use std::path::PathBuf;

use agent::batch::BatchShape;
use agent::config::{
    Activation, Bootstrap, ConvConfig, NetworkConfig, QHeads, ReturnKind, StageConfig, StemConfig, TorsoKind,
};
use agent::nets::parameters::ParameterSet;
use agent::tensor_file::{self, HostTensor, NamedTensors};
use agent::weights::import;
use agent::{AgentConfig, ObservationKind, ObservationSpec, SequenceBatch};
use half::f16;
use replay::{SCALAR_COLUMNS, SampledSequence, StepColumns};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tch::{Kind, Tensor};

/// Relative tolerance of everything but parameters after ten steps.
pub const TOLERANCE: f64 = 1e-4;

/// One entry of `cases.json` with its file.
pub struct Case {
    pub name: String,
    pub description: Value,
    pub tensors: NamedTensors,
}

fn directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden")
}

pub fn read(file: &str) -> NamedTensors {
    let path = directory().join(file);
    let bytes = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    tensor_file::parse(&bytes).unwrap()
}

/// All cases of a kind; there is at least one.
pub fn cases(kind: &str) -> Vec<Case> {
    // Tests run in parallel, and waiting threads of libtorch would spin.
    tch::set_num_threads(1);
    let text = std::fs::read_to_string(directory().join("cases.json")).unwrap();
    let all: Value = serde_json::from_str(&text).unwrap();
    let cases: Vec<Case> = all["files"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|case| case["kind"] == kind)
        .map(|case| {
            let name = case["file"].as_str().unwrap().to_owned();
            Case { tensors: read(&name), name, description: case.clone() }
        })
        .collect();
    assert!(!cases.is_empty(), "no case of kind {kind}");
    cases
}

pub fn get<T: DeserializeOwned>(value: &Value, field: &str) -> T {
    serde_json::from_value(value[field].clone()).unwrap_or_else(|e| panic!("{field}: {e}"))
}

impl Case {
    pub fn observation(&self) -> ObservationSpec {
        let network = &self.description["network"];
        if network.get("parts").is_some() {
            return ObservationSpec { parts: get(network, "parts") };
        }
        let [_, height, width]: [usize; 3] = get(network, "observation");
        ObservationSpec::array(vec![height, width], ObservationKind::U8)
    }

    pub fn actions(&self) -> usize {
        self.description["network"].get("actions").map_or(1, |n| n.as_u64().unwrap() as usize)
    }

    /// The configuration of a case; settings that its description omits have no influence.
    pub fn config(&self) -> AgentConfig {
        let network = &self.description["network"];
        let mut config = AgentConfig::default();
        if let Some(policies) = network.get("policies") {
            config.policies.count = policies.as_u64().unwrap() as usize;
        }
        if network.get("q_heads").is_some_and(|heads| heads == 1) {
            config.loss.q_heads = QHeads::Single;
        }
        network_config(network, &mut config.network);
        if let Some(learner) = self.description.get("learner") {
            learner_config(learner, &mut config);
        }
        config
    }

    pub fn tensor(&self, name: &str) -> Tensor {
        self.host(name).tensor().unwrap()
    }

    pub fn host(&self, name: &str) -> &HostTensor {
        self.tensors.get(name).unwrap_or_else(|| panic!("{} has no {name}", self.name))
    }

    pub fn assert_close(&self, name: &str, found: &Tensor) {
        assert_close(&format!("{}: {name}", self.name), found, &self.tensor(name), TOLERANCE);
    }

    pub fn assert_values(&self, name: &str, found: &[f64]) {
        let found = Tensor::from_slice(found);
        self.assert_close(name, &found.view(&self.tensor(name).size()[..]));
    }

    /// Every gradient of a file, by the names of the parameters.
    pub fn assert_gradients(&self, gradients: &ParameterSet) {
        let mut largest: f64 = 0.0;
        for (name, gradient) in gradients.named() {
            self.assert_close(&format!("gradient.{name}"), gradient);
            largest = largest.max(gradient.abs().max().double_value(&[]));
        }
        assert!(largest > 0.0, "{}: every gradient is zero", self.name);
    }
}

pub fn convolutions(list: &Value) -> Vec<ConvConfig> {
    let layers: Vec<[usize; 3]> = serde_json::from_value(list.clone()).unwrap();
    layers.into_iter().map(|[channels, kernel, stride]| ConvConfig { channels, kernel, stride, padding: 0 }).collect()
}

fn network_config(network: &Value, config: &mut NetworkConfig) {
    if let Some(torso) = network.get("torso") {
        if torso["kind"] == "dqn" {
            config.torso.kind = TorsoKind::Dqn;
            config.torso.convolutions = convolutions(&torso["convolutions"]);
            config.torso.linear = get(torso, "output");
        } else {
            let stages = torso["stages"].as_array().unwrap();
            let stage = |s: &Value| StageConfig {
                blocks: get(s, "blocks"),
                channels: get(s, "channels"),
                stride: get(s, "stride"),
            };
            if torso.get("hidden").is_some() {
                config.torso.hidden = get(torso, "hidden");
            }
            config.torso.activation = get::<Activation>(torso, "activation");
            config.torso.alpha = get(torso, "alpha");
            config.torso.squeeze_excite_ratio = get(torso, "squeeze_excite_ratio");
            config.torso.stem = StemConfig { channels: get(torso, "stem_channels"), kernel: 7, stride: 4 };
            config.torso.stages = stages.iter().map(stage).collect();
        }
    }
    if network.get("lstm").is_some() {
        config.action_embedding = get(network, "action_embedding");
        config.features = get(network, "features");
        config.core = get(network, "lstm");
        config.head_hidden = get(network, "hidden");
    }
    if let Some(list) = network.get("intrinsic_convolutions") {
        config.intrinsic.convolutions = convolutions(list);
        config.intrinsic.embedding = get(network, "embedding");
        config.intrinsic.action_hidden = get(network, "action_prediction_hidden");
        config.intrinsic.rnd_output = get(network, "rnd_output");
    }
}

fn learner_config(learner: &Value, config: &mut AgentConfig) {
    config.returns.kind = get::<ReturnKind>(learner, "return");
    config.returns.bootstrap = get::<Bootstrap>(learner, "bootstrap");
    config.returns.lambda = get(learner, "lambda");
    config.returns.kappa = get(learner, "kappa");
    config.returns.temperature = get(learner, "temperature");
    config.policies.beta_max = get(learner, "beta_im");
    config.policies.gamma_max = get(learner, "gamma_max");
    config.policies.gamma_min = get(learner, "gamma_min");
    let loss = &mut config.loss;
    if learner["losses"] == "separate" {
        loss.q_heads = QHeads::Separate;
    }
    loss.q_combination = get(learner, "q_combination");
    loss.trust_region = get(learner, "trust_region");
    loss.td_normalisation = get(learner, "td_normalization");
    loss.distillation = get(learner, "distillation");
    loss.cross_mixture = get(learner, "eta");
    loss.sigma_floor = get(learner, "sigma_floor");
    loss.sigma_decay = get(learner, "sigma_decay");
    loss.trust_region_radius = get(learner, "trust_region_alpha");
    loss.kl_bound = get(learner, "kl_bound");
    loss.distillation_epsilon = get(learner, "distillation_epsilon");
    loss.distillation_weight = get(learner, "distillation_weight");
    loss.priority_max_share = get(learner, "priority_max_weight");
    config.optimizer.learning_rate = get(learner, "learning_rate");
    config.optimizer.weight_decay = get(learner, "weight_decay");
    config.optimizer.beta1 = get(learner, "adam_beta1");
    config.optimizer.beta2 = get(learner, "adam_beta2");
    config.optimizer.epsilon = get(learner, "adam_epsilon");
    config.optimizer.clip_norm = get(learner, "gradient_clip");
    config.intrinsic.steps = get(learner, "intrinsic_steps");
    config.intrinsic.action_prediction.learning_rate = get(learner, "action_prediction_learning_rate");
    config.intrinsic.action_prediction.weight_decay = get(learner, "action_prediction_weight_decay");
    config.intrinsic.rnd.learning_rate = get(learner, "rnd_learning_rate");
    config.intrinsic.rnd.moments_decay = get(learner, "rnd_decay");
    config.copies.ema_decay = get(learner, "ema_decay");
    config.copies.target_period = get(learner, "target_period");
}

/// The batch of the tensors `{prefix}.observations` and so on.
pub fn read_batch(file: &NamedTensors, prefix: &str) -> SequenceBatch {
    let host = |name: &str| &file[&format!("{prefix}.{name}")];
    let integers = |name: &str| -> Vec<i64> { host(name).tensor().unwrap().reshape([-1]).try_into().unwrap() };
    let floats = |name: &str| -> Vec<f32> { host(name).tensor().unwrap().reshape([-1]).try_into().unwrap() };
    let halves = |name: &str| host(name).bytes.as_chunks::<2>().0.iter().map(|b| f16::from_le_bytes(*b)).collect();
    let scalars = SCALAR_COLUMNS.map(|column| floats(column.name));
    let sequence = |((length, policy), importance_weight): ((i64, i64), f32)| SampledSequence {
        length: length as usize,
        policy: policy as usize,
        importance_weight,
        ..SampledSequence::default()
    };
    SequenceBatch {
        trace: host("observations").shape[1],
        observations: host("observations").bytes.clone(),
        steps: StepColumns::from_parts(integers("action"), scalars, halves("embedding")),
        state: floats("state"),
        sequences: integers("length").into_iter().zip(integers("policy")).zip(floats("weight")).map(sequence).collect(),
    }
}

/// The shape that a golden batch must have.
pub fn batch_shape(batch: &SequenceBatch, config: &AgentConfig, actions: usize) -> BatchShape {
    BatchShape {
        actions,
        policies: config.policies.count,
        embedding: config.network.intrinsic.embedding,
        state: batch.state.len() / batch.sequences.len(),
        intrinsic_steps: config.intrinsic.steps,
        burn_in: config.loss.burn_in,
    }
}

/// 1 for observations (or, with `less` 1, steps) that are valid, f32 `[B, T]`.
pub fn valid(batch: &SequenceBatch, less: usize) -> Tensor {
    let valid: Vec<f32> =
        batch.sequences.iter().flat_map(|s| (0..batch.trace).map(move |t| f32::from(t + less < s.length))).collect();
    Tensor::from_slice(&valid).view([batch.sequences.len() as i64, batch.trace as i64])
}

/// Fills a set with the tensors of a file whose names begin with `prefix`, `wanted` of them.
pub fn load(file: &NamedTensors, prefix: &str, set: &mut ParameterSet, wanted: impl Fn(&str) -> bool) {
    let mut part = NamedTensors::new();
    for (name, tensor) in file {
        if let Some(name) = name.strip_prefix(prefix)
            && wanted(name)
        {
            part.insert(name.to_owned(), tensor.clone());
        }
    }
    import(&part, &mut [("", set)]).unwrap();
}

/// max|found - wanted| / max|wanted| within the tolerance; exactly 0 where 0 is wanted.
pub fn assert_close(name: &str, found: &Tensor, wanted: &Tensor, tolerance: f64) {
    assert_eq!(found.size(), wanted.size(), "{name}: shape");
    let (found, wanted) = (found.to_kind(Kind::Double), wanted.to_kind(Kind::Double));
    let scale = wanted.abs().max().double_value(&[]);
    let error = (&found - &wanted).abs().max().double_value(&[]);
    assert!(error <= tolerance * scale, "{name}: off by {error:e} where the largest value is {scale:e}");
}
