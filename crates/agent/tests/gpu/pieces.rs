//! The LSTM, the returns and the optimizer on the GPU against their plain versions.

use std::sync::Arc;

use agent::Random;
use agent::config::OptimizerKind;
use agent::loss::targets::{Trajectories, returns};
use agent::nets::core::Core;
use agent::nets::parameters::{Init, Layout, ParameterSet};
use agent::optimizer::{AdamConfig, Gate, Optimizer};
use rand::SeedableRng;
use tch::{Device, Kind, Tensor};
use torch_ext::relu_dgrad::{Inputs, ReluDgrad, Shape};

use crate::setup::{GPU, normal, relative};

struct LstmRun {
    output: Tensor,
    state: Tensor,
    gradients: Vec<(String, Tensor)>,
}

/// A core of 256 on inputs of 200, so that there is padding, over 40 steps. `scale` is of the gradient that comes in.
fn lstm(device: Device, packed: bool, scale: f64) -> LstmRun {
    let (batch, steps, inputs, width) = (16, 40, 200, 256);
    let mut layout = Layout::default();
    let core = Core::new(&mut layout, "", true, inputs, width);
    let layout = Arc::new(layout);
    let mut random = Random::seed_from_u64(1);
    let host = ParameterSet::initialised(&layout, &mut random, Device::Cpu).unwrap();
    let parameters = ParameterSet::zeros(&layout, device).unwrap();
    parameters.flat().shallow_clone().copy_(host.flat());
    let parameters = parameters.trainable().unwrap();
    let input = normal(&[batch, steps, inputs], &mut random).to_device(device).set_requires_grad(true);
    let state = (normal(&[batch, 2 * width], &mut random) * 0.5).to_device(device);
    let probe = normal(&[batch, steps, width], &mut random).to_device(device) * scale;
    let mut weights = parameters.weights();
    if packed {
        core.pack(&mut weights, 0).unwrap();
    }
    let (output, state) = core.forward(&weights, 0, &input, &state).unwrap();
    let loss = (output.to_kind(Kind::Float) * probe).sum(Kind::Float);
    let mut wanted = vec![("input".to_owned(), input.shallow_clone())];
    wanted.extend(parameters.named().map(|(name, view)| (name.to_owned(), view.shallow_clone())));
    let inputs: Vec<_> = wanted.iter().map(|(_, tensor)| tensor).collect();
    let gradients = Tensor::run_backward(&[&loss], &inputs, false, false);
    let gradients = wanted.into_iter().map(|(name, _)| name).zip(gradients).collect();
    LstmRun { output: output.detach(), state, gradients }
}

#[test]
fn lstm_and_its_gradients_agree_at_any_scale() {
    for scale in [1e-7, 1.0, 1e5] {
        let (plain, fused) = (lstm(Device::Cpu, false, scale), lstm(GPU, true, scale));
        let compare = |name: &str, found: &Tensor, wanted: &Tensor, bound: f64| {
            let error = relative(found, wanted);
            println!("{name} at {scale:e}: {error:.2e}");
            assert!(error < bound, "{name} differs by {error} at a gradient of {scale}");
        };
        compare("output", &fused.output, &plain.output, 5e-3);
        compare("state", &fused.state, &plain.state, 5e-3);
        for ((name, found), (_, wanted)) in fused.gradients.iter().zip(&plain.gradients) {
            compare(name, found, wanted, 1e-2);
        }
    }
}

#[test]
fn returns_agree_for_all_policies() {
    let mut random = Random::seed_from_u64(2);
    let size = [5, 33, 7];
    let host = [
        normal(&size, &mut random),
        normal(&size, &mut random).sigmoid(),
        normal(&size, &mut random) * 10.0,
        normal(&size, &mut random).sigmoid(),
        normal(&size, &mut random) * 10.0,
    ];
    let there: Vec<_> = host.iter().map(|x| x.to_device(GPU)).collect();
    let run = |x: &[Tensor], shared: bool, retrace: bool| {
        let rewards = &if shared { x[0].narrow(2, 0, 1) } else { x[0].shallow_clone() };
        let baselines = retrace.then_some(&x[4]);
        returns(Trajectories { rewards, discounts: &x[1], values: &x[2], baselines, traces: &x[3] }).unwrap()
    };
    for (shared, retrace) in [(false, false), (true, false), (false, true), (true, true)] {
        assert!(relative(&run(&there, shared, retrace), &run(&host, shared, retrace)) < 1e-6);
    }
}

#[test]
fn optimizer_and_moving_average_agree() {
    let mut layout = Layout::default();
    let mut scope = layout.scope("p");
    scope.declare("weight", &[70, 30], Init::Normal { std: 1.0 });
    scope.declare("bias", &[70], Init::Normal { std: 1.0 });
    let layout = Arc::new(layout);
    let config = AdamConfig {
        kind: OptimizerKind::AdamW,
        learning_rate: 1e-2,
        beta1: 0.9,
        beta2: 0.99,
        epsilon: 1e-8,
        weight_decay: 0.05,
    };
    let run = |device: Device| {
        let mut random = Random::seed_from_u64(3);
        let host = ParameterSet::initialised(&layout, &mut random, Device::Cpu).unwrap();
        let mut parameters = ParameterSet::zeros(&layout, device).unwrap();
        parameters.flat().shallow_clone().copy_(host.flat());
        let mut average = parameters.duplicate().unwrap();
        let mut adam = Optimizer::new(config, &parameters).unwrap();
        let gradients = ParameterSet::zeros(&layout, device).unwrap();
        let scale = Tensor::from(0.7f64).to_device(device);
        // The third step is forbidden and leaves no trace.
        for made in [true, true, false, true, true] {
            let gradient = normal(&gradients.flat().size(), &mut random);
            gradients.flat().shallow_clone().copy_(&gradient);
            let state = |parameters: &ParameterSet, average: &ParameterSet, adam: &Optimizer| {
                let [first, second] = &adam.moments;
                [parameters, average, first, second].map(|set| set.flat().copy())
            };
            let before = state(&parameters, &average, &adam);
            let apply = Tensor::from(made).to_device(device);
            let gate = Gate { apply: &apply, scale: Some(&scale) };
            adam.step(&mut parameters, &gradients, (0, layout.length()), gate, Some((&mut average, 0.1))).unwrap();
            let after = state(&parameters, &average, &adam);
            assert!(before.iter().zip(&after).all(|(before, after)| (before == after) != made));
            if made {
                adam.steps += 1;
            }
        }
        [parameters.flat().to_device(Device::Cpu), average.flat().to_device(Device::Cpu)]
    };
    for (found, wanted) in run(GPU).iter().zip(&run(Device::Cpu)) {
        assert!(relative(found, wanted) < 1e-6);
    }
}

/// Every kernel that cuDNN offers for it, not only the one that would be chosen.
#[test]
fn gradients_through_convolution_relu_and_bias_agree() {
    for (channels, height, width) in [(64, 53, 40), (128, 27, 20), (32, 14, 10)] {
        let shape = Shape { frames: 48, channels, height, width };
        let random = |size: [i64; 4]| {
            let [n, c, h, w] = size;
            Tensor::randn([n, h, w, c], (Kind::BFloat16, GPU)).permute([0, 3, 1, 2])
        };
        let size = [shape.frames, channels, height, width];
        let (gradient, activated) = (random(size), random(size).relu());
        let kernel = random([channels, channels, 3, 3]) * 0.1;
        let wide = |x: &Tensor| x.to_kind(Kind::Float);
        let none: Option<Tensor> = None;
        let unmasked = wide(&gradient).conv_transpose2d(&wide(&kernel), none, [1, 1], [1, 1], [0, 0], 1, [1, 1]);
        let wanted = unmasked * wide(&activated.gt(0.0));
        let wanted_sum = wanted.sum_dim_intlist([0i64, 2, 3].as_slice(), false, Kind::Float);
        let mut tried = 0;
        for (i, candidate) in ReluDgrad::candidates(shape).unwrap().enumerate() {
            let candidate = match candidate {
                Ok(candidate) => candidate,
                Err(error) => {
                    println!("{shape:?}, kernel {i}: {error}");
                    continue;
                }
            };
            let sum = Tensor::zeros([channels], (Kind::Float, GPU));
            let inputs = Inputs { gradient: &gradient, activated: &activated, kernel: &kernel };
            let found = candidate.run(inputs, &sum).unwrap();
            let errors = [relative(&found, &wanted), relative(&sum, &wanted_sum)];
            println!("{shape:?}, kernel {i}: {errors:?}");
            assert!(errors.iter().all(|&error| error < 1e-2), "kernel {i} differs by {errors:?}");
            tried += 1;
        }
        assert!(tried > 0, "cuDNN has no kernel for {shape:?}");
    }
}

#[test]
fn copies_many_tensors_at_once_in_any_layout() {
    let mut random = Random::seed_from_u64(5);
    let from: Vec<_> = (1..=200).map(|i| normal(&[i, 3 + i % 7], &mut random).to_device(GPU)).collect();
    let lies = |i: usize, tensor: &Tensor| match i % 3 {
        0 => tensor.shallow_clone(),
        1 => tensor.transpose(0, 1).contiguous().transpose(0, 1),
        _ => tensor.to_kind(Kind::BFloat16).to_kind(Kind::Double),
    };
    let from: Vec<_> = from.iter().enumerate().map(|(i, tensor)| lies(i, tensor)).collect();
    let mut to: Vec<_> = from.iter().map(|tensor| Tensor::zeros(tensor.size(), (Kind::Float, GPU))).collect();
    torch_ext::copy_all(to.iter_mut().zip(&from).collect()).unwrap();
    for (i, (found, wanted)) in to.iter().zip(&from).enumerate() {
        assert_eq!(relative(found, wanted), 0.0, "tensor {i}");
    }
    torch_ext::copy_all(vec![]).unwrap();
}
