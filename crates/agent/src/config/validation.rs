//! Which values can work, and with which observations.

use super::AgentConfig;
use super::network::{ConvConfig, NetworkConfig, TorsoKind};
use crate::error::{AgentError, Result};
use crate::observation::{ImageShape, InputShape, ObservationInput, ObservationSpec};

/// A field whose value can't work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("agent.{field} is {value}, but {rule}")]
pub struct ConfigProblem {
    /// Path of the field below `agent`, such as `loss.cross_mixture`.
    pub field: String,
    /// Its value.
    pub value: String,
    /// What it has to be.
    pub rule: String,
}

/// Collects problems.
#[derive(Default)]
struct Findings(Vec<ConfigProblem>);

impl Findings {
    fn add(&mut self, field: &str, value: impl std::fmt::Display, rule: impl Into<String>) {
        self.0.push(ConfigProblem { field: field.to_owned(), value: value.to_string(), rule: rule.into() });
    }

    /// Both ends allowed. A NaN is never inside.
    fn within(&mut self, field: &str, value: f64, low: f64, high: f64) {
        if !(low..=high).contains(&value) {
            self.add(field, value, format!("has to be between {low} and {high}"));
        }
    }

    /// `high` itself not allowed.
    fn below(&mut self, field: &str, value: f64, low: f64, high: f64) {
        if !(low..high).contains(&value) {
            self.add(field, value, format!("has to be at least {low} and less than {high}"));
        }
    }

    fn positive(&mut self, field: &str, value: f64) {
        if !(value > 0.0 && value.is_finite()) {
            self.add(field, value, "has to be larger than 0");
        }
    }

    fn not_negative(&mut self, field: &str, value: f64) {
        if !(value >= 0.0 && value.is_finite()) {
            self.add(field, value, "has to be 0 or larger");
        }
    }

    fn size(&mut self, field: &str, value: usize, high: usize) {
        if !(1..=high).contains(&value) {
            self.add(field, value, format!("has to be between 1 and {high}"));
        }
    }
}

/// Bounds of widths, channels and the like: far above anything sensible, far below what would overflow.
const WIDEST: usize = 65_536;

impl AgentConfig {
    /// Every field that can't work, whatever the environment is.
    pub fn problems(&self) -> Vec<ConfigProblem> {
        let mut found = Findings::default();
        self.check_family_and_returns(&mut found);
        self.check_training(&mut found);
        self.network.check(&mut found);
        found.0
    }

    /// Fails with all [`problems`](Self::problems), if there are any, or with what does not go together with an
    /// environment.
    pub fn validate_for(&self, observation: &ObservationSpec, actions: usize) -> Result<()> {
        let mut problems = self.problems();
        // Shapes can only be followed through layers that make sense by themselves.
        if problems.is_empty() {
            let mut found = Findings::default();
            found.size("the number of actions", actions, WIDEST);
            self.network.check_observation(observation, &mut found);
            problems = found.0;
        }
        if problems.is_empty() { Ok(()) } else { Err(AgentError::Config(problems)) }
    }

    fn check_family_and_returns(&self, found: &mut Findings) {
        let policies = &self.policies;
        found.size("policies.count", policies.count, 1024);
        found.not_negative("policies.beta_max", policies.beta_max);
        found.below("policies.gamma_max", policies.gamma_max, 0.0, 1.0);
        found.below("policies.gamma_min", policies.gamma_min, 0.0, 1.0);
        if policies.gamma_min > policies.gamma_max {
            found.add("policies.gamma_min", policies.gamma_min, "must not be larger than policies.gamma_max");
        }
        let returns = &self.returns;
        found.within("returns.lambda", returns.lambda, 0.0, 1.0);
        found.not_negative("returns.kappa", returns.kappa);
        found.positive("returns.temperature", returns.temperature);
    }

    fn check_training(&self, found: &mut Findings) {
        let loss = &self.loss;
        found.within("loss.cross_mixture", loss.cross_mixture, 0.0, 1.0);
        found.not_negative("loss.trust_region_radius", loss.trust_region_radius);
        found.positive("loss.sigma_floor", loss.sigma_floor);
        found.below("loss.sigma_decay", loss.sigma_decay, 0.0, 1.0);
        found.not_negative("loss.distillation_weight", loss.distillation_weight);
        found.within("loss.distillation_epsilon", loss.distillation_epsilon, 0.0, 1.0);
        found.not_negative("loss.kl_bound", loss.kl_bound);
        found.within("loss.priority_max_share", loss.priority_max_share, 0.0, 1.0);
        let optimizer = &self.optimizer;
        found.positive("optimizer.learning_rate", optimizer.learning_rate);
        found.below("optimizer.beta1", optimizer.beta1, 0.0, 1.0);
        found.below("optimizer.beta2", optimizer.beta2, 0.0, 1.0);
        found.positive("optimizer.epsilon", optimizer.epsilon);
        found.not_negative("optimizer.weight_decay", optimizer.weight_decay);
        found.positive("optimizer.clip_norm", optimizer.clip_norm);
        let intrinsic = &self.intrinsic;
        found.size("intrinsic.steps", intrinsic.steps, WIDEST);
        found.positive("intrinsic.action_prediction.learning_rate", intrinsic.action_prediction.learning_rate);
        found.not_negative("intrinsic.action_prediction.weight_decay", intrinsic.action_prediction.weight_decay);
        found.positive("intrinsic.rnd.learning_rate", intrinsic.rnd.learning_rate);
        found.below("intrinsic.rnd.moments_decay", intrinsic.rnd.moments_decay, 0.0, 1.0);
        if self.copies.target_period == 0 {
            found.add("copies.target_period", 0, "has to be at least 1");
        }
        found.within("copies.target_share", self.copies.target_share, 0.0, 1.0);
        found.within("copies.ema_decay", self.copies.ema_decay, 0.0, 1.0);
    }
}

impl NetworkConfig {
    fn check(&self, found: &mut Findings) {
        if let Some(side) = self.max_side {
            found.size("network.max_side", side, WIDEST);
        }
        for (field, width) in [
            ("network.action_embedding", self.action_embedding),
            ("network.features", self.features),
            ("network.core", self.core),
            ("network.head_hidden", self.head_hidden),
            ("network.intrinsic.embedding", self.intrinsic.embedding),
            ("network.intrinsic.action_hidden", self.intrinsic.action_hidden),
            ("network.intrinsic.rnd_output", self.intrinsic.rnd_output),
            ("network.torso.linear", self.torso.linear),
        ] {
            found.size(field, width, WIDEST);
        }
        let torso = &self.torso;
        found.size("network.torso.stem.channels", torso.stem.channels, WIDEST);
        found.size("network.torso.stem.stride", torso.stem.stride, WIDEST);
        if torso.stem.kernel.is_multiple_of(2) || torso.stem.kernel > WIDEST {
            found.add("network.torso.stem.kernel", torso.stem.kernel, "has to be an odd number");
        }
        if torso.stages.is_empty() {
            found.add("network.torso.stages", "empty", "needs at least one stage");
        }
        for (i, stage) in torso.stages.iter().enumerate() {
            found.size(&format!("network.torso.stages[{i}].blocks"), stage.blocks, 1000);
            found.size(&format!("network.torso.stages[{i}].channels"), stage.channels, WIDEST);
            found.size(&format!("network.torso.stages[{i}].stride"), stage.stride, WIDEST);
        }
        found.not_negative("network.torso.alpha", torso.alpha);
        found.within("network.torso.squeeze_excite_ratio", torso.squeeze_excite_ratio, 0.0, 16.0);
        found.below("network.torso.stochastic_depth.rate", torso.stochastic_depth.rate, 0.0, 1.0);
        for (i, &width) in torso.hidden.iter().enumerate() {
            found.size(&format!("network.torso.hidden[{i}]"), width, WIDEST);
        }
        if torso.hidden.is_empty() {
            found.add("network.torso.hidden", "empty", "needs at least one layer");
        }
        for (field, layers) in [
            ("network.torso.convolutions", &torso.convolutions),
            ("network.intrinsic.convolutions", &self.intrinsic.convolutions),
        ] {
            if layers.is_empty() {
                found.add(field, "empty", "needs at least one convolution");
            }
            for (i, layer) in layers.iter().enumerate() {
                found.size(&format!("{field}[{i}].channels"), layer.channels, WIDEST);
                found.size(&format!("{field}[{i}].kernel"), layer.kernel, WIDEST);
                found.size(&format!("{field}[{i}].stride"), layer.stride, WIDEST);
                if layer.padding >= layer.kernel {
                    let rule = "has to be smaller than the kernel";
                    found.add(&format!("{field}[{i}].padding"), layer.padding, rule);
                }
            }
        }
    }

    fn check_observation(&self, observation: &ObservationSpec, found: &mut Findings) {
        let shape = &observation.shape;
        if !(1..=3).contains(&shape.len()) || shape.iter().any(|&n| n == 0 || n > 1 << 20) {
            let rule = "has to be [height, width], [height, width, channels] or [n], none of them 0";
            found.add("the observation's shape", format!("{shape:?}"), rule);
            return;
        }
        if let InputShape::Image(ImageShape { height, width, .. }) =
            ObservationInput::new(observation.clone(), self.max_side).shape()
        {
            check_fit("network.intrinsic.convolutions", &self.intrinsic.convolutions, (height, width), found);
            if self.torso.kind == TorsoKind::Dqn {
                check_fit("network.torso.convolutions", &self.torso.convolutions, (height, width), found);
            }
        }
    }
}

/// Follows an image through a stack of convolutions.
fn check_fit(field: &str, layers: &[ConvConfig], image: (i64, i64), found: &mut Findings) {
    let (mut height, mut width) = image;
    for (i, layer) in layers.iter().enumerate() {
        let window = layer.window();
        let output = (window.output(height), window.output(width));
        if output.0 == 0 || output.1 == 0 {
            let rule = format!(
                "has to fit into the {height}x{width} pixels that are left of a {}x{} image: use smaller kernels, \
                 smaller strides or padding",
                image.0, image.1
            );
            found.add(&format!("{field}[{i}].kernel"), layer.kernel, rule);
            return;
        }
        (height, width) = output;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::NetworkPreset;
    use crate::observation::ObservationKind;

    fn image(height: usize, width: usize) -> ObservationSpec {
        ObservationSpec { shape: vec![height, width], kind: ObservationKind::U8 }
    }

    #[test]
    fn the_defaults_and_all_presets_can_work() {
        for preset in [NetworkPreset::Paper, NetworkPreset::Desktop, NetworkPreset::Tiny] {
            let config = AgentConfig { network: preset.network(), ..AgentConfig::default() };
            config.validate_for(&image(210, 160), 18).unwrap();
        }
    }

    #[test]
    fn every_bad_field_is_named_at_once() {
        let mut config = AgentConfig::default();
        config.policies.count = 0;
        config.policies.gamma_min = 0.99999;
        config.returns.lambda = f64::NAN;
        config.loss.cross_mixture = 1.5;
        config.optimizer.learning_rate = 0.0;
        config.copies.target_period = 0;
        config.network.torso.stem.kernel = 4;
        config.network.torso.stages[1].stride = 0;
        config.network.intrinsic.convolutions[0].padding = 8;
        let fields: Vec<String> = config.problems().into_iter().map(|p| p.field).collect();
        let expected = [
            "policies.count",
            "policies.gamma_min",
            "returns.lambda",
            "loss.cross_mixture",
            "optimizer.learning_rate",
            "copies.target_period",
            "network.torso.stem.kernel",
            "network.torso.stages[1].stride",
            "network.intrinsic.convolutions[0].padding",
        ];
        assert_eq!(fields, expected);
        let sentence = config.validate_for(&image(210, 160), 18).unwrap_err().to_string();
        assert!(expected.iter().all(|field| sentence.contains(field)), "{sentence}");
    }

    #[test]
    fn convolutions_that_do_not_fit_the_image_are_named() {
        let config = AgentConfig::default();
        let sentence = config.validate_for(&image(10, 5), 3).unwrap_err().to_string();
        assert!(sentence.contains("network.intrinsic.convolutions[0].kernel is 8"), "{sentence}");
        let tiny = AgentConfig { network: NetworkPreset::Tiny.network(), ..AgentConfig::default() };
        for (height, width) in [(1, 1), (10, 5), (24, 24), (210, 160)] {
            tiny.validate_for(&image(height, width), 3).unwrap();
        }
    }

    #[test]
    fn unknown_fields_are_refused_and_missing_ones_take_the_papers_value() {
        let config: AgentConfig = serde_json::from_str(r#"{"returns": {"kind": "retrace"}}"#).unwrap();
        assert_eq!(config.returns.lambda, 0.95);
        let error = serde_json::from_str::<AgentConfig>(r#"{"returns": {"lamda": 0.9}}"#).unwrap_err().to_string();
        assert!(error.contains("lamda"), "{error}");
    }
}
