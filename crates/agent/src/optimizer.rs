//! Adam over the flat buffer of a parameter set, with decoupled weight decay.

use tch::Tensor;
use torch_ext::adamw::{AdamWStep, adamw};

use crate::error::Result;
use crate::nets::parameters::ParameterSet;

/// Constants of an optimizer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamConfig {
    /// Learning rate.
    pub learning_rate: f64,
    /// Decay of the gradient's mean.
    pub beta1: f64,
    /// Decay of the gradient's mean square.
    pub beta2: f64,
    /// Added to the root of the mean square.
    pub epsilon: f64,
    /// Decoupled weight decay of matrices and kernels.
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

/// AdamW; with weight decay 0 it is Adam.
///
/// p ← (1 - lr·wd) p where p decays, then p ← p - lr · m̂ / (√v̂ + ε), with m̂ and v̂ the bias-corrected moving
/// averages of the gradient and of its square.
#[derive(Debug)]
pub struct AdamW {
    config: AdamConfig,
    /// 1 - lr·wd where a parameter decays, else 1; absent where nothing decays.
    keep: Option<Tensor>,
    /// Moving averages of the gradient and of its square.
    pub moments: [ParameterSet; 2],
    /// Number of steps made, which the caller counts: only it knows when a gate has let one through.
    pub steps: u64,
}

impl AdamW {
    /// An optimizer without any steps.
    pub fn new(config: AdamConfig, parameters: &ParameterSet) -> Result<Self> {
        let (layout, device) = (parameters.layout(), parameters.flat().device());
        let keep = if config.weight_decay == 0.0 {
            None
        } else {
            let keep = ParameterSet::zeros(layout, device)?;
            for (parameter, (_, view)) in layout.parameters().iter().zip(keep.named()) {
                let decay = if parameter.decays() { config.learning_rate * config.weight_decay } else { 0.0 };
                let _ = view.shallow_clone().f_fill_(1.0 - decay)?;
            }
            Some(keep.flat().shallow_clone())
        };
        let moments = [ParameterSet::zeros(layout, device)?, ParameterSet::zeros(layout, device)?];
        Ok(Self { config, keep, moments, steps: 0 })
    }

    /// Steps the parameters along `gradients`, then moves `average` towards them by a share, unless `gate` forbids it.
    ///
    /// The caller counts it in [`steps`](Self::steps).
    pub fn step(
        &mut self,
        parameters: &mut ParameterSet,
        gradients: &ParameterSet,
        gate: Gate<'_>,
        average: Option<(&mut ParameterSet, f64)>,
    ) -> Result<()> {
        let AdamConfig { learning_rate, beta1, beta2, epsilon, .. } = self.config;
        let [first, second] = &mut self.moments;
        let number = (self.steps + 1) as f64;
        let bias1 = 1.0 - beta1.powf(number);
        let bias2 = 1.0 - beta2.powf(number);
        if parameters.flat().device().is_cuda() && torch_ext::available() {
            return Ok(adamw(&AdamWStep {
                parameters: parameters.flat(),
                first: first.flat(),
                second: second.flat(),
                gradients: gradients.flat(),
                keep: self.keep.as_ref(),
                average: average.as_ref().map(|(average, share)| (average.flat(), *share)),
                scale: gate.scale,
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
        let scale = gate.scale.map_or(Ok(1.0), |scale| scale.f_double_value(&[]))?;
        tch::no_grad(|| -> Result<()> {
            let gradient = gradients.flat().f_mul_scalar(scale)?;
            let _ = first.flat_mut().f_lerp_(&gradient, 1.0 - beta1)?;
            let square = gradient.f_square()?;
            let _ = second.flat_mut().f_lerp_(&square, 1.0 - beta2)?;
            let mut root = second.flat().f_sqrt()?;
            let root = root.f_div_scalar_(bias2.sqrt())?.f_add_scalar_(epsilon)?;
            let change = first.flat().f_div(&root)?.f_mul_scalar_(learning_rate / bias1)?;
            let flat = parameters.flat_mut();
            if let Some(keep) = &self.keep {
                let _ = flat.f_mul_(keep)?;
            }
            let _ = flat.f_sub_(&change)?;
            Ok(())
        })?;
        match average {
            Some((average, share)) => average.move_towards(parameters, share),
            None => Ok(()),
        }
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

    /// torch.optim.AdamW on p = [1, -2] with gradients [0.5, -0.25] then [-1, 0.75]; lr 0.1, betas (0.9, 0.99),
    /// eps 1e-8, decay 0.5 on the matrix and 0 on the vector. Worked out by hand from the equations above.
    #[test]
    fn two_steps_match_hand_computed_values() {
        let mut layout = Layout::default();
        let mut scope = layout.scope("p");
        let weight = scope.declare("weight", &[1, 1], Init::Constant(1.0));
        let bias = scope.declare("bias", &[1], Init::Constant(-2.0));
        let layout = Arc::new(layout);
        let mut parameters = ParameterSet::initialised(&layout, &mut Random::seed_from_u64(0), Device::Cpu).unwrap();
        let mut gradients = ParameterSet::zeros(&layout, Device::Cpu).unwrap();
        let config = AdamConfig { learning_rate: 0.1, beta1: 0.9, beta2: 0.99, epsilon: 1e-8, weight_decay: 0.5 };
        let mut adam = AdamW::new(config, &parameters).unwrap();
        // The first step moves by the learning rate against the gradient's sign, whatever its size.
        for (g, expected) in [([0.5, -0.25], [0.85, -1.9]), ([-1.0, 0.75], [0.844_060_8, -1.949_329_8])] {
            let _ = gradients.flat_mut().zero_();
            let _ = gradients.weights().get(weight).shallow_clone().fill_(g[0]);
            let _ = gradients.weights().get(bias).shallow_clone().fill_(g[1]);
            adam.step(&mut parameters, &gradients, Gate { apply: &Tensor::from(true), scale: None }, None).unwrap();
            adam.steps += 1;
            let moved = parameters.weights();
            let found = [moved.get(weight).double_value(&[0, 0]), moved.get(bias).double_value(&[0])];
            for (found, expected) in found.iter().zip(expected) {
                assert!((found - expected).abs() < 1e-6, "{found} instead of {expected}");
            }
        }
        assert_eq!(adam.steps, 2);
        let before = [&parameters, &adam.moments[0], &adam.moments[1]].map(|set| set.flat().copy());
        adam.step(&mut parameters, &gradients, Gate { apply: &Tensor::from(false), scale: None }, None).unwrap();
        let after = [&parameters, &adam.moments[0], &adam.moments[1]].map(|set| set.flat().copy());
        assert!(before.iter().zip(&after).all(|(before, after)| before == after), "a forbidden step changed something");
        let sum = |x: &Tensor| x.abs().sum(Kind::Float).double_value(&[]);
        let weights = parameters.weights();
        let parts = sum(weights.get(weight)) + sum(weights.get(bias));
        assert!((sum(parameters.flat()) - parts).abs() < 1e-6, "the gaps between parameters have moved");
    }
}
