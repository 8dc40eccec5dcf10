//! The error of random network distillation, one observation at a time.

use agent::Random;
use agent::{NetworkParameters, Networks};
use rand::SeedableRng;
use tch::{Device, Tensor};

use crate::setup;

/// err = ‖ĝ(x) − g(x)‖². Appendix "Random Network Distillation".
fn prediction_error(predicted: &[f32], target: &[f32]) -> f32 {
    predicted.iter().zip(target).map(|(&predicted, &target)| (predicted - target) * (predicted - target)).sum()
}

#[test]
fn the_error_is_a_sum_of_squares() {
    assert_eq!(prediction_error(&[1.0, -2.0, 0.5], &[0.0, 1.0, 0.5]), 10.0);
}

#[test]
fn networks_agree_on_the_error() {
    let networks = Networks::new(&setup::config(), &setup::flat(), setup::ACTIONS).unwrap();
    let parameters = NetworkParameters::initialised(&networks, &mut Random::seed_from_u64(1), Device::Cpu).unwrap();
    let (target, predictor) = (parameters.rnd_target.weights(), parameters.rnd_predictor.weights());
    let x = [Tensor::from_slice(&[0.1f32, -0.4, 0.0, 1.0, 0.7, 2.0, 1.5, -2.0, 0.3, 0.2, 0.0, 0.9]).view([2, 6])];
    let rows = |x: Tensor| -> Vec<Vec<f32>> { x.try_into().unwrap() };
    let g = rows(networks.rnd.target.layers.forward(&target, &x).unwrap());
    let predicted = rows(networks.rnd.predictor.layers.forward(&predictor, &x).unwrap());
    let found: Vec<f32> = networks.rnd.error(&target, &predictor, &x).unwrap().try_into().unwrap();
    for i in 0..2 {
        let expected = prediction_error(&predicted[i], &g[i]);
        assert!(expected > 0.0 && (found[i] - expected).abs() < 1e-5 * expected, "{} is not {expected}", found[i]);
    }
}
