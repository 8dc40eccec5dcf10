//! The loss that trains against the scalar equations, one policy and one sequence at a time.

use agent::Random;
use agent::batch::BatchTensors;
use agent::config::{Bootstrap, ReturnKind};
use agent::loss::{AgentLoss, LossOutput, TdScale, TdStatistics, mixture_weight, running_sigmas};
use agent::moments::BatchMoments;
use agent::nets::heads::HeadOutputs;
use agent::{AgentConfig, SequenceBatch};
use rand::RngExt;
use rand_distr::StandardNormal;
use tch::{Device, Kind, Tensor};

use crate::distillation::{cross_entropy, keeps_distillation, kl_divergence};
use crate::moments::{sigma, unweighted, weighted};
use crate::policy::{argmax, epsilon_greedy, log_softmax, target_policy};
use crate::priority::sequence_priority;
use crate::rescaling::{rescale_f32, unscale_f32};
use crate::returns::{Trajectory, expected_value, greedy_value, returns, td_error};
use crate::setup::{self, ACTIONS, LENGTHS, Play, TRACE};
use crate::traces;
use crate::trust_region::keeps_loss;

const B: usize = LENGTHS.len();
/// ε, below which σ_j does not fall.
const FLOOR: f64 = 0.01;

/// Random outputs of the heads, with ties in some rows.
struct Head {
    values: Vec<f32>,
    policies: usize,
}

impl Head {
    fn new(policies: usize, scale: f64, random: &mut Random) -> Self {
        let mut values: Vec<f32> = (0..B * TRACE * policies * ACTIONS)
            .map(|_| (scale * random.sample::<f64, _>(StandardNormal)) as f32)
            .collect();
        // Every seventh row holds its largest value twice.
        for row in values.chunks_exact_mut(ACTIONS).step_by(7) {
            row[ACTIONS - 1] = row[argmax(row)];
        }
        Self { values, policies }
    }

    fn near(&self, scale: f64, random: &mut Random) -> Self {
        let values = self.values.iter().map(|x| x + (scale * random.sample::<f64, _>(StandardNormal)) as f32).collect();
        Self { values, policies: self.policies }
    }

    fn tensor(&self) -> Tensor {
        Tensor::from_slice(&self.values).view([B as i64, TRACE as i64, self.policies as i64, ACTIONS as i64])
    }

    fn row(&self, b: usize, t: usize, j: usize) -> &[f32] {
        let start = ((b * TRACE + t) * self.policies + j) * ACTIONS;
        &self.values[start..start + ACTIONS]
    }
}

struct Scene {
    config: AgentConfig,
    batch: SequenceBatch,
    tensors: BatchTensors,
    online: [Head; 3],
    target: [Head; 3],
    scale: TdScale,
}

fn scene(edit: impl Fn(&mut AgentConfig), seed: u64) -> Scene {
    let Play { config, batch, tensors, mut random } = setup::play(edit, seed);
    let n = config.policies.count;
    let online = [1.5, 1.0, 2.0].map(|scale| Head::new(n, scale, &mut random));
    let target = [0, 1, 2].map(|i| online[i].near(1.0, &mut random));
    let mut scale = TdScale::new(n, 0.9, FLOOR);
    for j in 0..n {
        let mean = random.sample::<f64, _>(StandardNormal);
        scale.update(j, BatchMoments { mean, mean_square: mean * mean + random.random::<f64>() });
    }
    Scene { config, batch, tensors, online, target, scale }
}

fn evaluate(scene: &Scene) -> LossOutput {
    let heads = |[extrinsic, intrinsic, policy]: &[Head; 3]| HeadOutputs {
        extrinsic: extrinsic.tensor(),
        intrinsic: Some(intrinsic.tensor()),
        policy: scene.config.loss.distillation.then(|| policy.tensor()),
        combination: scene.config.loss.q_combination,
    };
    let loss = AgentLoss::new(&scene.config, Device::Cpu).unwrap();
    let least = [running_sigmas(&scene.scale, Device::Cpu).unwrap()];
    loss.evaluate(&heads(&scene.online), &heads(&scene.target), &scene.tensors, &least).unwrap()
}

fn values(x: &Tensor) -> Vec<f32> {
    x.detach().to_kind(Kind::Float).reshape([-1]).try_into().unwrap()
}

fn close(what: &str, found: f32, expected: f32) {
    assert!((found - expected).abs() <= 2e-5 * (1.0 + expected.abs()), "{what}: {found} instead of {expected}");
}

/// Quantities of one policy and one sequence by the equations.
struct Expected {
    value: Vec<f32>,
    traces: Vec<f32>,
    returns: Vec<f32>,
    error: Vec<f32>,
    q_target: Vec<f32>,
    q: Vec<f32>,
}

fn by_the_equations(scene: &Scene, b: usize, j: usize) -> Expected {
    let Scene { config, batch, .. } = scene;
    let beta = config.policies.betas()[j] as f32;
    let gamma = config.policies.gammas()[j] as f32;
    let length = LENGTHS[b];
    let entry = |t: usize| b * (TRACE + 1) + t + 1;
    let combined = |heads: &[Head; 3], t: usize| -> Vec<f32> {
        heads[0].row(b, t, j).iter().zip(heads[1].row(b, t, j)).map(|(e, i)| e + beta * i).collect()
    };
    let from = if config.returns.bootstrap == Bootstrap::Online { &scene.online } else { &scene.target };
    let chooser = if config.returns.bootstrap == Bootstrap::Target { &scene.target } else { &scene.online };
    let [mut value, mut baselines, mut coefficients] = [(); 3].map(|()| vec![0.0; TRACE]);
    for t in 0..length {
        let (q, chosen) = (combined(from, t), combined(chooser, t));
        let mut policy = vec![0.0; ACTIONS];
        if config.returns.kind == ReturnKind::Watkins {
            epsilon_greedy(&chosen, 0.0, &mut policy);
        } else if config.loss.distillation {
            target_policy(chooser[2].row(b, t, j), config.returns.temperature as f32, &mut policy);
        } else {
            epsilon_greedy(&chosen, config.loss.distillation_epsilon as f32, &mut policy);
        }
        let greedy = config.returns.kind == ReturnKind::Watkins && config.returns.bootstrap != Bootstrap::Double;
        value[t] = if greedy { greedy_value(&q) } else { expected_value(&q, &policy) };
        if t + 1 < length {
            let (action, lambda) = (batch.steps.action[entry(t)] as usize, config.returns.lambda as f32);
            baselines[t] = match config.returns.kind {
                ReturnKind::Retrace => unscale_f32(q[action]),
                _ => value[t],
            };
            coefficients[t] = match config.returns.kind {
                ReturnKind::SoftWatkins => {
                    traces::soft_watkins(lambda, config.returns.kappa as f32, &chosen, &policy, action)
                }
                ReturnKind::Watkins => traces::watkins(lambda, &chosen, action),
                ReturnKind::Peng => traces::peng(lambda),
                ReturnKind::NStep => 1.0,
                ReturnKind::Retrace => {
                    traces::retrace(lambda, policy[action], batch.steps.behaviour_probability[entry(t)])
                }
            };
        }
    }
    let mut rewards = vec![0.0; TRACE];
    let mut discounts = vec![0.0; TRACE];
    for t in 0..length - 1 {
        rewards[t] = batch.steps.reward_extrinsic[entry(t)] + beta * batch.steps.reward_ngu[entry(t + 1)];
        discounts[t] = batch.steps.discount[entry(t)];
    }
    let mut result = vec![0.0; TRACE];
    let trajectory = Trajectory {
        rewards: &rewards,
        discounts: &discounts,
        values: &value,
        baselines: &baselines,
        traces: &coefficients,
        length,
    };
    returns(gamma, trajectory, &mut result);
    if config.returns.kind == ReturnKind::NStep {
        result = n_step_returns(config.returns.n, gamma, &rewards, &discounts, &value, length);
    }
    let taken = |heads: &[Head; 3], t: usize| combined(heads, t)[batch.steps.action[entry(t)] as usize];
    let q: Vec<f32> = (0..length - 1).map(|t| taken(&scene.online, t)).collect();
    let q_target = (0..length - 1).map(|t| taken(&scene.target, t)).collect();
    let error = q.iter().zip(&result).map(|(&q, &g)| td_error(q, g)).collect();
    Expected { value, traces: coefficients, returns: result, error, q_target, q }
}

/// Σ_{k<m} (Π_{i<k} γd_{t+i}) r_{t+k} + (Π_{i<m} γd_{t+i}) V_{t+m}, with m = n or all steps that follow.
fn n_step_returns(n: usize, gamma: f32, rewards: &[f32], discounts: &[f32], values: &[f32], length: usize) -> Vec<f32> {
    let from = |t: usize| {
        let last = (t + n).min(length - 1);
        let (mut sum, mut discount) = (0.0, 1.0);
        for k in t..last {
            sum += discount * rewards[k];
            discount *= gamma * discounts[k];
        }
        sum + discount * values[last]
    };
    (0..TRACE).map(|t| if t < length { from(t) } else { 0.0 }).collect()
}

fn check(scene: &Scene) {
    let loss = evaluate(scene);
    let n = scene.config.policies.count;
    let config = &scene.config.loss;
    let at = |x: &[f32], b: usize, t: usize, j: usize| x[(b * TRACE + t) * n + j];
    let head = &loss.heads[0];
    let statistics = TdStatistics::new(&Vec::<f64>::try_from(head.td.statistics.reshape([-1])).unwrap());
    let (value, result, error) = (values(&head.value), values(&head.returns), values(&head.td.error));
    let (coefficients, keep) = (values(&loss.traces), values(&head.td.mask));
    let kl = loss.policy.as_ref().map(|policy| values(&policy.kl));
    let steps: usize = LENGTHS.iter().map(|length| length - 1).sum();
    let (mut td, mut distillation) = (0.0, 0.0);
    let (mut kept, mut kept_policy) = (0, 0);
    let mut normalised = vec![vec![]; B];
    for j in 0..n {
        let expected: Vec<Expected> = (0..B).map(|b| by_the_equations(scene, b, j)).collect();
        let errors = || expected.iter().flat_map(|e| e.error.iter().copied());
        let batch_std = unweighted(errors()).unwrap().std();
        let sigma = sigma(scene.scale.running()[j].std(), batch_std, FLOOR);
        close("sigma", statistics.sigma[j] as f32, sigma as f32);
        let pairs = expected.iter().enumerate().flat_map(|(b, e)| e.error.iter().map(move |&x| (b, x)));
        let weighted = weighted(pairs.map(|(b, x)| (x, scene.batch.sequences[b].importance_weight))).unwrap();
        close("weighted mean", statistics.moments[j].mean as f32, weighted.mean as f32);
        close("weighted mean square", statistics.moments[j].mean_square as f32, weighted.mean_square as f32);
        for (b, e) in expected.iter().enumerate() {
            let weight = f64::from(scene.batch.sequences[b].importance_weight)
                * mixture_weight(j, scene.batch.sequences[b].policy, n, config.eta())
                / steps as f64;
            let place = format!("sequence {b}, policy {j}");
            for t in 0..LENGTHS[b] {
                close(&format!("value, {place}, step {t}"), at(&value, b, t, j), e.value[t]);
            }
            for t in 0..LENGTHS[b] - 1 {
                close(&format!("trace, {place}, step {t}"), at(&coefficients, b, t, j), e.traces[t]);
                close(&format!("return, {place}, step {t}"), at(&result, b, t, j), e.returns[t]);
                close(&format!("error, {place}, step {t}"), at(&error, b, t, j), e.error[t]);
                let h = rescale_f32(e.returns[t]);
                let keeps = !config.trust_region
                    || keeps_loss(e.q[t], e.q_target[t], h, config.trust_region_radius as f32, sigma as f32);
                assert_eq!(at(&keep, b, t, j) == 1.0, keeps, "trust region, {place}, step {t}");
                kept += usize::from(keeps);
                let scaled =
                    if config.td_normalisation { f64::from(e.error[t]) / sigma } else { f64::from(e.error[t]) };
                td += if keeps { weight * 0.5 * scaled * scaled } else { 0.0 };
                if j == scene.batch.sequences[b].policy {
                    normalised[b].push(scaled as f32);
                }
                let (mut log, mut log_target, mut aim) = ([0.0; ACTIONS], [0.0; ACTIONS], [0.0; ACTIONS]);
                log_softmax(scene.online[2].row(b, t, j), &mut log);
                log_softmax(scene.target[2].row(b, t, j), &mut log_target);
                let beta = scene.config.policies.betas()[j] as f32;
                let (extrinsic, intrinsic) = (scene.online[0].row(b, t, j), scene.online[1].row(b, t, j));
                let q: Vec<f32> = extrinsic.iter().zip(intrinsic).map(|(e, i)| e + beta * i).collect();
                epsilon_greedy(&q, config.distillation_epsilon as f32, &mut aim);
                let keeps = keeps_distillation(&log_target, &log, config.kl_bound as f32);
                kept_policy += usize::from(keeps);
                if let Some(kl) = &kl {
                    close(&format!("KL, {place}, step {t}"), at(kl, b, t, j), kl_divergence(&log_target, &log));
                    distillation += if keeps { weight * f64::from(cross_entropy(&aim, &log)) } else { 0.0 };
                }
            }
        }
    }
    close("TD loss", values(&loss.td)[0], td as f32);
    close("distillation loss", values(&loss.distillation)[0], distillation as f32);
    let total = td + config.distillation_weight * distillation;
    close("total loss", values(&loss.total)[0], total as f32);
    for (b, (found, errors)) in values(&loss.priorities).into_iter().zip(&normalised).enumerate() {
        let expected = sequence_priority(errors, config.priority_max_share as f32);
        close(&format!("priority of sequence {b}"), found, expected);
    }
    if config.trust_region {
        assert!(kept > 0 && kept < steps * n, "the trust region masks {} of {}", steps * n - kept, steps * n);
    }
    assert!(kept_policy > 0 && kept_policy < steps * n, "the KL bound masks {}", steps * n - kept_policy);
}

#[test]
fn every_return_agrees_with_the_equations() {
    let kinds =
        [ReturnKind::SoftWatkins, ReturnKind::Watkins, ReturnKind::Peng, ReturnKind::Retrace, ReturnKind::NStep];
    for kind in kinds {
        for bootstrap in [Bootstrap::Online, Bootstrap::Target, Bootstrap::Double] {
            for distillation in [true, false] {
                let edit = |config: &mut AgentConfig| {
                    config.returns.kind = kind;
                    config.returns.bootstrap = bootstrap;
                    config.loss.distillation = distillation;
                };
                check(&scene(edit, 11));
            }
        }
    }
}

#[test]
fn switches_and_constants_agree_with_the_equations() {
    type Edit = fn(&mut AgentConfig);
    let edits: [Edit; 12] = [
        |config| config.loss.trust_region = false,
        |config| config.loss.td_normalisation = false,
        |config| config.loss.cross_mixture = 0.0,
        |config| config.loss.trained_policies = agent::config::TrainedPolicies::Behaviour,
        |config| config.returns.lambda = 0.0,
        |config| config.returns.lambda = 1.0,
        |config| config.loss.distillation_weight = 3.0,
        |config| config.policies.count = 1,
        |config| config.policies.count = 16,
        |config| (config.returns.kind, config.returns.n) = (ReturnKind::NStep, 1),
        |config| (config.returns.kind, config.returns.n) = (ReturnKind::NStep, 100),
        |config| {
            (config.policies.beta_slope, config.policies.discounts) = (10.0, agent::config::DiscountLadder::Agent57)
        },
    ];
    for (seed, edit) in edits.iter().enumerate() {
        check(&scene(edit, 20 + seed as u64));
    }
}
