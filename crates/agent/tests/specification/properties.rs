//! Properties that hold for every input, tested on seeded random ones.

use agent::Random;
use agent::bandit::{BanditParameters, DiscountedUcb};
use agent::intrinsic::{EpisodicMemory, EpisodicNovelty, Kernel, multiplier_of_error, nearest_by_scan, ngu_reward};
use agent::loss::mixture_weight;
use agent::moments::{BatchMoments, Moments};
use agent::policy_family::{beta_ladder, gamma_ladder};
use agent::rescaling::{rescale_value, unscale_value};
use rand::{RngExt, SeedableRng};
use rand_distr::StandardNormal;

use crate::distillation::{cross_entropy, kl_divergence};
use crate::moments::{sigma, unweighted, weighted};
use crate::policy::{argmax, epsilon_greedy, log_softmax, target_policy};
use crate::priority::sequence_priority;
use crate::rescaling::{rescale_f32, unscale_f32};
use crate::returns::{Trajectory, expected_value, greedy_value, returns, td_error};
use crate::traces::{peng, retrace, soft_watkins, watkins};
use crate::trust_region::keeps_loss;

fn normal(random: &mut Random) -> f64 {
    random.sample(StandardNormal)
}

/// Numbers of every magnitude from 1e-9 to 1e6, of either sign, and the ends of that range.
fn magnitudes(count: usize) -> impl Iterator<Item = f64> {
    let mut random = Random::seed_from_u64(42);
    let spread = (0..count).map(move |_| {
        let size = 10f64.powf(15.0 * random.random::<f64>() - 9.0);
        if random.random_range(0..2) == 0 { size } else { -size }
    });
    [0.0, -1e6, 1e6, 1e-30, -1e-30].into_iter().chain(spread)
}

#[test]
fn rescaling_round_trips_up_to_a_million() {
    for x in magnitudes(200_000) {
        let there_and_back = unscale_value(rescale_value(x));
        assert!((there_and_back - x).abs() <= 2e-15 * x.abs(), "{x} came back as {there_and_back}");
        let other_way = rescale_value(unscale_value(x));
        assert!((other_way - x).abs() <= 2e-15 * x.abs(), "{x} came back as {other_way}");
        // In f32, h(x) itself is rounded by up to 6e-8, which the inverse at most doubles before it is rounded too.
        let x = x as f32;
        let there_and_back = unscale_f32(rescale_f32(x));
        assert!((there_and_back - x).abs() <= 2e-7 * x.abs(), "{x} came back as {there_and_back}");
    }
}

#[test]
fn rescaling_is_odd_and_grows() {
    let mut all: Vec<f64> = magnitudes(10_000).collect();
    all.sort_by(f64::total_cmp);
    all.dedup();
    for pair in all.windows(2) {
        assert!(rescale_value(pair[0]) < rescale_value(pair[1]) && unscale_value(pair[0]) < unscale_value(pair[1]));
        assert_eq!(rescale_value(-pair[0]), -rescale_value(pair[0]));
        assert_eq!(unscale_value(-pair[0]), -unscale_value(pair[0]));
    }
}

/// G_t = r_t + γd_t V_{t+1} + Σ_k (Π_i γd_{t+i−1} λ_{t+i}) (r_{t+k} + γd_{t+k} V_{t+k+1} − V_{t+k}), every product
/// anew.
fn return_as_a_sum(gamma: f32, steps: &Trajectory<'_>, t: usize) -> f64 {
    let at = |values: &[f32], i: usize| f64::from(values[i]);
    let discount = |i: usize| f64::from(gamma) * at(steps.discounts, i);
    let last = steps.length - 1;
    if t == last {
        return at(steps.values, last);
    }
    let mut sum = at(steps.rewards, t) + discount(t) * at(steps.values, t + 1);
    for k in 1..last - t {
        let product: f64 = (1..=k).map(|i| discount(t + i - 1) * at(steps.traces, t + i)).product();
        let step =
            at(steps.rewards, t + k) + discount(t + k) * at(steps.values, t + k + 1) - at(steps.baselines, t + k);
        sum += product * step;
    }
    sum
}

#[test]
fn returns_equal_the_direct_sum_and_never_read_padding() {
    let mut random = Random::seed_from_u64(1);
    for case in 0..2_000 {
        let trace = 1 + random.random_range(0..48);
        let length = 1 + random.random_range(0..trace);
        let scale = [1.0, 1e-3, 1e6][case % 3];
        let gamma = [0.9997, 0.97, 0.5, 1.0][case % 4];
        // Whatever must not be read is NaN: padding, the last observation's reward and discount, λ at both ends.
        let mut draw = |from: usize, to: usize, value: fn(&mut Random) -> f64| -> Vec<f32> {
            (0..trace).map(|t| if (from..to).contains(&t) { value(&mut random) as f32 } else { f32::NAN }).collect()
        };
        let mut rewards = draw(0, length - 1, normal);
        let discounts = draw(0, length - 1, |random| if random.random_range(0..9) == 0 { 0.0 } else { 1.0 });
        let mut values = draw(0, length, normal);
        let mut baselines = draw(1, length - 1, normal);
        let traces = draw(1, length - 1, |random| random.random());
        rewards.iter_mut().chain(&mut values).chain(&mut baselines).for_each(|value| *value *= scale);
        let (rewards, discounts, values, baselines, traces) = (&rewards, &discounts, &values, &baselines, &traces);
        let steps = Trajectory { rewards, discounts, values, baselines, traces, length };
        let mut out = vec![f32::NAN; trace];
        returns(gamma, steps, &mut out);
        for (t, &found) in out.iter().enumerate() {
            let expected = if t < length { return_as_a_sum(gamma, &steps, t) } else { 0.0 };
            let error = (f64::from(found) - expected).abs();
            let allowed = 1e-7 * (f64::from(scale) + expected.abs());
            assert!(error <= allowed, "case {case}, G_{t}: {found} is not {expected}");
        }
    }
}

#[test]
fn trace_coefficients_stay_between_0_and_lambda_and_order_as_the_paper_says() {
    let mut random = Random::seed_from_u64(2);
    for _ in 0..5_000 {
        let actions = 1 + random.random_range(0..18);
        // Few different values, so that ties are common.
        let q: Vec<f32> = (0..actions).map(|_| random.random_range(0..6) as f32 - 3.0).collect();
        let logits: Vec<f32> = (0..actions).map(|_| 3.0 * random.sample::<f64, _>(StandardNormal) as f32).collect();
        let (mut policy, mut greedy) = (vec![0.0; actions], vec![0.0; actions]);
        target_policy(&logits, 0.25, &mut policy);
        epsilon_greedy(&q, 0.0, &mut greedy);
        let action = random.random_range(0..actions);
        let strict = soft_watkins(0.95, 0.0, &q, &policy, action);
        let soft = soft_watkins(0.95, 0.01, &q, &policy, action);
        let hard = watkins(0.95, &q, action);
        let rounding = 1.0 + 1e-6;
        assert!(0.0 <= strict && strict <= soft && soft <= peng(0.95) * rounding);
        assert!(hard <= strict * rounding, "Watkins cuts no less than Soft Watkins");
        assert_eq!(soft_watkins(0.95, 0.0, &q, &greedy, action), hard);
        let ratio = retrace(0.95, policy[action], 0.01 + 0.99 * random.random::<f64>() as f32);
        assert!((0.0..=0.95).contains(&ratio));
    }
}

#[test]
fn mixture_weights_and_ladders_hold_for_any_number_of_policies() {
    for policies in 1..=40 {
        for eta in [0.0, 0.3, 0.5, 1.0] {
            let total: f64 = (0..policies).map(|policy| mixture_weight(policy, policies / 2, policies, eta)).sum();
            assert!((total - 1.0).abs() < 1e-12);
        }
        let (betas, gammas) = (beta_ladder(policies, 0.1, 8.0), gamma_ladder(policies, 0.9997, 0.97));
        assert!(betas.is_sorted() && betas.iter().all(|beta| (0.0..=0.1).contains(beta)), "{betas:?}");
        assert!(gammas.is_sorted_by(|a, b| a >= b), "{gammas:?}");
        assert!(gammas.iter().all(|gamma| (0.97..=0.9997).contains(gamma)), "{gammas:?}");
    }
}

#[test]
fn nearest_neighbours_equal_a_scan_bit_for_bit() {
    let mut random = Random::seed_from_u64(3);
    for case in 0..300 {
        let dimensions = [1, 2, 3, 7, 16, 32, 33][random.random_range(0..7)];
        let capacity = 1 + random.random_range(0..200);
        let mut memory = EpisodicMemory::new(capacity, dimensions).unwrap();
        let mut written: Vec<Vec<f32>> = Vec::new();
        let mut found = Vec::new();
        for _ in 0..random.random_range(0..500) {
            if random.random_range(0..150) == 0 {
                memory.clear();
                written.clear();
            }
            // From a coarse grid in every third case, where equal distances are the rule.
            let mut component = || match case % 3 {
                0 => random.random_range(0..3) as f32,
                1 => random.sample::<f64, _>(StandardNormal) as f32,
                _ => (1e4 * random.sample::<f64, _>(StandardNormal).powi(3)) as f32,
            };
            let embedding: Vec<f32> = (0..dimensions).map(|_| component()).collect();
            let k = [1, 2, 10, 64][random.random_range(0..4)];
            let held = written[written.len().saturating_sub(capacity)..].concat();
            memory.nearest(&embedding, k, &mut found).unwrap();
            assert_eq!(found, nearest_by_scan(&held, &embedding, k), "case {case}");
            assert_eq!(memory.len(), held.len() / dimensions);
            memory.insert(&embedding).unwrap();
            written.push(embedding);
        }
        assert_eq!(memory.entries(), written[written.len().saturating_sub(capacity)..].concat());
    }
}

#[test]
fn nearest_neighbours_of_a_full_size_memory_equal_a_scan() {
    let mut random = Random::seed_from_u64(4);
    let mut memory = EpisodicMemory::new(30_000, 32).unwrap();
    let mut embedding = || -> Vec<f32> { (0..32).map(|_| random.sample::<f64, _>(StandardNormal) as f32).collect() };
    for _ in 0..31_234 {
        memory.insert(&embedding()).unwrap();
    }
    let entries = memory.entries();
    assert_eq!(entries.len(), 30_000 * 32);
    let mut found = Vec::new();
    for _ in 0..20 {
        let query = embedding();
        memory.nearest(&query, 10, &mut found).unwrap();
        assert_eq!(found, nearest_by_scan(&entries, &query, 10));
    }
}

#[test]
fn running_moments_equal_the_weighted_sum_of_all_batches() {
    let mut random = Random::seed_from_u64(5);
    let mut moments = Moments::new(0.99);
    let mut batches: Vec<BatchMoments> = Vec::new();
    for _ in 0..300 {
        let samples: Vec<(f32, f32)> = (0..1 + random.random_range(0..20))
            .map(|_| (random.sample::<f64, _>(StandardNormal) as f32, random.random::<f64>() as f32 + 0.1))
            .collect();
        let batch = weighted(samples).unwrap();
        moments.update(batch);
        batches.push(batch);
        let weights: Vec<f64> = (0..batches.len()).rev().map(|age| 0.99f64.powi(age as i32)).collect();
        let total: f64 = weights.iter().sum();
        let mean = |value: fn(&BatchMoments) -> f64| -> f64 {
            batches.iter().zip(&weights).map(|(batch, weight)| weight * value(batch)).sum::<f64>() / total
        };
        let (first, second) = (mean(|batch| batch.mean), mean(|batch| batch.mean_square));
        assert!((moments.mean() - first).abs() < 1e-11);
        assert!((moments.std() - (second - first * first).max(0.0).sqrt()).abs() < 1e-9);
    }
}

/// How large the numbers of a batch are.
struct Scales {
    q: f64,
    reward: f64,
    logit: f64,
    weight: f64,
}

fn finite(name: &str, value: f32) -> f32 {
    assert!(value.is_finite(), "the {name} is {value}");
    value
}

/// The losses, statistics and priority of one policy over one random sequence, which all have to be finite.
fn assert_all_finite(scales: &Scales, random: &mut Random) {
    let (steps, actions) = (2 + random.random_range(0..30), 1 + random.random_range(0..18));
    let mut draw = |scale: f64, count: usize| -> Vec<f32> {
        (0..count).map(|_| (scale * (2.0 * random.random::<f64>() - 1.0)) as f32).collect()
    };
    let rewards = draw(scales.reward, steps);
    let q: Vec<Vec<f32>> = (0..steps).map(|_| draw(scales.q, actions)).collect();
    let q_target: Vec<Vec<f32>> = (0..steps).map(|_| draw(scales.q, actions)).collect();
    let logits: Vec<Vec<f32>> = (0..steps).map(|_| draw(scales.logit, actions)).collect();
    let logits_target: Vec<Vec<f32>> = (0..steps).map(|_| draw(scales.logit, actions)).collect();
    let weight = draw(scales.weight, 1)[0].abs();
    let taken: Vec<usize> = (0..steps).map(|_| random.random_range(0..actions)).collect();
    let behaviour: Vec<f32> = (0..steps).map(|_| random.random_range(0..3) as f32 / 2.0).collect();
    let discounts: Vec<f32> = (0..steps).map(|_| if random.random_range(0..9) == 0 { 0.0 } else { 1.0 }).collect();

    let mut policies = vec![vec![0.0; actions]; steps];
    for t in 0..steps {
        target_policy(&logits[t], 0.25, &mut policies[t]);
        assert!((policies[t].iter().sum::<f32>() - 1.0).abs() < 1e-5);
        let (mut online, mut target, mut greedy) = (vec![0.0; actions], vec![0.0; actions], vec![0.0; actions]);
        log_softmax(&logits[t], &mut online);
        log_softmax(&logits_target[t], &mut target);
        epsilon_greedy(&q[t], 1e-4, &mut greedy);
        assert_eq!(argmax(&greedy), argmax(&q[t]));
        finite("cross-entropy", cross_entropy(&greedy, &online));
        assert!(finite("KL divergence", kl_divergence(&target, &online)) > -1e-4);
    }
    for rule in 0..4 {
        let coefficient = |t: usize| match rule {
            0 => soft_watkins(0.95, 0.01, &q[t], &policies[t], taken[t]),
            1 => watkins(0.95, &q[t], taken[t]),
            2 => peng(0.95),
            _ => retrace(0.95, policies[t][taken[t]], behaviour[t]),
        };
        let value = |t: usize| if rule == 1 { greedy_value(&q[t]) } else { expected_value(&q[t], &policies[t]) };
        let traces: Vec<f32> = (0..steps).map(|t| finite("trace coefficient", coefficient(t))).collect();
        let values: Vec<f32> = (0..steps).map(|t| finite("value", value(t))).collect();
        let baseline = |t: usize| if rule == 3 { unscale_f32(q[t][taken[t]]) } else { values[t] };
        let baselines: Vec<f32> = (0..steps).map(|t| finite("baseline", baseline(t))).collect();
        let (rewards, discounts, values, baselines, traces) = (&rewards, &discounts, &values, &baselines, &traces);
        let mut targets = vec![f32::NAN; steps];
        let trajectory = Trajectory { rewards, discounts, values, baselines, traces, length: steps };
        returns(0.9997, trajectory, &mut targets);
        let errors: Vec<f32> = (0..steps - 1)
            .map(|t| finite("TD error", td_error(q[t][taken[t]], finite("return", targets[t]))))
            .collect();

        let mut running = Moments::new(0.99);
        for _ in 0..2 {
            let deviation = unweighted(errors.iter().copied()).expect("at least one step").std();
            let sigma = finite("sigma", sigma(running.std(), deviation, 0.01) as f32);
            assert!(sigma >= 0.01);
            let normalised: Vec<f32> = errors.iter().map(|error| finite("normalised error", error / sigma)).collect();
            assert!(finite("priority", sequence_priority(&normalised, 0.9)) >= 0.0);
            for (t, &error) in normalised.iter().enumerate() {
                let kept = keeps_loss(q[t][taken[t]], q_target[t][taken[t]], rescale_f32(targets[t]), 2.0, sigma);
                finite("loss", if kept { weight * 0.5 * error * error } else { 0.0 });
            }
            if let Some(moments) = weighted(errors.iter().map(|&error| (error, weight))) {
                running.update(moments);
            }
        }
    }
}

#[test]
fn no_finite_batch_makes_a_nan() {
    let mut random = Random::seed_from_u64(6);
    for case in 0..1_000 {
        let scales = Scales {
            // Rescaled values: the largest stands for a reward of 1e6 per step forever at γ = 0.9997.
            q: [0.0, 1e-6, 1.0, 2e3, 4e6][case % 5],
            reward: [0.0, 1e-6, 1.0, 1e3, 1e6][case / 5 % 5],
            logit: [0.0, 1.0, 100.0, 1e6][case / 25 % 4],
            weight: [1.0, 0.0][case / 100 % 2],
        };
        assert_all_finite(&scales, &mut random);
    }
}

#[test]
fn intrinsic_rewards_of_finite_episodes_are_finite() {
    let mut random = Random::seed_from_u64(7);
    for scale in [0.0, 1e-20, 1e-3, 1.0, 1e6, 1e15] {
        let mut novelty = EpisodicNovelty::new(Kernel::default(), 50, 4).unwrap();
        let mut errors = Moments::new(0.999);
        for step in 0..120 {
            let embedding: Vec<f32> = (0..4).map(|_| (scale * (2.0 * random.random::<f64>() - 1.0)) as f32).collect();
            let episodic = novelty.observe(&embedding).unwrap();
            let error = scale * random.random::<f64>();
            let reward = ngu_reward(episodic, multiplier_of_error(error, &errors, 0.5, 5.0));
            // s is at least c = 0.001, and the multiplier at most 5.
            assert!((0.0..=5000.0).contains(&reward), "scale {scale}, step {step}: {reward}");
            assert_eq!(episodic == 0.0, step == 0, "scale {scale}, step {step}");
            errors.update(unweighted([error as f32]).unwrap());
        }
    }
}

#[test]
fn the_bandit_stays_finite_and_tries_every_arm_for_any_returns() {
    let mut random = Random::seed_from_u64(8);
    for scale in [0.0, 1e-9, 1.0, 1e6, 1e99] {
        for arms in [1, 2, 16] {
            let mut bandit = DiscountedUcb::new(arms, BanditParameters::default());
            for _ in 0..2_000 {
                let arm = bandit.choose([random.random::<f64>(), random.random::<f64>()]);
                bandit.update(arm, scale * (2.0 * random.random::<f64>() - 1.0)).unwrap();
            }
            for arm in 0..arms {
                assert!(bandit.score(arm).unwrap().is_finite() && bandit.arms[arm].episodes > 1.0);
            }
            assert!(bandit.greedy() < arms);
        }
    }
}
