//! Adam, AdamW and RMSProp over the flat buffer of a parameter set.

use tch::Tensor;
use torch_ext::adamw::{AdamWStep, adamw};

use crate::config::OptimizerKind;
use crate::error::Result;
use crate::nets::parameters::ParameterSet;

/// Constants of an optimizer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamConfig {
    /// Algorithm.
    pub kind: OptimizerKind,
    /// Learning rate.
    pub learning_rate: f64,
    /// Decay of the gradient's mean; RMSProp has none.
    pub beta1: f64,
    /// Decay of the gradient's mean square.
    pub beta2: f64,
    /// Added to the root of the mean square.
    pub epsilon: f64,
    /// Weight decay of matrices and kernels.
    pub weight_decay: f64,
}

/// Conditions of a step, kept on the device so that the host need not wait for them.
#[derive(Clone, Copy, Debug)]
pub struct Gate<'a> {
    /// Whether to make the step, one bool.
    pub apply: &'a Tensor,
    /// Factor of the gradient, one f64; 1 if not given.
    pub scale: Option<&'a Tensor>,
}

/// An optimizer: AdamW, Adam or RMSProp.
///
/// - AdamW: p ← (1 - lr·wd) p where p decays, then p ← p - lr · m̂ / (√v̂ + ε), with m̂ and v̂ the bias-corrected
///   moving averages of the gradient g and of its square.
/// - Adam: the same with g + wd·p for g where p decays, and no other decay.
/// - RMSProp: likewise, p ← p - lr · g / (√v + ε). That is Adam with β1 = 0 and without the correction of v.
#[derive(Debug)]
pub struct Optimizer {
    config: AdamConfig,
    /// 1 - lr·wd (AdamW) or wd (the others) where a parameter decays, else 1 or 0; absent where nothing decays.
    decay: Option<Tensor>,
    /// Moving averages of the gradient and of its square.
    pub moments: [ParameterSet; 2],
    /// Number of steps made, which the caller counts: only it knows when a gate has let one through.
    pub steps: u64,
}

impl Optimizer {
    /// An optimizer without any steps.
    pub fn new(config: AdamConfig, parameters: &ParameterSet) -> Result<Self> {
        let (layout, device) = (parameters.layout(), parameters.flat().device());
        let decay = if config.weight_decay == 0.0 {
            None
        } else {
            let decays = |decays: bool| match (config.kind, decays) {
                (OptimizerKind::AdamW, true) => 1.0 - config.learning_rate * config.weight_decay,
                (OptimizerKind::AdamW, false) => 1.0,
                (OptimizerKind::Adam | OptimizerKind::RmsProp, true) => config.weight_decay,
                (OptimizerKind::Adam | OptimizerKind::RmsProp, false) => 0.0,
            };
            let decay = ParameterSet::zeros(layout, device)?;
            for (parameter, (_, view)) in layout.parameters().iter().zip(decay.named()) {
                let _ = view.shallow_clone().f_fill_(decays(parameter.decays()))?;
            }
            Some(decay.flat().shallow_clone())
        };
        let moments = [ParameterSet::zeros(layout, device)?, ParameterSet::zeros(layout, device)?];
        Ok(Self { config, decay, moments, steps: 0 })
    }

    /// Steps a part of the parameters, and of their average, unless `gate` forbids it.
    ///
    /// The parameters move along `gradients`, then that part of `average` moves towards them by a share. The part is given
    /// by where it begins in the buffer, and by its length.
    ///
    /// The caller counts it in [`steps`](Self::steps).
    pub fn step(
        &mut self,
        parameters: &mut ParameterSet,
        gradients: &ParameterSet,
        (start, length): (i64, i64),
        gate: Gate<'_>,
        average: Option<(&mut ParameterSet, f64)>,
    ) -> Result<()> {
        let AdamConfig { kind, learning_rate, epsilon, beta2, .. } = self.config;
        let part = |flat: &Tensor| flat.f_narrow(0, start, length);
        let number = (self.steps + 1) as f64;
        let (beta1, bias1, bias2) = match kind {
            OptimizerKind::RmsProp => (0.0, 1.0, 1.0),
            OptimizerKind::AdamW | OptimizerKind::Adam => {
                (self.config.beta1, 1.0 - self.config.beta1.powf(number), 1.0 - beta2.powf(number))
            }
        };
        let (mut flat, mut gradient) = (part(parameters.flat())?, part(gradients.flat())?);
        let [mut first, mut second] = [part(self.moments[0].flat())?, part(self.moments[1].flat())?];
        let decay = self.decay.as_ref().map(part).transpose()?;
        let (keep, penalty) = if kind == OptimizerKind::AdamW { (decay, None) } else { (None, decay) };
        let mut scale = gate.scale;
        if let Some(penalty) = &penalty {
            // The penalty is not clipped.
            let clipped = match scale.take() {
                Some(scale) => gradient.f_mul(&scale.f_to_kind(gradient.kind())?)?,
                None => gradient,
            };
            gradient = clipped.f_addcmul(&flat.f_detach()?, penalty)?;
        }
        let average = average.map(|(average, share)| part(average.flat()).map(|flat| (flat, share))).transpose()?;
        if torch_ext::serves(flat.device()) {
            return Ok(adamw(&AdamWStep {
                parameters: &flat,
                first: &first,
                second: &second,
                gradients: &gradient,
                keep: keep.as_ref(),
                average: average.as_ref().map(|(average, share)| (average, *share)),
                scale,
                apply: gate.apply,
                beta1,
                beta2,
                rate: learning_rate / bias1,
                root: bias2.sqrt(),
                epsilon,
            })?);
        }
        if gate.apply.f_int64_value(&[])? == 0 {
            return Ok(());
        }
        let scale = scale.map_or(Ok(1.0), |scale| scale.f_double_value(&[]))?;
        tch::no_grad(|| -> Result<()> {
            let gradient = gradient.f_mul_scalar(scale)?;
            let _ = first.f_lerp_(&gradient, 1.0 - beta1)?;
            let square = gradient.f_square()?;
            let _ = second.f_lerp_(&square, 1.0 - beta2)?;
            let mut root = second.f_sqrt()?;
            let root = root.f_div_scalar_(bias2.sqrt())?.f_add_scalar_(epsilon)?;
            let change = first.f_div(&root)?.f_mul_scalar_(learning_rate / bias1)?;
            if let Some(keep) = &keep {
                let _ = flat.f_mul_(keep)?;
            }
            let _ = flat.f_sub_(&change)?;
            if let Some((mut average, share)) = average {
                let _ = average.f_lerp_(&flat, share)?;
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tch::{Device, Kind};

    use rand::SeedableRng;

    use super::*;
    use crate::Random;
    use crate::nets::parameters::{Init, Layout};

    /// p = [1, -2] with gradients [0.5, -0.25] then [-1, 0.75]; lr 0.1, betas (0.9, 0.99), eps 1e-8, decay 0.5 on the
    /// matrix and 0 on the vector. Worked out by hand from the equations above.
    #[test]
    fn two_steps_match_hand_computed_values() {
        // The first step of Adam moves by the learning rate against the gradient's sign, whatever its size.
        check_two_steps(OptimizerKind::AdamW, [[0.85, -1.9], [0.844_060_8, -1.949_329_8]]);
        check_two_steps(OptimizerKind::Adam, [[0.9, -1.9], [0.877_142_66, -1.949_329_8]]);
        // That of RMSProp by ten times as much, 1 / sqrt(1 - 0.99).
        check_two_steps(OptimizerKind::RmsProp, [[0.0, -1.0], [0.708_881_24, -1.949_158_28]]);
    }

    #[test]
    fn a_part_moves_by_itself_with_its_own_scale() {
        let mut layout = Layout::default();
        let mut scope = layout.scope("p");
        scope.declare("bias", &[1], Init::Constant(1.0));
        scope.declare("other", &[1], Init::Constant(1.0));
        let layout = Arc::new(layout);
        let mut parameters = ParameterSet::initialised(&layout, &mut Random::seed_from_u64(0), Device::Cpu).unwrap();
        let mut average = parameters.duplicate().unwrap();
        let gradients = ParameterSet::zeros(&layout, Device::Cpu).unwrap();
        let _ = gradients.flat().shallow_clone().fill_(1.0);
        let kind = OptimizerKind::RmsProp;
        let config = AdamConfig { kind, learning_rate: 0.1, beta1: 0.9, beta2: 0.0, epsilon: 1.0, weight_decay: 0.0 };
        let mut optimizer = Optimizer::new(config, &parameters).unwrap();
        let apply = Tensor::from(true);
        let mut step = |part, scale: f64| {
            let gate = Gate { apply: &apply, scale: Some(&Tensor::from(scale)) };
            optimizer.step(&mut parameters, &gradients, part, gate, Some((&mut average, 0.5))).unwrap();
            [&parameters, &average].map(|set| [0, 64].map(|i| set.flat().double_value(&[i])))
        };
        let close = |found: [[f64; 2]; 2], wanted: [[f64; 2]; 2]| {
            found.iter().flatten().zip(wanted.iter().flatten()).all(|(found, wanted)| (found - wanted).abs() < 1e-6)
        };
        // 0.1 g / (g + 1): 0.05 with the whole gradient, 0.1 / 3 with half of it.
        let found = step((64, 64), 1.0);
        assert!(close(found, [[1.0, 0.95], [1.0, 0.975]]), "{found:?}");
        let found = step((0, 64), 0.5);
        assert!(close(found, [[1.0 - 0.1 / 3.0, 0.95], [1.0 - 0.05 / 3.0, 0.975]]), "{found:?}");
    }

    fn check_two_steps(kind: OptimizerKind, expected: [[f64; 2]; 2]) {
        let mut layout = Layout::default();
        let mut scope = layout.scope("p");
        let weight = scope.declare("weight", &[1, 1], Init::Constant(1.0));
        let bias = scope.declare("bias", &[1], Init::Constant(-2.0));
        let layout = Arc::new(layout);
        let mut parameters = ParameterSet::initialised(&layout, &mut Random::seed_from_u64(0), Device::Cpu).unwrap();
        let gradients = ParameterSet::zeros(&layout, Device::Cpu).unwrap();
        let config = AdamConfig { kind, learning_rate: 0.1, beta1: 0.9, beta2: 0.99, epsilon: 1e-8, weight_decay: 0.5 };
        let mut adam = Optimizer::new(config, &parameters).unwrap();
        let all = (0, layout.length());
        for (g, expected) in [[0.5, -0.25], [-1.0, 0.75]].into_iter().zip(expected) {
            let _ = gradients.flat().shallow_clone().zero_();
            let _ = gradients.weights().get(weight).shallow_clone().fill_(g[0]);
            let _ = gradients.weights().get(bias).shallow_clone().fill_(g[1]);
            adam.step(&mut parameters, &gradients, all, Gate { apply: &Tensor::from(true), scale: None }, None)
                .unwrap();
            adam.steps += 1;
            let moved = parameters.weights();
            let found = [moved.get(weight).double_value(&[0, 0]), moved.get(bias).double_value(&[0])];
            for (found, expected) in found.iter().zip(expected) {
                assert!((found - expected).abs() < 1e-6, "{found} instead of {expected}");
            }
        }
        assert_eq!(adam.steps, 2);
        let before = [&parameters, &adam.moments[0], &adam.moments[1]].map(|set| set.flat().copy());
        adam.step(&mut parameters, &gradients, all, Gate { apply: &Tensor::from(false), scale: None }, None).unwrap();
        let after = [&parameters, &adam.moments[0], &adam.moments[1]].map(|set| set.flat().copy());
        assert!(before.iter().zip(&after).all(|(before, after)| before == after), "a forbidden step changed something");
        let sum = |x: &Tensor| x.abs().sum(Kind::Float).double_value(&[]);
        let weights = parameters.weights();
        let parts = sum(weights.get(weight)) + sum(weights.get(bias));
        assert!((sum(parameters.flat()) - parts).abs() < 1e-6, "the gaps between parameters have moved");
    }
}
