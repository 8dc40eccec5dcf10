//! What a seat asks, feeds back and writes down, step by step, with decisions that the test makes up.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod support;

use std::sync::Arc;
use std::time::Duration;

use agent::math::bandit::BanditParameters;
use agent::math::ladders::actor_epsilon;
use agent::math::ngu::{EpisodicNovelty, ngu_reward};
use envs::{Ending, EpisodeEnd, Step};
use half::f16;
use replay::{Batch, Layout, RateLimiterConfig, Replay, ReplayConfig, Sampler, Writer};
use train::bandit::CentralBandit;
use train::config::IntrinsicConfig;
use train::messages::{
    Decision, EpisodeReport, Novelty, NoveltySums, Place, Position, Previous, Role, Seen, Turn, Turns,
};
use train::seat::{Seat, SeatPlace};

const LAYOUT: Layout = Layout { observation_bytes: 1, embedding: 2, state: 2, trace: 4, period: 2 };
const ACTIONS: usize = 3;

/// One neighbour, so that the second observation of an episode has a novelty already.
fn intrinsic() -> IntrinsicConfig {
    support::config(&["intrinsic.kernel.neighbours=1"]).intrinsic
}

fn replay() -> Arc<Replay> {
    let rate_limiter = RateLimiterConfig { samples_per_insert: 1.0, min_fill: 1, slack: f64::INFINITY };
    let config = ReplayConfig { layout: LAYOUT, shards: 1, capacity: 100, rate_limiter, ..ReplayConfig::paper(1, 2) };
    Replay::new(config).unwrap()
}

fn bandit() -> CentralBandit {
    CentralBandit::new(4, &BanditParameters::default(), 7)
}

#[test]
fn an_episode_that_there_is_no_memory_for_is_told() {
    let intrinsic = IntrinsicConfig { memory_capacity: 1 << 58, ..intrinsic() };
    let place = SeatPlace { role: Role::Evaluator, environment: 0, slot: 0, epsilon: 0.0, hides_rewards: false };
    let error = Seat::new(place, &intrinsic, LAYOUT.embedding, 1, None, &bandit()).unwrap_err().to_string();
    let begins =
        "there is not enough memory to remember 288230376151711744 observations of an episode, 2 numbers each; ";
    assert!(error.starts_with(begins), "{error}");
}

/// What the networks say to the observation `x`: everything about it tells which one it was.
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

/// r_NGU of an episode's observations, worked out beside the seat.
fn novelties(observations: &[u8]) -> Vec<Novelty> {
    let intrinsic = intrinsic();
    let mut novelty = EpisodicNovelty::new(intrinsic.kernel, intrinsic.memory_capacity, LAYOUT.embedding).unwrap();
    let of = |&x: &u8| {
        let Decision { embedding, rnd, .. } = decision(x, false);
        let episodic = novelty.observe(&embedding).unwrap();
        Novelty { ngu: ngu_reward(episodic, f64::from(rnd)) as f32, rnd, episodic: episodic as f32 }
    };
    observations.iter().map(of).collect()
}

struct Game {
    seat: Seat,
    bandit: CentralBandit,
    replay: Arc<Replay>,
}

impl Game {
    fn new(role: Role, epsilon: f64) -> Self {
        Self::at(SeatPlace { role, environment: 5, slot: 9, epsilon, hides_rewards: false })
    }

    fn at(place: SeatPlace) -> Self {
        let (bandit, replay, role) = (bandit(), replay(), place.role);
        let writer = (role == Role::Actor).then(|| Writer::new(&replay, 5));
        let seat = Seat::new(place, &intrinsic(), LAYOUT.embedding, 1, writer, &bandit).unwrap();
        Self { seat, bandit, replay }
    }

    /// Asks and chooses for the observation `x`; `last` is what the episode before ended with. The turns, and the
    /// action.
    fn decide(&mut self, x: u8, last: Option<u8>) -> (Vec<Turn>, usize) {
        let mut turns = Turns::default();
        self.seat.ask(3, &mut turns);
        let seen: Vec<Seen> = turns.turns.iter().map(|turn| turn.observation.clone()).collect();
        assert_eq!(seen, last.map(|x| Seen::Last(vec![x])).into_iter().chain([Seen::Row(3)]).collect::<Vec<_>>());
        let observations: Vec<u8> = last.into_iter().chain([x]).collect();
        let answers: Vec<Decision> =
            observations.iter().zip(&turns.turns).map(|(&x, turn)| decision(x, turn.wants_state)).collect();
        let mut answers = answers.into_iter();
        let action = self.seat.choose(&[x], &mut answers).unwrap();
        assert!(answers.next().is_none());
        (turns.turns, action)
    }

    fn take(&mut self, reward: f64, end: Option<(Ending, f64)>, last: u8) -> Option<EpisodeReport> {
        let end = end.map(|(ending, score)| EpisodeEnd { ending, score, frames: 12 });
        self.seat.take(&Step { reward, end }, || vec![last], &self.bandit).unwrap()
    }

    /// Every sequence in replay, by its first observation: the batch and the row that it has there.
    fn sequences(&mut self) -> (Batch, Vec<(u8, usize)>) {
        self.seat.writer_mut().unwrap().flush(Duration::ZERO).unwrap();
        let mut batch = Batch::new(&LAYOUT, 64);
        Sampler::new(&self.replay, 1).sample(batch.as_mut(), Duration::ZERO).unwrap();
        let mut rows: Vec<(u8, usize)> = (0..64).map(|row| (batch.observations[row * LAYOUT.trace], row)).collect();
        rows.sort_unstable();
        rows.dedup_by_key(|(first, _)| *first);
        (batch, rows)
    }
}

/// Plays the observations 1, 2, ... n and ends with n + 1; reward t/2 for the t-th. The turns, and the reports that came
/// on the way.
fn episode(game: &mut Game, n: u8, ending: Ending, previous_end: Option<u8>) -> (Vec<Turn>, Vec<EpisodeReport>) {
    let (mut asked, mut reports) = (Vec::new(), Vec::new());
    for x in 1..=n {
        let (turns, action) = game.decide(x, previous_end.filter(|_| x == 1));
        assert_eq!(action, 2);
        asked.extend(turns);
        let end = (x == n).then_some((ending, 42.0));
        reports.extend(game.take(f64::from(x) / 2.0, end, n + 1));
    }
    (asked, reports)
}

#[test]
fn every_step_is_stored_with_its_own_novelty_and_fed_with_the_one_before() {
    for (ending, last_discount) in [(Ending::Terminated, 0.0), (Ending::Truncated, 1.0)] {
        let mut game = Game::new(Role::Actor, 0.0);
        let n = 5;
        let (turns, reports) = episode(&mut game, n, ending, None);
        assert_eq!(reports, [], "how new its last observation is remains to be seen");
        let policy = turns[0].policy;
        let observations: Vec<u8> = (1..=n + 1).collect();
        let novelty = novelties(&observations);
        assert!(novelty[1].ngu > 0.0 && novelty[1].ngu != novelty[2].ngu);

        // What was asked, and what was fed: the step before, nothing at the start.
        assert_eq!(turns.len(), usize::from(n));
        for (t, turn) in turns.iter().enumerate() {
            let place = if t == 0 { Place::First } else { Place::Middle };
            assert_eq!((turn.slot, turn.role, turn.place, turn.policy), (9, Role::Actor, place, policy));
            assert_eq!(turn.wants_state, t % LAYOUT.period == 0, "step {t}");
            let expected = match t.checked_sub(1) {
                None => Previous::nothing(2),
                Some(before) => Previous {
                    action: 2,
                    reward_extrinsic: (before + 1) as f32 / 2.0,
                    novelty: novelty[before],
                    embedding: stored(observations[before]),
                },
            };
            assert_eq!(turn.previous, expected, "step {t}");
        }

        // The last observation is asked for with the next episode's first, under the old episode's policy.
        assert_eq!(game.seat.writer().unwrap().ready(), 1);
        let (turns, _) = game.decide(1, Some(n + 1));
        assert_eq!((turns[0].place, turns[0].policy, turns[0].wants_state), (Place::Last, policy, false));
        let before = usize::from(n) - 1;
        assert_eq!(turns[0].previous.novelty, novelty[before]);
        assert_eq!(turns[0].previous.reward_extrinsic, f32::from(n) / 2.0);
        assert_eq!(turns[0].previous.embedding, stored(n));
        assert_eq!((turns[1].place, turns[1].wants_state), (Place::First, true));
        assert_eq!(turns[1].previous, Previous::nothing(2));

        // Then the episode is reported, all of its observations counted, the next one's first not.
        let report = game.take(0.0, None, 0).unwrap();
        assert_eq!((report.role, report.environment, report.policy, report.score), (Role::Actor, 5, policy, 42.0));
        let mut sums = NoveltySums::default();
        novelty.iter().for_each(|&novelty| sums.add(novelty));
        assert_eq!((report.novelty, sums.observations), (sums, u64::from(n) + 1));

        // Observations 1 to 4 and 3 to 6; one from 5 on would hold nothing new.
        let (batch, rows) = game.sequences();
        assert_eq!(rows.iter().map(|(first, _)| *first).collect::<Vec<_>>(), [1, 3]);
        for (first, row) in rows {
            assert_eq!(batch.length[row], 4);
            assert_eq!(batch.policy[row], policy as i64);
            assert_eq!(batch.state[row * 2..][..2], [f32::from(first), -f32::from(first)]);
            assert_eq!(batch.parameter_version[row], u64::from(first) * 10);
            for entry in 0..=LAYOUT.trace {
                let at = row * (LAYOUT.trace + 1) + entry;
                let x = first + entry as u8 - 1;
                if x == 0 {
                    assert_eq!((batch.action[at], batch.reward_ngu[at], batch.reward_extrinsic[at]), (0, 0.0, 0.0));
                    continue;
                }
                let expected = novelty[usize::from(x) - 1];
                assert_eq!(batch.reward_ngu[at], expected.ngu, "r_NGU of {x} in the sequence of {first}");
                assert_eq!(batch.reward_rnd[at], expected.rnd);
                assert_eq!(batch.reward_episodic[at], expected.episodic);
                assert_eq!(batch.embedding[at * 2..][..2], stored(x));
                if x <= n {
                    assert_eq!(batch.action[at], 2);
                    assert_eq!(batch.behaviour_probability[at], 1.0);
                    assert_eq!(batch.reward_extrinsic[at], f32::from(x) / 2.0);
                    assert_eq!(batch.discount[at], if x == n { last_discount } else { 1.0 });
                }
            }
        }
    }
}

#[test]
fn a_cut_off_episode_ends_with_what_its_action_was_chosen_for() {
    let mut game = Game::new(Role::Actor, 0.0);
    let (_, pulls) = game.bandit.arms();
    for x in 1..=2 {
        game.decide(x, None);
        assert_eq!(game.take(1.0, None, 0), None);
    }
    let (turns, _) = game.decide(3, None);
    let policy = turns[0].policy;
    assert_eq!(game.take(0.0, Some((Ending::CutOff, 2.0)), 99), None);
    // It counts for nothing, and the next episode has a policy and begins with nothing before it.
    let (arms, after) = game.bandit.arms();
    assert!(arms.iter().all(|arm| arm.mean().is_none()));
    assert_eq!(after.iter().sum::<u64>(), pulls.iter().sum::<u64>() + 1);
    let (turns, _) = game.decide(7, None);
    assert_eq!((turns.len(), turns[0].place), (1, Place::First));
    assert_eq!(turns[0].previous, Previous::nothing(2));

    let (batch, rows) = game.sequences();
    let [(1, row)] = rows[..] else { panic!("{rows:?}") };
    assert_eq!((batch.length[row], batch.policy[row]), (3, policy as i64));
    assert_eq!(batch.observations[row * 4..][..4], [1, 2, 3, 0]);
    let novelty = novelties(&[1, 2, 3]);
    let ngu: Vec<f32> = novelty.iter().map(|novelty| novelty.ngu).collect();
    assert_eq!(batch.reward_ngu[row * 5..][1..4], ngu);
    assert_eq!(batch.discount[row * 5..][1..3], [1.0, 1.0]);
}

#[test]
fn each_episode_has_one_policy_and_the_bandit_hears_its_score() {
    let mut game = Game::new(Role::Actor, 0.0);
    let mut last = None;
    let (mut played, mut before) = (vec![0; 4], vec![]);
    for n in 2..12 {
        let (turns, reports) = episode(&mut game, n, Ending::Terminated, last);
        let own: Vec<usize> = turns.iter().filter(|turn| turn.place != Place::Last).map(|turn| turn.policy).collect();
        assert!(own.len() == usize::from(n) && own.iter().all(|policy| *policy == own[0]));
        // The one before is reported with this one's first step.
        assert_eq!(reports.iter().map(|report| report.policy).collect::<Vec<_>>(), before);
        before = vec![own[0]];
        played[own[0]] += 1;
        last = Some(n + 1);
    }
    let (arms, pulls) = game.bandit.arms();
    // Each episode was begun by a pull, and the next one has been pulled for.
    assert_eq!(pulls.iter().sum::<u64>(), 11);
    assert!(played.iter().filter(|&&count| count > 0).count() > 1, "{played:?}");
    for (policy, arm) in arms.iter().enumerate() {
        assert_eq!(arm.mean().is_some(), played[policy] > 0);
        assert!(arm.mean().is_none_or(|mean| (mean - 42.0).abs() < 1e-9));
    }
}

#[test]
fn an_evaluator_writes_nothing_and_teaches_nobody() {
    let mut game = Game::new(Role::Evaluator, 0.0);
    let (turns, reports) = episode(&mut game, 3, Ending::Terminated, None);
    let [report] = reports[..] else { panic!("{reports:?}") };
    assert_eq!((report.role, report.score, report.novelty.observations), (Role::Evaluator, 42.0, 3));
    assert!(turns.iter().all(|turn| !turn.wants_state && turn.role == Role::Evaluator));
    // Its last observation interests nobody.
    let (turns, _) = game.decide(1, None);
    assert_eq!((turns.len(), turns[0].place), (1, Place::First));
    let (arms, pulls) = game.bandit.arms();
    assert!(arms.iter().all(|arm| arm.mean().is_none()) && pulls == [0; 4]);
}

#[test]
fn the_probability_is_that_of_the_action_taken() {
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
            let expected = if batch.action[at] == 2 { 0.6 } else { 0.2 };
            assert!((batch.behaviour_probability[at] - expected).abs() < 1e-6);
        }
    }
}

#[test]
fn hidden_rewards_are_seen_by_nobody_but_scored() {
    for role in [Role::Actor, Role::Evaluator] {
        let mut game = Game::at(SeatPlace { role, environment: 5, slot: 9, epsilon: 0.0, hides_rewards: true });
        let (turns, mut reports) = episode(&mut game, 5, Ending::Terminated, None);
        assert!(turns.iter().all(|turn| turn.previous.reward_extrinsic == 0.0));
        let (turns, _) = game.decide(1, (role == Role::Actor).then_some(6));
        assert!(turns.iter().all(|turn| turn.previous.reward_extrinsic == 0.0));
        reports.extend(game.take(1.0, None, 0));
        assert_eq!(reports.iter().map(|report| report.score).collect::<Vec<_>>(), [42.0]);
        if role == Role::Evaluator {
            continue;
        }
        let known: Vec<f64> = game.bandit.arms().0.iter().filter_map(|arm| arm.mean()).collect();
        assert_eq!(known, [0.0]);
        let (batch, rows) = game.sequences();
        assert!(!rows.is_empty() && batch.reward_extrinsic.iter().all(|reward| *reward == 0.0));
        assert!(batch.reward_ngu.iter().any(|reward| *reward > 0.0));
    }
}

#[test]
fn an_episodes_positions_are_counted_once_each_and_not_the_next_ones() {
    let mut game = Game::new(Role::Evaluator, 0.0);
    let position = |ram: &[u8]| Position::new(ram).unwrap();
    for expected in [2, 1] {
        for x in 1..=4 {
            game.decide(x, None);
            let is_new = game.seat.visit(position(&[1, x / 3 * (expected - 1)]));
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
        assert!(batch.behaviour_probability[row * 5 + 1..row * 5 + 5].iter().all(|p| (p - 1.0 / 3.0).abs() < 1e-6));
    }
    let random = support::config(&["actors.epsilon_base=1.0"]).actors;
    let epsilon = |actor| actor_epsilon(actor, 4, random.epsilon_base, random.epsilon_exponent);
    assert_eq!([0, 1, 2, 3].map(epsilon), [1.0; 4]);
}

/// An environment that can't be restored loses the episode it was in, and not the one that had just ended.
#[test]
fn an_episode_that_has_ended_is_stored_though_its_environment_is_lost() {
    let mut game = Game::new(Role::Actor, 0.0);
    episode(&mut game, 5, Ending::Terminated, None);
    game.seat.abandon(&game.bandit).unwrap();
    game.decide(1, Some(6));
    assert_eq!(game.take(0.0, None, 0).unwrap().score, 42.0);
    // In the middle of the next one nothing is left of it.
    game.seat.abandon(&game.bandit).unwrap();
    let (turns, _) = game.decide(9, None);
    assert_eq!(turns[0].place, Place::First);
    let (batch, rows) = game.sequences();
    assert_eq!(rows.iter().map(|(first, _)| *first).collect::<Vec<_>>(), [1, 3]);
    let (_, row) = rows[1];
    // After the step before the sequence.
    let discounts = &batch.discount[row * (LAYOUT.trace + 1) + 1..][..3];
    assert_eq!(discounts, [1.0, 1.0, 0.0], "the end of the game is there");
}
