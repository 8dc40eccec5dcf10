//! `meme eval`: the score of a run, with everything that the number depends on.

use agent::learner::ParameterSource;
use anyhow::Result;
use clap::{Args, ValueEnum};
use serde::Serialize;
use train::config::{ActionSet, Config};
use train::number_format::{fixed, rounded};
use train::roles::evaluation::{Evaluation, EvaluationOptions, FIRST_INDEX};

use crate::console::ProgressLine;
use crate::options::{self, StickyArg};
use crate::output::{self, count_of, grouped};
use crate::report::statistics::mean_and_deviation;
use crate::run_args::{PlayedRun, PlayedRunArgs};

/// Arguments of `meme eval`.
#[derive(Args)]
pub struct EvalArgs {
    #[command(flatten)]
    run: PlayedRunArgs,
    /// Number of episodes
    #[arg(long, default_value_t = 10, value_parser = options::count::<u32>())]
    episodes: u32,
    /// Parameters to play with
    #[arg(long, value_enum, default_value_t = ParameterChoice::Ema)]
    parameters: ParameterChoice,
    #[command(flatten)]
    sticky: StickyArg,
    /// Print one JSON document instead of text
    #[arg(long)]
    json: bool,
}

/// Parameters to play with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
enum ParameterChoice {
    /// The moving average, as in the paper
    Ema,
    /// The latest parameters, which actors use
    Online,
}

#[derive(Debug, Serialize)]
struct EvalReport {
    run: String,
    mean: f64,
    /// With n - 1 in the denominator; unknown for a single episode.
    std: Option<f64>,
    #[serde(flatten)]
    reference: Option<ReferenceScores>,
    scores: Vec<f64>,
    episode_frames: Vec<u64>,
    protocol: Protocol,
}

/// How the mean compares, in an Atari game.
#[derive(Debug, Serialize)]
struct ReferenceScores {
    /// 0 for random play, 1 for a human.
    human_normalised: f64,
    random_score: f64,
    human_score: f64,
}

/// Everything that the scores depend on.
#[derive(Debug, Serialize)]
struct Protocol {
    environment: String,
    checkpoint_frames: u64,
    updates: u64,
    parameters: ParameterChoice,
    policy: usize,
    policies: usize,
    policy_chosen_by: PolicyChoice,
    epsilon: f64,
    episodes: u32,
    environments: usize,
    first_environment: usize,
    seed: u64,
    actions: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    atari: Option<AtariRules>,
}

/// How the policy was chosen.
#[derive(Clone, Copy, Debug, Serialize)]
enum PolicyChoice {
    #[serde(rename = "bandit's best mean return")]
    Best,
    #[serde(rename = "first, as the bandit has no returns")]
    First,
}

/// Rules of an Atari game.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct AtariRules {
    /// Largest number of no-op frames at the start of an episode.
    noop_max: u32,
    sticky_probability: f64,
    action_set: ActionSet,
    action_repeat: u32,
    /// Frames after which an episode is cut off.
    frame_cap: u32,
}

impl AtariRules {
    fn new(config: &Config) -> Self {
        let env = &config.env;
        Self {
            noop_max: env.noop_max,
            sticky_probability: env.sticky_probability,
            action_set: env.action_set,
            action_repeat: env.action_repeat,
            frame_cap: env.frame_cap,
        }
    }

    fn sentence(&self) -> String {
        let noops = match self.noop_max {
            0 => "no no-ops at the start".to_owned(),
            most => format!("1 to {most} no-ops at the start"),
        };
        let sticky = match self.sticky_probability {
            0.0 => "no sticky actions".to_owned(),
            probability => format!("sticky actions with probability {probability}"),
        };
        let set = match self.action_set {
            ActionSet::Full => "full",
            ActionSet::Minimal => "minimal",
        };
        let (repeat, cap) = (self.action_repeat, grouped(self.frame_cap.into()));
        format!("{noops}, {sticky}, {set} action set, actions repeated for {repeat} frames, at most {cap} frames")
    }
}

/// Plays the episodes and prints the scores.
pub fn run(args: &EvalArgs) -> Result<()> {
    let mut run = args.run.open()?;
    if let Some(probability) = args.sticky.probability(&run.task.environment)? {
        run.config.env.sticky_probability = probability;
    }
    let PlayedRun { task, config, checkpoint, seed, .. } = &run;
    let parameters = match args.parameters {
        ParameterChoice::Ema => ParameterSource::Averaged,
        ParameterChoice::Online => ParameterSource::Online,
    };
    let options = EvaluationOptions { task, config, checkpoint, parameters, seed: *seed };
    let evaluation = Evaluation::new(options, args.episodes as usize);
    let mut evaluation = run.context(evaluation)?;
    play(&mut evaluation, args.episodes)?;
    output::print_report(args.json, &report(&run, &evaluation, args), text)
}

fn play(evaluation: &mut Evaluation, episodes: u32) -> Result<()> {
    let mut progress = ProgressLine::new();
    while !evaluation.is_complete() {
        evaluation.advance(&mut |fault| progress.warn(fault))?;
        progress.show(|| {
            let frames = evaluation.steps() * u64::from(evaluation.spec.frames_per_step);
            format!("{} of {episodes} episodes, {} frames", evaluation.episodes().count(), grouped(frames))
        });
    }
    progress.clear();
    Ok(())
}

fn report(run: &PlayedRun, evaluation: &Evaluation, args: &EvalArgs) -> EvalReport {
    let scores: Vec<f64> = evaluation.episodes().map(|episode| rounded(episode.score)).collect();
    let (mean, std) = mean_and_deviation(&scores);
    let (mean, std) = (rounded(mean), std.map(rounded));
    let game = run.task.environment.game();
    EvalReport {
        run: run.files.name().to_owned(),
        mean,
        std,
        reference: game.map(|game| ReferenceScores {
            human_normalised: rounded(game.normalised(mean)),
            random_score: game.random,
            human_score: game.human,
        }),
        scores,
        episode_frames: evaluation.episodes().map(|episode| episode.frames).collect(),
        protocol: Protocol {
            environment: run.task.environment.to_string(),
            checkpoint_frames: run.checkpoint.frames(),
            updates: evaluation.updates,
            parameters: args.parameters,
            policy: evaluation.policy(),
            policies: run.config.agent.policies.count,
            policy_chosen_by: if evaluation.policy_is_known() { PolicyChoice::Best } else { PolicyChoice::First },
            epsilon: 0.0,
            episodes: args.episodes,
            environments: evaluation.environments(),
            first_environment: FIRST_INDEX,
            seed: run.seed,
            actions: evaluation.spec.actions(),
            atari: game.map(|_| AtariRules::new(&run.config)),
        },
    }
}

fn text(report: &EvalReport) -> String {
    let EvalReport { run, mean, std, reference, scores, protocol, .. } = report;
    let Protocol { environment, policy, policies, episodes, environments, .. } = protocol;
    let std = std.map_or(String::new(), |std| format!(", std {}", fixed(std, 2)));
    let mean = fixed(*mean, 2);
    let mut text = format!("{run}: mean score {mean}{std} over {}\n", count_of(*episodes as usize, "episode"));
    if let Some(ReferenceScores { human_normalised, random_score: random, human_score: human }) = reference {
        let normalised = fixed(*human_normalised, 3);
        text += &format!("human-normalised score: {normalised} (0: random play, {random}; 1: human, {human})\n");
    }
    let scores: Vec<String> = scores.iter().map(f64::to_string).collect();
    let parameters = match protocol.parameters {
        ParameterChoice::Ema => "averaged (EMA)",
        ParameterChoice::Online => "online",
    };
    let chosen = match protocol.policy_chosen_by {
        PolicyChoice::Best => "the bandit's best mean return",
        PolicyChoice::First => "the first one, as no episode had finished",
    };
    let rules = protocol.atari.as_ref().map_or(String::new(), |rules| format!("  {}\n", rules.sentence()));
    text + &format!(
        "scores: {}\n\
         protocol:\n  \
           {environment}, {} actions, checkpoint at {} frames and {} updates\n  \
           {parameters} parameters, greedy (epsilon 0), policy {policy} of 0 to {} ({chosen})\n\
         {rules}  \
           {}, seed {}, indices from {} (not used in training); {}\n",
        scores.join(" "),
        protocol.actions,
        grouped(protocol.checkpoint_frames),
        grouped(protocol.updates),
        policies - 1,
        count_of(*environments, "environment"),
        protocol.seed,
        grouped(protocol.first_environment as u64),
        counted(*episodes as usize, *environments)
    )
}

/// Says which episodes count.
fn counted(episodes: usize, environments: usize) -> String {
    let each = match episodes / environments {
        1 => "the first episode of each".to_owned(),
        count => format!("the first {count} episodes of each"),
    };
    match episodes % environments {
        0 if episodes == environments => format!("{each} counts"),
        0 => format!("{each} count"),
        1 => format!("{each} and one more of the first count"),
        more => format!("{each} and one more of the first {more} count"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counted_episodes_are_stated() {
        assert_eq!(counted(1, 1), "the first episode of each counts");
        assert_eq!(counted(16, 8), "the first 2 episodes of each count");
        assert_eq!(counted(17, 8), "the first 2 episodes of each and one more of the first count");
        assert_eq!(counted(10, 8), "the first episode of each and one more of the first 2 count");
    }

    #[test]
    fn atari_rules_are_stated_in_words() {
        let mut config = Config::default();
        assert_eq!(
            AtariRules::new(&config).sentence(),
            "1 to 30 no-ops at the start, no sticky actions, full action set, actions repeated for 4 frames, at most \
             108 000 frames"
        );
        (config.env.noop_max, config.env.sticky_probability) = (0, 0.25);
        config.env.action_set = ActionSet::Minimal;
        let sentence = AtariRules::new(&config).sentence();
        let begins = "no no-ops at the start, sticky actions with probability 0.25, minimal action set";
        assert!(sentence.starts_with(begins), "{sentence}");
    }
}
