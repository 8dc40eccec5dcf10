//! Acting by captured graphs on the GPU against the plain f32 path on the CPU.

use agent::Random;
use agent::acting::{Observation, ObservationRows, RecurrentStates, StepRewards};
use agent::config::{Precision, QHeads};
use agent::networks::NetworkParameters;
use agent::{ActingNetwork, ActingOutput, ActingRow, AgentConfig, AgentError, ObservationKind, ObservationSpec};
use half::f16;
use rand::{RngExt, SeedableRng};
use rand_distr::StandardNormal;
use tch::{Device, Tensor};

use crate::setup::{GPU, config, normal, relative, screen, tiny};

const ACTIONS: usize = 18;
/// Neither a power of two nor a multiple of the smallest graph.
const ENVIRONMENTS: usize = 21;

/// The same agent on CPU and GPU.
struct Pair {
    plain: ActingNetwork,
    captured: ActingNetwork,
}

/// Recurrent states of both.
struct States {
    plain: RecurrentStates,
    captured: RecurrentStates,
}

impl Pair {
    fn new(config: &AgentConfig, precision: Precision, observation: &ObservationSpec) -> Self {
        let network = |precision, device| {
            let mut config = config.clone();
            config.network.precision = precision;
            ActingNetwork::new(&config, observation, ACTIONS, device).unwrap()
        };
        Self { plain: network(Precision::F32, Device::Cpu), captured: network(precision, GPU) }
    }

    fn states(&self) -> States {
        let states = |device| RecurrentStates::new(&self.plain.networks, ENVIRONMENTS, device).unwrap();
        States { plain: states(Device::Cpu), captured: states(GPU) }
    }

    fn refresh(&mut self, seed: u64) {
        let mut random = Random::seed_from_u64(seed);
        let parameters = NetworkParameters::initialised(&self.plain.networks, &mut random, Device::Cpu).unwrap();
        for (name, view) in parameters.agent.named() {
            // Gains, biases and skip gains away from where they start, so that every path carries something.
            if name.starts_with("torso.") && view.dim() == 1 {
                let _ = view.shallow_clone().g_add_(&(normal(&view.size(), &mut random) * 0.2 + 0.1));
            }
        }
        let mut there = NetworkParameters::zeros(&self.captured.networks, GPU).unwrap();
        there.copy_from(&parameters).unwrap();
        self.plain.refresh(&parameters).unwrap();
        self.captured.refresh(&there).unwrap();
    }
}

/// Turns of some environments.
struct Turns {
    observation_bytes: usize,
    environments: Vec<usize>,
    observations: Vec<u8>,
    /// The same in places that the GPU reads from, those of the first environments apart from the others'.
    places: [ObservationRows; 2],
    embedding: Vec<f16>,
    first: Vec<bool>,
    rest: Vec<(i64, StepRewards, usize)>,
}

impl Turns {
    fn random(environments: &[usize], observation: &ObservationSpec, random: &mut Random, pair: &Pair) -> Self {
        let rows = environments.len();
        let networks = &pair.plain.networks;
        let observations: Vec<u8> = match observation.kind() {
            ObservationKind::U8 => (0..rows * observation.bytes()).map(|_| random.random::<u8>()).collect(),
            ObservationKind::F32 => (0..rows * observation.values())
                .flat_map(|_| (random.sample::<f64, _>(StandardNormal) as f32).to_le_bytes())
                .collect(),
        };
        let mut reward = || 5.0 * random.sample::<f64, _>(StandardNormal) as f32;
        let rewards: Vec<_> = (0..rows)
            .map(|_| StepRewards { extrinsic: reward(), ngu: reward(), rnd: reward(), episodic: reward() })
            .collect();
        Self {
            observation_bytes: observation.bytes(),
            environments: environments.to_vec(),
            places: places(environments, &observations, observation.bytes(), pair),
            observations,
            embedding: (0..rows * networks.embedding_length)
                .map(|_| f16::from_f64(random.sample::<f64, _>(StandardNormal)))
                .collect(),
            first: (0..rows).map(|_| random.random_range(0..5) == 0).collect(),
            rest: rewards
                .into_iter()
                .map(|rewards| {
                    (random.random_range(0..ACTIONS) as i64, rewards, random.random_range(0..networks.policies))
                })
                .collect(),
        }
    }

    /// Of new episodes, so that a step says the same whatever came before it.
    fn first(environments: &[usize], random: &mut Random, pair: &Pair) -> Self {
        let mut turns = Self::random(environments, &screen(), random, pair);
        turns.first.fill(true);
        turns
    }

    /// With the observations of other turns, in the places of those.
    fn seeing<'a>(&'a self, other: &'a Self) -> Vec<ActingRow<'a>> {
        let mut rows = self.rows();
        rows.iter_mut().zip(other.rows()).for_each(|(row, other)| row.observation = other.observation);
        rows
    }

    /// Most are read from their places, some have to be copied there first.
    fn observation(&self, i: usize) -> Observation<'_> {
        let environment = self.environments[i];
        if environment % 6 == 5 {
            return self.observations[i * self.observation_bytes..(i + 1) * self.observation_bytes].into();
        }
        let (set, row) = place(environment);
        self.places[set].row(row).unwrap()
    }

    fn rows(&self) -> Vec<ActingRow<'_>> {
        let embedding = self.embedding.len() / self.environments.len();
        let row = |i: usize| {
            let (action, rewards, policy) = self.rest[i];
            ActingRow {
                environment: self.environments[i],
                first: self.first[i],
                wants_state: i % 3 != 1,
                observation: self.observation(i),
                action,
                rewards,
                embedding: &self.embedding[i * embedding..(i + 1) * embedding],
                policy,
                kept_blocks: None,
            }
        };
        (0..self.environments.len()).map(row).collect()
    }
}

/// Environments whose observations are in the first of two sets of rows.
const FIRST_PLACES: usize = 9;

/// The set and the row of an environment.
fn place(environment: usize) -> (usize, usize) {
    match environment.checked_sub(FIRST_PLACES) {
        None => (0, environment),
        Some(row) => (1, row),
    }
}

fn places(environments: &[usize], observations: &[u8], bytes: usize, pair: &Pair) -> [ObservationRows; 2] {
    let sets = pair.captured.observation_rows(&[FIRST_PLACES, ENVIRONMENTS - FIRST_PLACES]).unwrap();
    let mut sets: [ObservationRows; 2] = sets.try_into().unwrap();
    for (i, &environment) in environments.iter().enumerate() {
        let (set, row) = place(environment);
        sets[set].row_mut(row).unwrap().copy_from_slice(&observations[i * bytes..(i + 1) * bytes]);
    }
    sets
}

fn close(name: &str, found: &[f32], wanted: &[f32], bound: f64) {
    assert_eq!(found.len(), wanted.len(), "{name}");
    if wanted.is_empty() || wanted.iter().all(|&x| x == 0.0) {
        assert_eq!(found, wanted, "{name}");
        return;
    }
    let error = relative(&Tensor::from_slice(found), &Tensor::from_slice(wanted));
    println!("{name}: {error:.2e}");
    assert!(error < bound, "{name} differs by {error}");
}

fn compare(found: &ActingOutput, wanted: &ActingOutput) {
    close("logits", &found.logits, &wanted.logits, 2e-2);
    close("q", &found.q, &wanted.q, 2e-2);
    close("embedding", &found.embedding, &wanted.embedding, 2e-2);
    close("RND error", &found.rnd_error, &wanted.rnd_error, 2e-2);
    assert_eq!(found.state_before.len(), wanted.state_before.len());
    for (found, wanted) in found.state_before.iter().zip(&wanted.state_before) {
        assert_eq!(found.is_some(), wanted.is_some());
        if let (Some(found), Some(wanted)) = (found, wanted) {
            close("state before", found, wanted, 3e-2);
        }
    }
}

fn compare_states(states: &States) {
    for environment in 0..ENVIRONMENTS {
        let (found, wanted) = (states.captured.read(environment).unwrap(), states.plain.read(environment).unwrap());
        close(&format!("state of {environment}"), &found, &wanted, 3e-2);
    }
}

/// Every size of graph, subsets and orders of environments, beginnings of episodes, and newer parameters in between.
fn play(config: &AgentConfig, precision: Precision, observation: &ObservationSpec) {
    let mut pair = Pair::new(config, precision, observation);
    let mut states = pair.states();
    let mut random = Random::seed_from_u64(4);
    let all: Vec<usize> = (0..ENVIRONMENTS).collect();
    let backwards: Vec<usize> = all.iter().rev().copied().collect();
    for (step, environments) in
        [&all[..], &backwards[..5], &all[3..12], &all[..16], &backwards[..], &[7], &all[5..], &all[..16], &all[..8]]
            .into_iter()
            .enumerate()
    {
        if step % 3 == 0 {
            pair.refresh(step as u64);
        }
        let turns = Turns::random(environments, observation, &mut random, &pair);
        println!("step {step}, {} rows", environments.len());
        let wanted = pair.plain.step(&turns.rows(), &mut states.plain).unwrap();
        let found = pair.captured.step(&turns.rows(), &mut states.captured).unwrap();
        compare(&found, &wanted);
        compare_states(&states);
    }
    assert!(pair.captured.device_milliseconds().unwrap().unwrap() > 0.0);
}

#[test]
fn graphs_agree_with_the_plain_path() {
    play(&config(), Precision::Auto, &screen());
}

#[test]
fn graphs_agree_on_colour_images() {
    play(&config(), Precision::Auto, &ObservationSpec::array(vec![84, 84, 3], ObservationKind::U8));
}

#[test]
fn graphs_agree_in_single_precision() {
    play(&config(), Precision::F32, &screen());
}

#[test]
fn graphs_agree_without_memory_on_flat_observations() {
    let mut config = tiny();
    config.network.recurrent = false;
    config.loss.q_heads = QHeads::Single;
    config.loss.distillation = false;
    play(&config, Precision::Auto, &ObservationSpec::array(vec![6], ObservationKind::F32));
}

/// Floats are not converted, so networks read them as they were gathered.
#[test]
fn graphs_agree_on_images_of_floats() {
    let config = tiny();
    play(&config, Precision::Auto, &ObservationSpec::array(vec![24, 24], ObservationKind::F32));
}

/// Actors and evaluators are two networks over one table of states, whose steps overlap.
#[test]
fn two_networks_share_a_table_of_states() {
    let observation = screen();
    let mut actor = Pair::new(&config(), Precision::Auto, &observation);
    let mut evaluator = Pair::new(&config(), Precision::Auto, &observation);
    actor.refresh(1);
    evaluator.refresh(2);
    let mut states = actor.states();
    let mut random = Random::seed_from_u64(8);
    let (actors, evaluators): (Vec<usize>, Vec<usize>) =
        (0..ENVIRONMENTS).partition(|environment| environment % 4 != 0);
    for step in 0..4 {
        println!("step {step}");
        let turns = [(&actors, &actor), (&evaluators, &evaluator)]
            .map(|(environments, pair)| Turns::random(environments, &observation, &mut random, pair));
        let [actor_rows, evaluator_rows] = [turns[0].rows(), turns[1].rows()];
        let first = actor.captured.begin(&actor_rows, &mut states.captured).unwrap();
        let second = evaluator.captured.begin(&evaluator_rows, &mut states.captured).unwrap();
        let found = [first.finish().unwrap(), second.finish().unwrap()];
        compare(&found[0], &actor.plain.step(&actor_rows, &mut states.plain).unwrap());
        compare(&found[1], &evaluator.plain.step(&evaluator_rows, &mut states.plain).unwrap());
        compare_states(&states);
        if step == 1 {
            evaluator.refresh(3);
        }
    }
}

/// A table of other states: graphs that were captured for the first must not be used.
#[test]
fn graphs_are_recorded_again_for_another_table_of_states() {
    let observation = screen();
    let mut pair = Pair::new(&config(), Precision::Auto, &observation);
    pair.refresh(5);
    let mut tables = [pair.states(), pair.states()];
    let mut random = Random::seed_from_u64(9);
    // All of them: how large the values of three rows are, which errors are measured by, is a matter of chance.
    let environments: Vec<usize> = (0..ENVIRONMENTS).rev().collect();
    for table in [0, 1, 0] {
        let turns = Turns::random(&environments, &observation, &mut random, &pair);
        let states = &mut tables[table];
        let wanted = pair.plain.step(&turns.rows(), &mut states.plain).unwrap();
        compare(&pair.captured.step(&turns.rows(), &mut states.captured).unwrap(), &wanted);
        tables.iter().for_each(compare_states);
    }
}

/// The GPU reads observations in place while the host continues, so they must not be written meanwhile.
#[test]
fn refuses_writes_to_observations_that_the_gpu_reads() {
    let observation = screen();
    let mut pair = Pair::new(&config(), Precision::Auto, &observation);
    pair.refresh(6);
    let mut states = pair.states();
    let mut random = Random::seed_from_u64(10);
    let mut turns = Turns::random(&[0, 1, 2], &observation, &mut random, &pair);
    let rows = turns.rows();
    let step = pair.captured.begin(&rows, &mut states.captured).unwrap();
    drop(rows);
    let refused = turns.places[0].row_mut(1).unwrap_err();
    assert!(matches!(refused, AgentError::InFlight { row: 1 }), "{refused}");
    turns.places[1].row_mut(0).unwrap().fill(1);
    let found = step.finish().unwrap();
    compare(&found, &pair.plain.step(&turns.rows(), &mut states.plain).unwrap());
    turns.places[0].row_mut(1).unwrap().fill(7);
    // A dropped step releases the rows too.
    let rows = turns.rows();
    drop(pair.captured.begin(&rows, &mut states.captured).unwrap());
    drop(rows);
    turns.places[0].row_mut(1).unwrap().fill(9);
}

fn send(rows: &[ActingRow<'_>], pair: &mut Pair, states: &States) {
    let observations: Vec<_> = rows.iter().map(|row| (row.environment, row.observation)).collect();
    pair.captured.send(&observations, &states.captured).unwrap();
}

fn step(rows: &[ActingRow<'_>], pair: &mut Pair, states: &mut States) -> ActingOutput {
    pair.captured.step(rows, &mut states.captured).unwrap()
}

/// Networks, states, and two sets of turns of the same environments that differ in nothing but the observations when
/// the second is seen in the first's place; what a step says to either, with nothing sent ahead.
fn two_views(environments: &[usize], seed: u64) -> (Pair, States, [Turns; 2], [ActingOutput; 2]) {
    let mut pair = Pair::new(&config(), Precision::Auto, &screen());
    pair.refresh(seed);
    let (mut states, mut random) = (pair.states(), Random::seed_from_u64(seed));
    let turns = [(); 2].map(|()| Turns::first(environments, &mut random, &pair));
    let wanted = [0, 1].map(|seen| step(&turns[0].seeing(&turns[seen]), &mut pair, &mut states));
    for (i, (one, other)) in wanted[0].rnd_error.iter().zip(&wanted[1].rnd_error).enumerate() {
        assert_ne!(one, other, "row {i} can't tell the views apart");
    }
    compare(&wanted[0], &pair.plain.step(&turns[0].rows(), &mut states.plain).unwrap());
    (pair, states, turns, wanted)
}

#[test]
fn uploads_ahead_equal_uploads_by_the_step() {
    let all: Vec<usize> = (0..ENVIRONMENTS).collect();
    let (mut pair, mut states, turns, wanted) = two_views(&all, 11);
    for round in 0..4 {
        for (seen, wanted) in turns.iter().zip(&wanted) {
            let rows = turns[0].seeing(seen);
            // All, none, chunks of four in reverse order, and all but the first chunk.
            match round {
                0 => send(&rows, &mut pair, &states),
                1 => {}
                2 => rows.chunks(4).rev().for_each(|chunk| send(chunk, &mut pair, &states)),
                _ => send(&rows[4..], &mut pair, &states),
            }
            assert_eq!(step(&rows, &mut pair, &mut states), *wanted, "round {round}");
        }
    }
}

#[test]
fn a_step_sees_its_own_observation_after_two_uploads() {
    let (mut pair, mut states, turns, wanted) = two_views(&[0, 1, 2, 3, 9, 10], 12);
    let views = [0, 1].map(|seen| turns[0].seeing(&turns[seen]));
    for (earlier, later) in [(0, 1), (1, 0), (0, 0)] {
        for given in [later, earlier] {
            send(&views[earlier], &mut pair, &states);
            send(&views[later], &mut pair, &states);
            assert_eq!(step(&views[given], &mut pair, &mut states), wanted[given], "{earlier}, {later}, {given}");
        }
    }
}

#[test]
fn unused_uploads_never_replace_other_observations() {
    let (mut pair, mut states, [mut turns, other], wanted) = two_views(&[0, 1, 2], 13);
    send(&turns.rows(), &mut pair, &states);
    let refused = turns.places[0].row_mut(0).unwrap_err();
    assert!(matches!(refused, AgentError::InFlight { row: 0 }), "{refused}");
    // After a step of one of them the others' places may be written again, but have not been yet.
    step(&turns.rows()[1..2], &mut pair, &mut states);
    assert_eq!(step(&turns.rows(), &mut pair, &mut states), wanted[0]);
    send(&turns.rows(), &mut pair, &states);
    step(&turns.rows()[1..2], &mut pair, &mut states);
    for (row, bytes) in other.observations.chunks(screen().bytes()).enumerate() {
        turns.places[0].row_mut(row).unwrap().copy_from_slice(bytes);
    }
    assert_eq!(step(&turns.rows(), &mut pair, &mut states), wanted[1]);
}

/// An environment whose episode has ended asks twice: first with its last observation, which has no place.
#[test]
fn the_last_and_the_next_first_observation_coexist() {
    let (mut pair, mut states, turns, wanted) = two_views(&[0, 1, 2], 14);
    let mut last = turns[0].rows();
    for (row, bytes) in last.iter_mut().zip(turns[0].observations.chunks(screen().bytes())) {
        row.observation = bytes.into();
    }
    let first = turns[0].seeing(&turns[1]);
    for _ in 0..2 {
        send(&first, &mut pair, &states);
        assert_eq!(step(&last, &mut pair, &mut states), wanted[0]);
        assert_eq!(step(&first, &mut pair, &mut states), wanted[1]);
    }
}

/// Uploads after a step that is still running must not reach it.
#[test]
fn a_step_sees_what_it_began_with() {
    let all: Vec<usize> = (0..ENVIRONMENTS).collect();
    let (mut pair, mut states, turns, wanted) = two_views(&all, 15);
    let views = [0, 1].map(|seen| turns[0].seeing(&turns[seen]));
    let after = |states: &States| all.iter().map(|&e| states.captured.read(e).unwrap()).collect::<Vec<_>>();
    step(&views[0], &mut pair, &mut states);
    let moved = after(&states);
    for _ in 0..5 {
        step(&views[1], &mut pair, &mut states);
        assert_ne!(after(&states), moved);
        drop(pair.captured.begin(&views[0], &mut states.captured).unwrap());
        send(&views[1], &mut pair, &states);
        // A later step returns its states.
        let mut rows = turns[0].seeing(&turns[1]);
        rows.iter_mut().for_each(|row| (row.first, row.wants_state) = (false, true));
        let output = step(&rows, &mut pair, &mut states);
        assert_eq!(output.state_before, moved.iter().cloned().map(Some).collect::<Vec<_>>());
        // f and RND's error have no memory.
        assert_eq!((&output.embedding, &output.rnd_error), (&wanted[1].embedding, &wanted[1].rnd_error));
    }
}
