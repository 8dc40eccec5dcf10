//! Rules between fields, and between the networks and the environment.

use config_schema::{Problem, Schema};

use super::network::{ConvConfig, HeldMask, NetworkConfig, TorsoKind, ValueNetworks};
use super::{AgentConfig, DiscountLadder, QHeads};
use crate::error::{AgentError, Result};
use crate::observation::{ImageShape, InputPart, InputShape, ObservationInput, ObservationPart, ObservationSpec};

/// Largest number of actions.
const MAX_ACTIONS: usize = 65_536;

impl AgentConfig {
    /// Returns everything that is invalid in any environment: values outside their range and broken rules.
    pub fn problems(&self) -> Vec<Problem> {
        let mut found = self.out_of_range();
        let policies = &self.policies;
        if policies.gamma_min > policies.gamma_max {
            let expected = format!("at most policies.gamma_max, {}", policies.gamma_max);
            found.push(Problem::new("policies.gamma_min", policies.gamma_min, expected));
        }
        if policies.discounts == DiscountLadder::Agent57 && policies.gamma_min > policies.gamma_middle {
            let expected = format!("at most policies.gamma_middle, {}", policies.gamma_middle);
            found.push(Problem::new("policies.gamma_min", policies.gamma_min, expected));
        }
        if self.network.value_networks == ValueNetworks::Separate && self.loss.q_heads != QHeads::Separate {
            let expected = "shared unless loss.q_heads is separate: each network has a loss of its own";
            found.push(Problem::new("network.value_networks", "separate", expected));
        }
        if policies.sampled && !self.acts_by_policy() {
            let expected =
                "false unless loss.distillation is true and policies.greedy is policy: there is no π' to sample";
            found.push(Problem::new("policies.sampled", "true", expected));
        }
        let torso = &self.network.torso;
        if torso.stochastic_depth.acting != HeldMask::Never && torso.kind != TorsoKind::Nfnet {
            let expected = "never unless network.torso.kind is nfnet: no other torso has blocks to drop";
            found.push(Problem::new("network.torso.stochastic_depth.acting", "held", expected));
        }
        if torso.stem.kernel.is_multiple_of(2) {
            found.push(Problem::new("network.torso.stem.kernel", torso.stem.kernel, "odd"));
        }
        for (field, layers) in [
            ("network.torso.convolutions", &torso.convolutions),
            ("network.intrinsic.convolutions", &self.network.intrinsic.convolutions),
        ] {
            for (i, layer) in layers.iter().enumerate().filter(|(_, layer)| layer.padding >= layer.kernel) {
                let expected = format!("smaller than the kernel, {}", layer.kernel);
                found.push(Problem::new(&format!("{field}[{i}].padding"), layer.padding, expected));
            }
        }
        found
    }

    /// Fails with all [`problems`](Self::problems), or with those that this environment causes.
    pub fn validate_for(&self, observation: &ObservationSpec, actions: usize) -> Result<()> {
        let mut problems = self.problems();
        // Shapes can only be followed through valid layers.
        if problems.is_empty() {
            if !(1..=MAX_ACTIONS).contains(&actions) {
                let expected = format!("from 1 to {MAX_ACTIONS}");
                problems.push(Problem::new("the number of actions", actions, expected));
            }
            self.network.check_observation(observation, &mut problems);
        }
        if problems.is_empty() { Ok(()) } else { Err(AgentError::Config(problems)) }
    }
}

impl NetworkConfig {
    fn check_observation(&self, observation: &ObservationSpec, found: &mut Vec<Problem>) {
        for ObservationPart { name, shape, .. } in &observation.parts {
            if !(1..=3).contains(&shape.len()) || shape.iter().any(|&n| n == 0 || n > 1 << 20) {
                let named = format!("the shape of the observation's `{name}`");
                let what = if name.is_empty() { "the observation's shape" } else { &named };
                let expected = "[height, width], [height, width, channels] or [n], each from 1 to 2^20";
                found.push(Problem::new(what, format!("{shape:?}"), expected));
                return;
            }
        }
        for part in ObservationInput::new(observation.clone()).parts() {
            found.extend(misfit("network.intrinsic.convolutions", &self.intrinsic.convolutions, part));
            if self.torso.kind == TorsoKind::Dqn {
                found.extend(misfit("network.torso.convolutions", &self.torso.convolutions, part));
            }
        }
    }
}

/// Returns the first of a stack of convolutions whose kernel is larger than what is left of a part that is an image.
fn misfit(field: &str, layers: &[ConvConfig], part: &InputPart) -> Option<Problem> {
    let InputShape::Image(image @ ImageShape { mut height, mut width, .. }) = part.shape else { return None };
    for (i, layer) in layers.iter().enumerate() {
        let window = layer.window();
        let output = (window.output(height), window.output(width));
        if output.0 == 0 || output.1 == 0 {
            let name = if part.name.is_empty() { String::new() } else { format!(" `{}`", part.name) };
            let expected = format!(
                "at most the {height}x{width} pixels left of a {}x{} image{name}; use smaller kernels, smaller strides \
                 or padding",
                image.height, image.width
            );
            return Some(Problem::new(&format!("{field}[{i}].kernel"), layer.kernel, expected));
        }
        (height, width) = output;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observation::ObservationKind::{F32, U8};

    const QUICK: &str = include_str!("../../../../configs/quick.toml");
    const TINY: &str = include_str!("../../../../configs/tiny.toml");

    fn preset(text: &str) -> AgentConfig {
        config_schema::read_table(text, "agent").unwrap()
    }

    fn image(height: usize, width: usize) -> ObservationSpec {
        ObservationSpec::array(vec![height, width], U8)
    }

    #[test]
    fn defaults_and_presets_are_valid_for_atari() {
        for config in [AgentConfig::default(), preset(QUICK), preset(TINY)] {
            config.validate_for(&image(210, 160), 18).unwrap();
        }
    }

    #[test]
    fn every_invalid_field_is_reported_at_once() {
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
        let paths: Vec<String> = config.problems().into_iter().map(|problem| problem.path).collect();
        let expected = [
            "policies.count",
            "returns.lambda",
            "loss.cross_mixture",
            "optimizer.learning_rate",
            "copies.target_period",
            "network.torso.stages",
            "policies.gamma_min",
            "network.torso.stem.kernel",
            "network.intrinsic.convolutions[0].padding",
        ];
        assert_eq!(paths, expected);
        let sentence = config.validate_for(&image(210, 160), 18).unwrap_err().to_string();
        assert!(expected.iter().all(|path| sentence.contains(path)), "{sentence}");
        assert!(sentence.contains("network.torso.stages is a list that contains stride = 0; it must"), "{sentence}");
    }

    #[test]
    fn convolutions_that_do_not_fit_the_image_are_reported() {
        let config = AgentConfig::default();
        let sentence = config.validate_for(&image(10, 5), 3).unwrap_err().to_string();
        assert!(sentence.contains("network.intrinsic.convolutions[0].kernel is 8; it must be at most"), "{sentence}");
        let part = |name: &str, shape: &[usize], kind| ObservationPart { name: name.into(), shape: shape.into(), kind };
        let parts = vec![part("map", &[7, 7], U8), part("place", &[2], F32)];
        let sentence = config.validate_for(&ObservationSpec { parts }, 3).unwrap_err().to_string();
        assert!(sentence.contains("at most the 7x7 pixels left of a 7x7 image `map`; use smaller"), "{sentence}");
        let tiny = preset(TINY);
        for (height, width) in [(1, 1), (10, 5), (24, 24), (210, 160)] {
            tiny.validate_for(&image(height, width), 3).unwrap();
        }
    }

    #[test]
    fn unknown_fields_are_refused_and_missing_fields_get_the_papers_value() {
        let config: AgentConfig = serde_json::from_str(r#"{"returns": {"kind": "retrace"}}"#).unwrap();
        assert_eq!(config.returns.lambda, 0.95);
        let error = serde_json::from_str::<AgentConfig>(r#"{"returns": {"lamda": 0.9}}"#).unwrap_err().to_string();
        assert!(error.contains("lamda"), "{error}");
    }
}
