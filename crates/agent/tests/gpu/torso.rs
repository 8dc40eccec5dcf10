//! The fused torso: output and every gradient, with and without dropped blocks.

use agent::config::Precision;
use agent::nets::agent_net::AgentNet;
use agent::nets::agent_net::NetInput;
use agent::nets::features::FeatureInput;
use agent::nets::parameters::ParameterSet;
use agent::observation::ObservationInput;
use agent::{AgentConfig, ObservationKind, ObservationSpec, Random};
use rand::{RngExt, SeedableRng};
use tch::{Device, Kind, Tensor};

use crate::setup::{GPU, config, narrow, normal, quick, relative, screen};

const BATCH: i64 = 8;
/// Few enough frames per sequence for the CPU.
const STEPS: i64 = 3;

struct Case {
    config: AgentConfig,
    observation: ObservationSpec,
    /// Frames per sequence.
    steps: i64,
}

struct Run {
    output: Tensor,
    gradients: ParameterSet,
}

/// Output of the torso and gradients of a random projection of it.
fn run(case: &Case, (precision, device): (Precision, Device), keep: Option<&Tensor>) -> Run {
    let Case { config, observation, steps } = case;
    let (input, values) = (ObservationInput::new(observation.clone()), observation.values() as i64);
    let net = AgentNet::new(config, input, 6).on(precision, device).unwrap();
    assert_eq!(net.unfused_torsos(), [None]);
    let mut random = Random::seed_from_u64(3);
    let mut parameters = ParameterSet::initialised(&net.layout, &mut random, Device::Cpu).unwrap();
    for (parameter, (name, view)) in net.layout.parameters().iter().zip(parameters.named()) {
        // Gains, biases and skip gains away from where they start, so that every path carries something.
        if name.starts_with("torso.") && parameter.shape.len() == 1 {
            let _ = view.shallow_clone().g_add_(&(normal(&parameter.shape, &mut random) * 0.2 + 0.1));
        }
    }
    let flat = parameters.flat().shallow_clone();
    let parameters_there = ParameterSet::zeros(&net.layout, device).unwrap();
    parameters_there.flat().shallow_clone().copy_(&flat);
    parameters = parameters_there.trainable().unwrap();
    let frames = BATCH * steps;
    let pixels: Vec<u8> = (0..frames * values).map(|_| (random.random::<f64>() * 256.0) as u8).collect();
    let observations = Tensor::from_slice(&pixels).view([frames, values]).to_device(device);
    let features = FeatureInput {
        action: Tensor::zeros([frames], (Kind::Int64, device)),
        rewards: Tensor::zeros([frames, 4], (Kind::Float, device)),
        embedding: Tensor::zeros([frames, config.network.intrinsic.embedding as i64], (Kind::Float, device)),
    };
    let state = Tensor::zeros([BATCH, net.state_length() as i64], (Kind::Float, device));
    let weights = net.prepare(&parameters).unwrap();
    let keep = keep.map(|keep| net.depth_mask(keep, *steps, device).unwrap());
    let policy = Tensor::zeros([BATCH], (Kind::Int64, device));
    let input = NetInput { observations, features, state, policy };
    let output = net.torsos(&weights, &input, keep.as_ref()).unwrap().remove(0).view([frames, -1]);
    let width = output.size()[1];
    // A gradient with a part that all frames share, as a loss has it.
    let probe = normal(&[1, width], &mut random) + normal(&[frames, width], &mut random) * 0.1;
    let loss = (output.to_kind(Kind::Float) * probe.to_device(device)).sum(Kind::Float);
    let mut gradients = ParameterSet::zeros(&net.layout, device).unwrap();
    gradients.fill_with_gradients(&loss, &parameters).unwrap();
    Run { output: output.detach(), gradients }
}

fn compare(config: &AgentConfig, keep: Option<&Tensor>) {
    compare_on(Device::Cpu, &Case { config: config.clone(), observation: screen(), steps: STEPS }, keep);
}

fn compare_on(device: Device, case: &Case, keep: Option<&Tensor>) {
    let plain = run(case, (Precision::F32, device), keep);
    let fused = run(case, (Precision::Auto, GPU), keep);
    let error = relative(&fused.output, &plain.output);
    println!("output: {error:.2e}");
    assert!(error < 2e-2, "the output differs by {error}");
    let error = relative(fused.gradients.flat(), plain.gradients.flat());
    println!("all gradients: {error:.2e}");
    let skip_gains = |run: &Run| {
        let own: Vec<_> = run.gradients.named().filter(|(name, _)| name.ends_with("skip_gain")).collect();
        Tensor::cat(&own.iter().map(|(_, gradient)| gradient.to_device(Device::Cpu)).collect::<Vec<_>>(), 0)
    };
    let skip_gain_error = relative(&skip_gains(&fused), &skip_gains(&plain));
    let mut worst = vec![];
    for ((name, found), (_, wanted)) in fused.gradients.named().zip(plain.gradients.named()) {
        if name.starts_with("torso.") {
            // A skip gain is one number, the sum of a frame's everything: what cancels out in it may leave little.
            let scalar = name.ends_with("skip_gain");
            let error = if scalar { skip_gain_error } else { relative(found, wanted) };
            worst.push((error, name, wanted.norm().double_value(&[])));
        }
    }
    worst.sort_by(|a, b| b.0.total_cmp(&a.0));
    for (error, name, norm) in worst.iter().take(6) {
        println!("  {name}: {error:.2e} of {norm:.2e}");
    }
    assert!(error < 3e-2, "the gradients differ by {error}");
    let (error, name, _) = worst[0];
    assert!(error < 0.12, "the gradient of {name} differs by {error}");
}

/// A quarter of the sequences dropped in every block, others in each; in one block none, in one all.
fn keep(blocks: usize) -> Tensor {
    let mut random = Random::seed_from_u64(5);
    let mut keep = vec![1f32; blocks * BATCH as usize];
    for block in 0..blocks {
        let dropped = match block {
            1 => 0,
            2 => BATCH as usize,
            _ => 2,
        };
        for sequence in rand::seq::index::sample(&mut random, BATCH as usize, dropped) {
            keep[block * BATCH as usize + sequence] = 0.0;
        }
    }
    Tensor::from_slice(&keep).view([blocks as i64, BATCH])
}

#[test]
fn paper_torso_agrees() {
    compare(&config(), None);
}

#[test]
fn paper_torso_with_dropped_blocks_agrees() {
    compare(&config(), Some(&keep(13)));
}

#[test]
fn other_widths_and_another_stem_agree() {
    compare(&narrow(), None);
    compare(&narrow(), Some(&keep(4)));
}

#[test]
fn quick_torso_agrees() {
    let case = Case { config: quick(), observation: gray(105, 80), steps: STEPS };
    compare_on(Device::Cpu, &case, None);
    compare_on(Device::Cpu, &case, Some(&keep(6)));
}

/// Their bytes take less shared memory than the sums of the stem's weight gradient.
#[test]
fn small_images_agree() {
    for (height, width) in [(64, 64), (80, 80), (48, 48), (84, 84)] {
        compare_on(Device::Cpu, &Case { config: quick(), observation: gray(height, width), steps: STEPS }, None);
    }
}

/// In one band and in several, with rows of an odd and of an even number of output pixels.
#[test]
fn colour_images_and_stacks_agree() {
    for (config, shape) in [
        (config(), [84, 84, 3]),
        (config(), [210, 160, 3]),
        (quick(), [105, 80, 4]),
        (narrow(), [84, 84, 4]),
        (narrow(), [210, 160, 12]),
    ] {
        println!("{shape:?}");
        let observation = ObservationSpec::array(shape.to_vec(), ObservationKind::U8);
        compare_on(Device::Cpu, &Case { config, observation, steps: STEPS }, None);
    }
}

#[test]
fn colour_images_with_dropped_blocks_agree() {
    let observation = ObservationSpec::array(vec![84, 84, 3], ObservationKind::U8);
    compare_on(Device::Cpu, &Case { config: config(), observation, steps: STEPS }, Some(&keep(13)));
}

fn gray(height: usize, width: usize) -> ObservationSpec {
    ObservationSpec::array(vec![height, width], ObservationKind::U8)
}

/// Enough frames for cuDNN's own kernel for the gradient through a relu.
#[test]
fn many_frames_agree() {
    compare_on(GPU, &Case { config: narrow(), observation: screen(), steps: 128 }, None);
}
