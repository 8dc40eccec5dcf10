//! Whole updates in 16 bits on the GPU against f32 on the CPU.

use agent::Random;
use agent::acting::StepRewards;
use agent::config::Precision;
use agent::learner::ParameterSource;
use agent::loader::LoadedBatch;
use agent::{
    ActingNetwork, ActingRow, AgentConfig, AgentError, Learner, ObservationKind, ObservationSpec, RecurrentStates,
    SequenceBatch, StepReport, random_batch,
};
use half::f16;
use rand::SeedableRng;
use tch::Device;

use crate::setup::{GPU, config, relative, screen};

const ACTIONS: usize = 18;
const LENGTHS: [usize; 4] = [7, 7, 6, 3];

fn learner(config: &AgentConfig, precision: Precision, device: Device) -> Learner {
    learner_of(&screen(), config, precision, device)
}

fn learner_of(observation: &ObservationSpec, config: &AgentConfig, precision: Precision, device: Device) -> Learner {
    let mut config = config.clone();
    config.network.precision = precision;
    Learner::new(&config, observation, ACTIONS, 11, device).unwrap()
}

fn batch(learner: &Learner, seed: u64) -> SequenceBatch {
    random_batch(&learner.networks, 7, &LENGTHS, &mut Random::seed_from_u64(seed))
}

fn loaded(learner: &Learner, batch: &SequenceBatch) -> LoadedBatch {
    let loader = learner.loader().unwrap();
    let mut memory = loader.memory(batch.sequences.len(), batch.trace).unwrap();
    memory.bytes().unwrap().copy_from_slice(&batch.observations);
    loader.load(batch, &mut memory).unwrap()
}

fn close(name: &str, found: f64, wanted: f64, bound: f64) {
    let error = (found - wanted).abs() / wanted.abs().max(1e-12);
    println!("{name}: {found} and {wanted}, {error:.2e}");
    assert!(error < bound, "{name} is {found}, not {wanted}");
}

fn compare(found: &StepReport, wanted: &StepReport) {
    close("total loss", found.losses.total, wanted.losses.total, 1e-2);
    close("TD loss", found.losses.td, wanted.losses.td, 1e-2);
    close("distillation loss", found.losses.distillation, wanted.losses.distillation, 1e-2);
    close("action prediction loss", found.losses.action_prediction, wanted.losses.action_prediction, 1e-2);
    close("RND loss", found.losses.rnd, wanted.losses.rnd, 1e-2);
    for (i, (found, wanted)) in found.priorities.iter().zip(&wanted.priorities).enumerate() {
        close(&format!("priority {i}"), f64::from(*found), f64::from(*wanted), 2e-2);
    }
}

#[test]
fn one_update_agrees_with_the_cpu() {
    for seed in [1, 2] {
        let (mut plain, mut mixed) =
            (learner(&config(), Precision::F32, Device::Cpu), learner(&config(), Precision::Auto, GPU));
        let sequences = batch(&plain, seed);
        let (wanted, found) = (plain.step(&sequences).unwrap(), mixed.step(&sequences).unwrap());
        compare(&found, &wanted);
    }
}

#[test]
fn one_update_of_colour_images_agrees_with_the_cpu() {
    for shape in [[84, 84, 3], [105, 80, 4]] {
        let observation = ObservationSpec::array(shape.to_vec(), ObservationKind::U8);
        let learner = |precision, device| learner_of(&observation, &config(), precision, device);
        let (mut plain, mut mixed) = (learner(Precision::F32, Device::Cpu), learner(Precision::Auto, GPU));
        let sequences = batch(&plain, 1);
        let (wanted, found) = (plain.step(&sequences).unwrap(), mixed.step(&sequences).unwrap());
        compare(&found, &wanted);
        compare_gradients(&mixed, &plain);
    }
}

/// The greedy action of fresh parameters depends on differences that 16 bits don't see, and with it a part of the
/// targets; and with noise for images most of a gradient cancels out over the frames. So the bound is wide: what it
/// shows is that no part is missing, scaled or of the wrong sign. The pieces have close bounds, in the other files.
#[test]
fn gradients_of_an_update_agree_with_the_cpu() {
    for seed in [1, 2] {
        let (mut plain, mut mixed) =
            (learner(&config(), Precision::F32, Device::Cpu), learner(&config(), Precision::Auto, GPU));
        let sequences = batch(&plain, seed);
        plain.step(&sequences).unwrap();
        mixed.step(&sequences).unwrap();
        compare_gradients(&mixed, &plain);
    }
}

fn compare_gradients(mixed: &Learner, plain: &Learner) {
    let error = relative(mixed.gradients().flat(), plain.gradients().flat());
    println!("all gradients: {error:.2e}");
    assert!(error < 0.1, "the gradients differ by {error}");
    // Of 10 bits a factor, and without anything that is chosen.
    for (name, (mixed, plain)) in
        ["f", "RND"].iter().zip(mixed.intrinsic_gradients().into_iter().zip(plain.intrinsic_gradients()))
    {
        let error = relative(mixed.flat(), plain.flat());
        println!("gradients of {name}: {error:.2e}");
        assert!(error < 1e-2, "the gradients of {name} differ by {error}");
    }
}

/// Updates on one batch with one target network, in f32 and in 16 bits: medians of fifty losses, averaged over batches,
/// are near each other, and in the end no more than `left` of the first loss is left.
///
/// One curve alone says little: now and then a loss jumps up for some updates, with either precision, and when it does
/// is chance.
fn follow(config: &AgentConfig, updates: usize, left: f64) {
    const SEEDS: [u64; 4] = [3, 4, 5, 6];
    let mut config = config.clone();
    config.copies.target_period = 1000;
    let mut curves = [Precision::F32, Precision::Auto].map(|_| vec![0.0; updates / 50]);
    for seed in SEEDS {
        let sequences = batch(&learner(&config, Precision::F32, GPU), seed);
        for (curve, precision) in curves.iter_mut().zip([Precision::F32, Precision::Auto]) {
            let mut learner = learner(&config, precision, GPU);
            let loss = |_| learner.step(&sequences).unwrap().losses.total;
            let losses: Vec<_> = (0..updates).map(loss).collect();
            for (mean, part) in curve.iter_mut().zip(losses.chunks(50)) {
                let mut part = part.to_vec();
                part.sort_by(f64::total_cmp);
                *mean += part[part.len() / 2] / losses[0] / SEEDS.len() as f64;
            }
        }
    }
    let [plain, mixed] = curves;
    for (plain, mixed) in plain.iter().zip(&mixed) {
        let apart = mixed - plain;
        println!("50 updates: {plain:.4} of the first loss in f32, {apart:+.2e} in 16 bits");
        assert!(apart.abs() < 5e-2, "the curves are {apart} of the first loss apart");
    }
    let found = mixed[mixed.len() - 1];
    assert!(found < left, "{found} of the loss is left");
}

/// Batches that can be learned by heart: returns depend on nothing that is learned, and no bound takes a step's loss
/// away.
#[test]
fn two_hundred_updates_follow_the_loss_curve_of_f32() {
    let mut config = config();
    config.optimizer.learning_rate = 1e-4;
    (config.policies.gamma_max, config.policies.gamma_min) = (0.0, 0.0);
    (config.loss.trust_region, config.loss.kl_bound) = (false, 1e6);
    follow(&config, 200, 0.3);
}

/// Returns and bounds as they are, until the bounds take over: from then on the loss falls when one policy after the
/// other passes the bound on its KL divergence, all steps together, and one update earlier or later is a large
/// difference.
#[test]
fn the_whole_agent_follows_the_loss_curve_of_f32_up_to_its_bounds() {
    let mut config = config();
    config.optimizer.learning_rate = 2e-5;
    follow(&config, 100, 0.9);
}

/// Novelty is an actor's error by the learner's mean: of the same parameters and observations both find the same, also
/// when little is left of it.
#[test]
fn small_rnd_errors_of_learning_and_acting_agree() {
    let mut config = config();
    // The mean of the last batch alone.
    config.intrinsic.rnd.moments_decay = 0.0;
    let mut learner = learner(&config, Precision::Auto, GPU);
    let sequences = batch(&learner, 4);
    let first = learner.step(&sequences).unwrap().losses.rnd;
    let mut updates = 0..400;
    while learner.step(&sequences).unwrap().losses.rnd > 1e-3 * first {
        assert!(updates.next().is_some(), "RND does not learn");
    }
    let mut network = ActingNetwork::new(&config, &screen(), ACTIONS, GPU).unwrap();
    let parameters = learner.parameters(ParameterSource::Online).unwrap();
    // The network copies them on a stream of its own.
    tch::Cuda::synchronize(0);
    network.refresh(&parameters).unwrap();
    let wanted = learner.step(&sequences).unwrap().rnd.mean;
    let bytes = screen().bytes();
    let learned = LENGTHS.iter().enumerate().flat_map(|(sequence, &length)| {
        let steps = length.saturating_sub(config.intrinsic.steps)..length;
        steps.map(move |step| (sequence * LENGTHS[0] + step) * bytes)
    });
    let embedding = vec![f16::ZERO; network.networks.embedding_length];
    let row = |(environment, start): (usize, usize)| ActingRow {
        environment,
        first: true,
        wants_state: false,
        observation: sequences.observations[start..start + bytes].into(),
        action: 0,
        rewards: StepRewards::default(),
        embedding: &embedding,
        policy: 0,
        kept_blocks: None,
    };
    let rows: Vec<_> = learned.enumerate().map(row).collect();
    let mut states = RecurrentStates::new(&network.networks, rows.len(), GPU).unwrap();
    let errors = network.step(&rows, &mut states).unwrap().rnd_error;
    let found = errors.iter().map(|&error| f64::from(error)).sum::<f64>() / errors.len() as f64;
    println!("from {first:.2e} to {wanted:.2e}");
    close("RND error", found, wanted, 2e-2);
}

/// Begun before the last one is finished, updates are the same as one after the other; with a target copy among them.
#[test]
fn updates_begun_ahead_equal_sequential_ones() {
    let mut config = config();
    config.copies.target_period = 3;
    let (mut plain, mut ahead) = (learner(&config, Precision::Auto, GPU), learner(&config, Precision::Auto, GPU));
    assert!(ahead.runs_ahead());
    let batches: Vec<_> = (0..8).map(|seed| batch(&plain, seed)).collect();
    let wanted: Vec<_> = batches.iter().map(|batch| plain.step(batch).unwrap()).collect();
    let mut found = vec![];
    for (i, batch) in batches.iter().enumerate() {
        // What is loaded and freed again at once must not be overwritten while the device still reads it.
        let loaded = loaded(&ahead, batch);
        found.extend(ahead.begin(&loaded).unwrap());
        assert_eq!((ahead.updates(), found.len()), (i as u64 + 1, i));
    }
    assert!(ahead.save().unwrap_err().to_string().contains("update 8 is still pending"));
    found.extend(ahead.finish().unwrap());
    assert!(ahead.finish().unwrap().is_none());
    for (found, wanted) in found.iter().zip(&wanted) {
        assert_eq!(found.update, wanted.update);
        compare(found, wanted);
    }
    // cuDNN adds in an order of its own choosing, so the parameters are near, not the same.
    let parameters = |learner: &Learner| learner.parameters(ParameterSource::Online).unwrap();
    let error = relative(parameters(&ahead).agent.flat(), parameters(&plain).agent.flat());
    println!("parameters after 8 updates: {error:.2e}");
    assert!(error < 1e-2, "the parameters differ by {error}");
}

/// From the fourth update of a batch size on, begun updates are captured ones. A learner resumed from the same state
/// launches them kernel by kernel. Two sizes, with a target copy just before.
#[test]
fn recorded_updates_agree_with_plain_ones() {
    let mut config = config();
    config.copies.target_period = 6;
    let mut captured = learner(&config, Precision::Auto, GPU);
    for lengths in [&LENGTHS[..], &LENGTHS[1..]] {
        let batch =
            |learner: &Learner, seed| random_batch(&learner.networks, 7, lengths, &mut Random::seed_from_u64(seed));
        for seed in 0..6 {
            let loaded = loaded(&captured, &batch(&captured, seed));
            captured.begin(&loaded).unwrap();
        }
        captured.finish().unwrap();
        let mut given = Learner::restore(&config, &screen(), ACTIONS, &captured.save().unwrap(), GPU).unwrap();
        let sequences = batch(&given, 6);
        let wanted = given.step(&sequences).unwrap();
        captured.begin(&loaded(&captured, &sequences)).unwrap();
        let found = captured.finish().unwrap().unwrap();
        compare(&found, &wanted);
        close("mean error of RND", found.rnd.mean, wanted.rnd.mean, 1e-4);
        let gradients = |learner: &Learner| {
            let [f, rnd] = learner.intrinsic_gradients();
            [learner.gradients(), f, rnd].map(|set| set.flat().copy())
        };
        for (name, (found, wanted)) in
            ["agent", "f", "RND"].iter().zip(gradients(&captured).iter().zip(&gradients(&given)))
        {
            let error = relative(found, wanted);
            println!("gradients of {name}: {error:.2e}");
            assert!(error < 1e-2, "the gradients of {name} differ by {error}");
        }
    }
}

/// The device detects a non-finite update and changes nothing, bit for bit, in plain and in captured updates.
#[test]
fn a_non_finite_update_changes_nothing() {
    for done in [1, 5] {
        let mut config = config();
        // The update that fails would be followed by a copy to the target network.
        config.copies.target_period = done + 1;
        let mut learner = learner(&config, Precision::Auto, GPU);
        let (good, mut huge) = (batch(&learner, 1), batch(&learner, 2));
        huge.steps.reward_extrinsic[2] = 3e38;
        for _ in 0..done {
            learner.begin(&loaded(&learner, &good)).unwrap();
        }
        learner.finish().unwrap();
        let before = learner.save().unwrap();
        let refused = |outcome: Result<Option<StepReport>, AgentError>| {
            let error = outcome.unwrap_err();
            println!("{error}");
            let AgentError::NonFinite { value, update, .. } = &error else { panic!("{error}") };
            assert!(!value.is_finite() && *update == done + 1, "{error}");
        };
        refused(learner.step(&huge).map(Some));
        assert!(learner.save().unwrap() == before, "one call changed something");
        assert!(learner.begin(&loaded(&learner, &huge)).unwrap().is_none());
        refused(learner.finish());
        assert!(learner.save().unwrap() == before, "two calls changed something");
        assert!(learner.begin(&loaded(&learner, &huge)).unwrap().is_none());
        refused(learner.begin(&loaded(&learner, &good)));
        assert!(learner.save().unwrap() == before, "an update begun after it changed something");
        assert_eq!(learner.step(&good).unwrap().update, done + 1);
    }
}
