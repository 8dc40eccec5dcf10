//! Requests, inputs and sequences of an actor environment, step by step, with made-up decisions.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod support;

use std::sync::Arc;
use std::time::Duration;

use agent::acting::StepRewards;
use agent::bandit::BanditParameters;
use agent::intrinsic::{EpisodicNovelty, ngu_reward};
use agent::policy_family::actor_epsilon;
use envs::{Ending, EpisodeEnd, Step};
use half::f16;
use replay::{Layout, RateLimiterConfig, Replay, ReplayConfig, Sampler, SequenceBatch, Writer};
use train::config::IntrinsicConfig;
use train::roles::actor_env::{EnvActor, EnvActorSpec, Exploration};
use train::roles::bandit::SharedBandit;
use train::roles::messages::{ActRequest, Decision, EpisodeReport, NoveltySums, Position, PreviousStep, Role};

const LAYOUT: Layout = Layout { observation_bytes: 1, embedding: 2, state: 2, trace: 4, period: 2 };
const ACTIONS: usize = 3;

/// With one neighbour, the second observation of an episode already has a novelty.
fn intrinsic() -> IntrinsicConfig {
    support::config(&["intrinsic.kernel.neighbours=1"]).intrinsic
}

fn replay() -> Arc<Replay> {
    let rate_limiter = RateLimiterConfig { samples_per_insert: 1.0, min_fill: 1, slack: f64::INFINITY };
    let config =
        ReplayConfig { layout: LAYOUT, shards: 1, capacity: 100, rate_limiter, ..ReplayConfig::paper_sized(1, 2) };
    Replay::new(config).unwrap()
}

fn bandit() -> SharedBandit {
    SharedBandit::new(4, 16, &BanditParameters::default(), 7)
}

#[test]
fn too_little_memory_for_an_episode_is_an_error() {
    let intrinsic = IntrinsicConfig { memory_capacity: 1 << 58, ..intrinsic() };
    let spec = EnvActorSpec {
        role: Role::Evaluator,
        environment: 0,
        slot: 0,
        epsilon: 0.0,
        hides_rewards: false,
        exploration: Exploration::default(),
    };
    let error = EnvActor::new(spec, &intrinsic, LAYOUT.embedding, 1, None, &bandit()).unwrap_err().to_string();
    let begins = "not enough memory for 288230376151711744 observations of an episode with 2 numbers each; ";
    assert!(error.starts_with(begins), "{error}");
}

/// A made-up decision for the observation `x`, which all its values identify.
fn decision(x: u8, wants_state: bool) -> Decision {
    let value = f32::from(x);
    Decision {
        preferences: vec![0.0, 0.0, 1.0],
        q: vec![0.0; ACTIONS],
        embedding: vec![value * value / 8.0, -value],
        rnd: 1.0 + value / 16.0,
        state: wants_state.then(|| vec![value, -value]),
        version: u64::from(x) * 10,
    }
}

fn stored(x: u8) -> Vec<f16> {
    decision(x, false).embedding.iter().map(|&value| f16::from_f32(value)).collect()
}

/// Independent computation of r_NGU of an episode's observations.
fn novelties(observations: &[u8]) -> Vec<StepRewards> {
    let intrinsic = intrinsic();
    let mut novelty = EpisodicNovelty::new(intrinsic.kernel, intrinsic.memory_capacity, LAYOUT.embedding).unwrap();
    let of = |&x: &u8| {
        let Decision { embedding, rnd, .. } = decision(x, false);
        let episodic = novelty.observe(&embedding).unwrap();
        StepRewards { extrinsic: 0.0, ngu: ngu_reward(episodic, f64::from(rnd)) as f32, rnd, episodic: episodic as f32 }
    };
    observations.iter().map(of).collect()
}

struct Game {
    env_actor: EnvActor,
    bandit: SharedBandit,
    replay: Arc<Replay>,
}

impl Game {
    fn new(role: Role, epsilon: f64) -> Self {
        Self::at(EnvActorSpec {
            role,
            environment: 5,
            slot: 9,
            epsilon,
            hides_rewards: false,
            exploration: Exploration::default(),
        })
    }

    fn at(spec: EnvActorSpec) -> Self {
        let (bandit, replay, role) = (bandit(), replay(), spec.role);
        let writer = (role == Role::Actor).then(|| Writer::new(&replay, 5));
        let env_actor = EnvActor::new(spec, &intrinsic(), LAYOUT.embedding, 1, writer, &bandit).unwrap();
        Self { env_actor, bandit, replay }
    }

    /// Requests and chooses an action for the observation `x`, after an episode that ended with `last`.
    fn decide(&mut self, x: u8, last: Option<u8>) -> (Vec<ActRequest>, usize) {
        let mut requests = Vec::new();
        self.env_actor.request(3, &mut requests);
        let found: Vec<_> = requests.iter().map(|request| request.last_observation.clone()).collect();
        assert_eq!(found, last.map(|x| Some(vec![x])).into_iter().chain([None]).collect::<Vec<_>>());
        assert_eq!(requests.last().unwrap().row, 3);
        let observations: Vec<u8> = last.into_iter().chain([x]).collect();
        let answers: Vec<Decision> =
            observations.iter().zip(&requests).map(|(&x, request)| decision(x, request.wants_state)).collect();
        let mut answers = answers.into_iter();
        let action = self.env_actor.choose(&[x], &mut answers).unwrap();
        assert!(answers.next().is_none());
        (requests, action)
    }

    fn take(&mut self, reward: f64, end: Option<(Ending, f64)>, last: u8) -> Option<EpisodeReport> {
        let end = end.map(|(ending, score)| EpisodeEnd { ending, score, frames: 12 });
        self.env_actor.take(&Step { reward, end }, || vec![last], &self.bandit).unwrap()
    }

    /// Returns every sequence in replay by its first observation, as its batch and row.
    fn sequences(&mut self) -> (SequenceBatch, Vec<(u8, usize)>) {
        self.env_actor.writer.as_mut().unwrap().replay_mut().unwrap().flush(Duration::ZERO).unwrap();
        let mut batch = SequenceBatch::new(&LAYOUT, 64);
        Sampler::new(&self.replay, 1).sample(&mut batch, Duration::ZERO).unwrap();
        let mut rows: Vec<(u8, usize)> = (0..64).map(|row| (batch.observations[row * LAYOUT.trace], row)).collect();
        rows.sort_unstable();
        rows.dedup_by_key(|(first, _)| *first);
        (batch, rows)
    }
}

/// Plays the observations 1, 2, ... n and ends with n + 1, with reward t/2 for the t-th. Returns the turns and the
/// reports.
fn episode(game: &mut Game, n: u8, ending: Ending, previous_end: Option<u8>) -> (Vec<ActRequest>, Vec<EpisodeReport>) {
    let (mut asked, mut reports) = (Vec::new(), Vec::new());
    for x in 1..=n {
        let (requests, action) = game.decide(x, previous_end.filter(|_| x == 1));
        assert_eq!(action, 2);
        asked.extend(requests);
        let end = (x == n).then_some((ending, 42.0));
        reports.extend(game.take(f64::from(x) / 2.0, end, n + 1));
    }
    (asked, reports)
}

#[test]
fn steps_are_stored_with_their_own_novelty_and_act_on_the_previous_one() {
    for (ending, last_discount) in [(Ending::Terminated, 0.0), (Ending::Truncated, 1.0)] {
        let mut game = Game::new(Role::Actor, 0.0);
        let n = 5;
        let (requests, reports) = episode(&mut game, n, ending, None);
        assert_eq!(reports, [], "how new its last observation is remains to be seen");
        let policy = requests[0].policy;
        let observations: Vec<u8> = (1..=n + 1).collect();
        let novelty = novelties(&observations);
        assert!(novelty[1].ngu > 0.0 && novelty[1].ngu != novelty[2].ngu);

        // The request and the network inputs: the previous step, nothing at the start.
        assert_eq!(requests.len(), usize::from(n));
        for (t, request) in requests.iter().enumerate() {
            let found = (request.slot, request.role, request.first, request.policy);
            assert_eq!(found, (9, Role::Actor, t == 0, policy));
            assert_eq!(request.wants_state, t % LAYOUT.period == 0, "step {t}");
            let expected = match t.checked_sub(1) {
                None => PreviousStep::zeros(2),
                Some(before) => PreviousStep {
                    action: 2,
                    rewards: StepRewards { extrinsic: (before + 1) as f32 / 2.0, ..novelty[before] },
                    embedding: stored(observations[before]),
                },
            };
            assert_eq!(request.previous, expected, "step {t}");
        }

        // The last observation is requested with the next episode's first, under the old episode's policy.
        assert_eq!(game.env_actor.writer.as_ref().unwrap().replay().unwrap().ready(), 1);
        let (requests, _) = game.decide(1, Some(n + 1));
        assert_eq!((requests[0].first, requests[0].policy, requests[0].wants_state), (false, policy, false));
        let before = usize::from(n) - 1;
        let rewards = StepRewards { extrinsic: f32::from(n) / 2.0, ..novelty[before] };
        assert_eq!(requests[0].previous.rewards, rewards);
        assert_eq!(requests[0].previous.embedding, stored(n));
        assert_eq!((requests[1].first, requests[1].wants_state), (true, true));
        assert_eq!(requests[1].previous, PreviousStep::zeros(2));

        // Then the episode is reported, with all of its observations but not the next one's first.
        let report = game.take(0.0, None, 0).unwrap();
        assert_eq!((report.role, report.environment, report.policy, report.score), (Role::Actor, 5, policy, 42.0));
        let mut sums = NoveltySums::default();
        novelty.iter().for_each(|&novelty| sums.add(novelty));
        assert_eq!((report.novelty, sums.observations), (sums, u64::from(n) + 1));

        // Observations 1 to 4 and 3 to 6; a sequence from 5 on would add nothing.
        let (batch, rows) = game.sequences();
        assert_eq!(rows.iter().map(|(first, _)| *first).collect::<Vec<_>>(), [1, 3]);
        for (first, row) in rows {
            assert_eq!(batch.sequences[row].length, 4);
            assert_eq!(batch.sequences[row].policy, policy);
            assert_eq!(batch.state[row * 2..][..2], [f32::from(first), -f32::from(first)]);
            assert_eq!(batch.sequences[row].parameter_version, u64::from(first) * 10);
            for entry in 0..=LAYOUT.trace {
                let at = row * (LAYOUT.trace + 1) + entry;
                let x = first + entry as u8 - 1;
                if x == 0 {
                    assert_eq!(
                        (batch.steps.action[at], batch.steps.reward_ngu[at], batch.steps.reward_extrinsic[at]),
                        (0, 0.0, 0.0)
                    );
                    continue;
                }
                let expected = novelty[usize::from(x) - 1];
                assert_eq!(batch.steps.reward_ngu[at], expected.ngu, "r_NGU of {x} in the sequence of {first}");
                assert_eq!(batch.steps.reward_rnd[at], expected.rnd);
                assert_eq!(batch.steps.reward_episodic[at], expected.episodic);
                assert_eq!(batch.steps.embedding[at * 2..][..2], stored(x));
                if x <= n {
                    assert_eq!(batch.steps.action[at], 2);
                    assert_eq!(batch.steps.behaviour_probability[at], 1.0);
                    assert_eq!(batch.steps.reward_extrinsic[at], f32::from(x) / 2.0);
                    assert_eq!(batch.steps.discount[at], if x == n { last_discount } else { 1.0 });
                }
            }
        }
    }
}

#[test]
fn truncated_episode_ends_with_the_observation_of_its_last_action() {
    let mut game = Game::new(Role::Actor, 0.0);
    let (_, pulls) = game.bandit.arms();
    for x in 1..=2 {
        game.decide(x, None);
        assert_eq!(game.take(1.0, None, 0), None);
    }
    let (requests, _) = game.decide(3, None);
    let policy = requests[0].policy;
    assert_eq!(game.take(0.0, Some((Ending::CutOff, 2.0)), 99), None);
    // It does not count, and the next episode has a policy and starts without a previous step.
    let (arms, after) = game.bandit.arms();
    assert!(arms.iter().all(|arm| arm.mean().is_none()));
    assert_eq!(after.iter().sum::<u64>(), pulls.iter().sum::<u64>() + 1);
    let (requests, _) = game.decide(7, None);
    assert_eq!((requests.len(), requests[0].first), (1, true));
    assert_eq!(requests[0].previous, PreviousStep::zeros(2));

    let (batch, rows) = game.sequences();
    let [(1, row)] = rows[..] else { panic!("{rows:?}") };
    assert_eq!((batch.sequences[row].length, batch.sequences[row].policy), (3, policy));
    assert_eq!(batch.observations[row * 4..][..4], [1, 2, 3, 0]);
    let novelty = novelties(&[1, 2, 3]);
    let ngu: Vec<f32> = novelty.iter().map(|novelty| novelty.ngu).collect();
    assert_eq!(batch.steps.reward_ngu[row * 5..][1..4], ngu);
    assert_eq!(batch.steps.discount[row * 5..][1..3], [1.0, 1.0]);
}

#[test]
fn each_episode_has_one_policy_and_reports_its_score_to_the_bandit() {
    let mut game = Game::new(Role::Actor, 0.0);
    let mut last = None;
    let (mut played, mut before) = (vec![0; 4], vec![]);
    for n in 2..12 {
        let (requests, reports) = episode(&mut game, n, Ending::Terminated, last);
        let own: Vec<usize> = requests
            .iter()
            .filter(|request| request.last_observation.is_none())
            .map(|request| request.policy)
            .collect();
        assert!(own.len() == usize::from(n) && own.iter().all(|policy| *policy == own[0]));
        // The previous episode is reported with this one's first step.
        assert_eq!(reports.iter().map(|report| report.policy).collect::<Vec<_>>(), before);
        before = vec![own[0]];
        played[own[0]] += 1;
        last = Some(n + 1);
    }
    let (arms, pulls) = game.bandit.arms();
    // Each episode started with a pull, and so has the next one.
    assert_eq!(pulls.iter().sum::<u64>(), 11);
    assert!(played.iter().filter(|&&count| count > 0).count() > 1, "{played:?}");
    for (policy, arm) in arms.iter().enumerate() {
        assert_eq!(arm.mean().is_some(), played[policy] > 0);
        assert!(arm.mean().is_none_or(|mean| (mean - 42.0).abs() < 1e-9));
    }
}

#[test]
fn evaluator_writes_nothing_and_updates_no_bandit() {
    let mut game = Game::new(Role::Evaluator, 0.0);
    let (requests, reports) = episode(&mut game, 3, Ending::Terminated, None);
    let [report] = reports[..] else { panic!("{reports:?}") };
    assert_eq!((report.role, report.score, report.novelty.observations), (Role::Evaluator, 42.0, 3));
    assert!(requests.iter().all(|request| !request.wants_state && request.role == Role::Evaluator));
    // Its last observation is not needed.
    let (requests, _) = game.decide(1, None);
    assert_eq!((requests.len(), requests[0].first), (1, true));
    let (arms, pulls) = game.bandit.arms();
    assert!(arms.iter().all(|arm| arm.mean().is_none()) && pulls == [0; 4]);
}

#[test]
fn stores_the_probability_of_the_chosen_action() {
    let mut game = Game::new(Role::Actor, 0.6);
    let mut counts = [0; ACTIONS];
    for x in 1..=240 {
        let (_, action) = game.decide(x, None);
        counts[action] += 1;
        game.take(0.0, None, 0);
    }
    // 0.6 / 3 for each action, and the other 0.4 for the greedy one: 48, 48 and 144 expected.
    assert!((25..75).contains(&counts[0]) && (25..75).contains(&counts[1]) && counts[2] > 115, "{counts:?}");
    let (batch, rows) = game.sequences();
    for (_, row) in rows {
        for at in row * 5 + 1..row * 5 + 5 {
            let expected = if batch.steps.action[at] == 2 { 0.6 } else { 0.2 };
            assert!((batch.steps.behaviour_probability[at] - expected).abs() < 1e-6);
        }
    }
}

#[test]
fn hidden_rewards_count_only_for_the_score() {
    for role in [Role::Actor, Role::Evaluator] {
        let mut game = Game::at(EnvActorSpec {
            role,
            environment: 5,
            slot: 9,
            epsilon: 0.0,
            hides_rewards: true,
            exploration: Exploration::default(),
        });
        let (requests, mut reports) = episode(&mut game, 5, Ending::Terminated, None);
        assert!(requests.iter().all(|request| request.previous.rewards.extrinsic == 0.0));
        let (requests, _) = game.decide(1, (role == Role::Actor).then_some(6));
        assert!(requests.iter().all(|request| request.previous.rewards.extrinsic == 0.0));
        reports.extend(game.take(1.0, None, 0));
        assert_eq!(reports.iter().map(|report| report.score).collect::<Vec<_>>(), [42.0]);
        if role == Role::Evaluator {
            continue;
        }
        let known: Vec<f64> = game.bandit.arms().0.iter().filter_map(|arm| arm.mean()).collect();
        assert_eq!(known, [0.0]);
        let (batch, rows) = game.sequences();
        assert!(!rows.is_empty() && batch.steps.reward_extrinsic.iter().all(|reward| *reward == 0.0));
        assert!(batch.steps.reward_ngu.iter().any(|reward| *reward > 0.0));
    }
}

#[test]
fn positions_count_once_per_episode() {
    let mut game = Game::new(Role::Evaluator, 0.0);
    let position = |ram: &[u8]| Position::new(ram).unwrap();
    for expected in [2, 1] {
        for x in 1..=4 {
            game.decide(x, None);
            let is_new = game.env_actor.visit(position(&[1, x / 3 * (expected - 1)]));
            assert_eq!(is_new, x == 1 || (x == 3 && expected == 2), "{x} of {expected}");
            let end = (x == 4).then_some((Ending::Terminated, 0.0));
            let report = game.take(0.0, end, 5);
            assert_eq!(report.map(|report| report.positions), end.map(|_| u64::from(expected)));
        }
    }
}

/// With `actors.epsilon_base=1.0` every actor has an ε of 1.
#[test]
fn with_an_epsilon_of_1_every_action_is_random() {
    let mut game = Game::new(Role::Actor, 1.0);
    let mut counts = [0; ACTIONS];
    for x in 1..=240 {
        counts[game.decide(x, None).1] += 1;
        game.take(0.0, None, 0);
    }
    assert!(counts.iter().all(|count| (55..105).contains(count)), "{counts:?}");
    let (batch, rows) = game.sequences();
    for (_, row) in rows {
        assert!(
            batch.steps.behaviour_probability[row * 5 + 1..row * 5 + 5].iter().all(|p| (p - 1.0 / 3.0).abs() < 1e-6)
        );
    }
    let random = support::config(&["actors.epsilon_base=1.0"]).actors;
    let epsilon = |actor| actor_epsilon(actor, 4, random.epsilon_base, random.epsilon_exponent);
    assert_eq!([0, 1, 2, 3].map(epsilon), [1.0; 4]);
}

/// An environment that cannot be restored loses its episode, but not the one that had just ended.
#[test]
fn finished_episode_is_stored_even_if_its_environment_is_lost() {
    let mut game = Game::new(Role::Actor, 0.0);
    episode(&mut game, 5, Ending::Terminated, None);
    game.env_actor.abandon(&game.bandit).unwrap();
    game.decide(1, Some(6));
    assert_eq!(game.take(0.0, None, 0).unwrap().score, 42.0);
    // In the middle of the next one, that is lost.
    game.env_actor.abandon(&game.bandit).unwrap();
    let (requests, _) = game.decide(9, None);
    assert!(requests[0].first);
    let (batch, rows) = game.sequences();
    assert_eq!(rows.iter().map(|(first, _)| *first).collect::<Vec<_>>(), [1, 3]);
    let (_, row) = rows[1];
    // After the step before the sequence.
    let discounts = &batch.steps.discount[row * (LAYOUT.trace + 1) + 1..][..3];
    assert_eq!(discounts, [1.0, 1.0, 0.0], "the end of the game is there");
}

fn exploring(settings: &[&str]) -> Exploration {
    Exploration::of_actors(&support::config(settings).agent, 8)
}

fn explorer(exploration: Exploration) -> Game {
    let (role, epsilon) = (Role::Actor, 0.0);
    Game::at(EnvActorSpec { role, environment: 5, slot: 9, epsilon, hides_rewards: false, exploration })
}

fn step(end: Option<Ending>) -> Step {
    Step { reward: 0.0, end: end.map(|ending| EpisodeEnd { ending, score: 0.0, frames: 4 }) }
}

/// The masks of the requests of 30 steps, of which every tenth ends an episode.
fn masks(settings: &[&str]) -> Vec<Option<Vec<bool>>> {
    let mut game = explorer(exploring(settings));
    let (mut masks, mut last) = (Vec::new(), None);
    for t in 0..30 {
        let (mut requests, _) = game.decide(t, last);
        let request = requests.pop().unwrap();
        // The last observation of an episode is seen with the episode's mask.
        if let Some(ended) = requests.pop() {
            assert_eq!(ended.kept_blocks, masks[masks.len() - 1]);
        }
        masks.push(request.kept_blocks);
        last = (t % 10 == 9).then_some(t + 100);
        game.env_actor.take(&step(last.map(|_| Ending::Terminated)), || vec![t + 100], &game.bandit).unwrap();
    }
    masks
}

#[test]
fn masks_are_held_for_an_episode_or_some_steps() {
    assert!(masks(&[]).iter().all(Option::is_none));
    let depth = "agent.network.torso.stochastic_depth";
    let (rate, flat) = (format!("{depth}.rate=0.5"), format!("{depth}.schedule=flat"));
    let held = |acting: &str| {
        let masks = masks(&[&rate, &flat, &format!("{depth}.acting={acting}"), &format!("{depth}.acting_steps=4")]);
        let masks: Vec<_> = masks.into_iter().map(Option::unwrap).collect();
        let changes: Vec<usize> = (1..30).filter(|&t| masks[t] != masks[t - 1]).collect();
        let kept = masks.iter().flatten().filter(|&&kept| kept).count();
        assert!((60..180).contains(&kept), "{kept} of 240");
        changes
    };
    assert_eq!(held("episode"), [10, 20]);
    assert_eq!(held("steps"), [4, 8, 10, 14, 18, 20, 24, 28]);
}

#[test]
fn sampling_actors_follow_the_target_policy() {
    assert!(exploring(&[]).temperature.is_none());
    let exploration =
        exploring(&["agent.policies.sampled=true", "agent.policies.greedy=policy", "agent.returns.temperature=1.0"]);
    let mut game = explorer(exploration);
    let mut counts = [0; ACTIONS];
    for t in 0..240 {
        let (_, action) = game.decide(t, None);
        counts[action] += 1;
        game.env_actor.take(&step(None), Vec::new, &game.bandit).unwrap();
    }
    // The softmax of [0, 0, 1] is [0.212, 0.212, 0.576].
    assert!((100..170).contains(&counts[2]) && counts[0] > 25 && counts[1] > 25, "{counts:?}");
}
