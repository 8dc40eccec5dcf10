//! `meme eval`: how well a run plays, with everything said that the number depends on.

use agent::learner::ParameterSource;
use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use serde::Serialize;
use train::evaluation::{Evaluation, FIRST_INDEX};
use train::numbers::{fixed, rounded};

use crate::chosen_run::{AtariRules, ChosenRun, OpenRun};
use crate::options;
use crate::output::{self, Progress, grouped};

/// Probability that an action is repeated where sticky actions are asked for.
const STICKY: f64 = 0.25;

/// Options of `meme eval`.
#[derive(Args)]
pub struct EvalArgs {
    #[command(flatten)]
    run: ChosenRun,
    /// Episodes that count
    #[arg(long, default_value_t = 10, value_parser = options::episodes::<u32>())]
    episodes: u32,
    /// Which parameters play: the moving average, or those that actors use
    #[arg(long, value_enum, default_value_t = Parameters::Ema)]
    parameters: Parameters,
    /// Repeat the previous action with probability 0.25 at each frame of an Atari game
    #[arg(long)]
    sticky: bool,
    /// Print one JSON document instead of lines
    #[arg(long)]
    json: bool,
}

/// Which parameters play.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
enum Parameters {
    /// The moving average, as the paper evaluates
    Ema,
    /// Those that are trained and that actors use
    Online,
}

#[derive(Debug, Serialize)]
struct Report {
    run: String,
    mean: f64,
    /// With n - 1 in the denominator; nothing for a single episode.
    std: Option<f64>,
    /// 0 is random play, 1 a human.
    #[serde(skip_serializing_if = "Option::is_none")]
    human_normalised: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    random_score: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    human_score: Option<f64>,
    scores: Vec<f64>,
    episode_frames: Vec<u64>,
    protocol: Protocol,
}

/// What the scores depend on.
#[derive(Debug, Serialize)]
struct Protocol {
    environment: String,
    checkpoint_frames: u64,
    updates: u64,
    parameters: Parameters,
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

/// How the policy that plays was chosen.
#[derive(Clone, Copy, Debug, Serialize)]
enum PolicyChoice {
    #[serde(rename = "bandit's best mean return")]
    Best,
    #[serde(rename = "first, as the bandit has no returns")]
    First,
}

/// Plays and reports.
pub fn run(args: &EvalArgs) -> Result<()> {
    let mut run = args.run.open()?;
    if args.sticky {
        if run.task.environment.game().is_none() {
            bail!("--sticky is for Atari games, and {} is none", run.task.environment);
        }
        run.config.env.sticky_probability = STICKY;
    }
    let OpenRun { task, config, checkpoint, seed, .. } = &run;
    let source = match args.parameters {
        Parameters::Ema => ParameterSource::Ema,
        Parameters::Online => ParameterSource::Online,
    };
    let evaluation = Evaluation::new(task, config, checkpoint, source, *seed, args.episodes as usize);
    let mut evaluation = run.because_of_checkpoint(evaluation)?;
    play(&mut evaluation, args.episodes)?;
    let report = report(&run, &evaluation, args);
    if args.json { output::print_json(&report) } else { output::print(&text(&report)) }
}

fn play(evaluation: &mut Evaluation, episodes: u32) -> Result<()> {
    let mut progress = Progress::new();
    while !evaluation.is_complete() {
        evaluation.advance(&mut |fault| progress.say(format_args!("meme: {fault}")))?;
        progress.show(|| {
            let frames = evaluation.steps() * u64::from(evaluation.spec().frames_per_step);
            format!("{} of {episodes} episodes, {} frames", evaluation.episodes().count(), grouped(frames))
        });
    }
    progress.clear();
    Ok(())
}

fn report(run: &OpenRun, evaluation: &Evaluation, args: &EvalArgs) -> Report {
    let scores: Vec<f64> = evaluation.episodes().map(|episode| rounded(episode.score)).collect();
    let (mean, std) = mean_and_std(&scores);
    let (mean, std) = (rounded(mean), std.map(rounded));
    let game = run.task.environment.game();
    Report {
        run: run.files.name().to_owned(),
        mean,
        std,
        human_normalised: game.map(|game| rounded(game.normalised(mean))),
        random_score: game.map(|game| game.random),
        human_score: game.map(|game| game.human),
        scores,
        episode_frames: evaluation.episodes().map(|episode| episode.frames).collect(),
        protocol: Protocol {
            environment: run.task.environment.to_string(),
            checkpoint_frames: run.checkpoint.frames(),
            updates: evaluation.updates(),
            parameters: args.parameters,
            policy: evaluation.policy(),
            policies: run.config.agent.policies.count,
            policy_chosen_by: if evaluation.policy_is_known() { PolicyChoice::Best } else { PolicyChoice::First },
            epsilon: 0.0,
            episodes: args.episodes,
            environments: evaluation.environments(),
            first_environment: FIRST_INDEX,
            seed: run.seed,
            actions: evaluation.spec().actions(),
            atari: game.map(|_| AtariRules::new(&run.config)),
        },
    }
}

fn mean_and_std(scores: &[f64]) -> (f64, Option<f64>) {
    let count = scores.len() as f64;
    let mean = scores.iter().sum::<f64>() / count;
    let squares: f64 = scores.iter().map(|score| (score - mean).powi(2)).sum();
    (mean, (scores.len() > 1).then(|| (squares / (count - 1.0)).sqrt()))
}

fn text(report: &Report) -> String {
    let Report { run, mean, std, scores, protocol, .. } = report;
    let Protocol { environment, checkpoint_frames, updates, policy, policies, episodes, environments, .. } = protocol;
    let std = std.map_or(String::new(), |std| format!(", std {}", fixed(std, 2)));
    let plural = |count: usize| if count == 1 { "" } else { "s" };
    let mean = fixed(*mean, 2);
    let mut text = format!("{run}: mean score {mean}{std} over {episodes} episode{}\n", plural(scores.len()));
    if let (Some(normalised), Some(random), Some(human)) =
        (report.human_normalised, report.random_score, report.human_score)
    {
        let normalised = fixed(normalised, 3);
        text += &format!("human-normalised: {normalised} (random play {random} is 0, a human's {human} is 1)\n");
    }
    let scores: Vec<String> = scores.iter().map(f64::to_string).collect();
    text += &format!("scores: {}\n", scores.join(" "));
    text += &format!(
        "protocol:\n  {environment}, {} actions, checkpoint at {} frames, {} updates\n",
        protocol.actions,
        grouped(*checkpoint_frames),
        grouped(*updates)
    );
    let parameters = match protocol.parameters {
        Parameters::Ema => "averaged (EMA)",
        Parameters::Online => "online",
    };
    text += &format!(
        "  {parameters} parameters, policy {policy} of {policies} (0 to {}), {}, epsilon 0\n",
        policies - 1,
        match protocol.policy_chosen_by {
            PolicyChoice::Best => "which the bandit has the best mean return of",
            PolicyChoice::First => "as no episode had ended that tells which is best",
        }
    );
    if let Some(rules) = &protocol.atari {
        text += &format!("  {}\n", rules.sentence());
    }
    text += &format!(
        "  {environments} environment{} of seed {} from index {} on, where training has none; {}\n",
        plural(*environments),
        protocol.seed,
        grouped(protocol.first_environment as u64),
        counted(*episodes as usize, *environments)
    );
    text
}

/// How many episodes of each environment count.
fn counted(episodes: usize, environments: usize) -> String {
    let least = episodes / environments;
    match (least, episodes % environments) {
        (1, 0) => "the first episode of each counts".to_owned(),
        (least, 0) => format!("the first {least} episodes of each count"),
        (least, more) => {
            let each = if least == 1 { "the first episode".to_owned() } else { format!("the first {least} episodes") };
            let of = if more == 1 { "the first".to_owned() } else { format!("the first {more}") };
            format!("{each} of each and one more of {of} count")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_counts_is_said() {
        assert_eq!(counted(1, 1), "the first episode of each counts");
        assert_eq!(counted(16, 8), "the first 2 episodes of each count");
        assert_eq!(counted(17, 8), "the first 2 episodes of each and one more of the first count");
        assert_eq!(counted(10, 8), "the first episode of each and one more of the first 2 count");
    }

    #[test]
    fn mean_and_std_by_hand() {
        assert_eq!(mean_and_std(&[3.0]), (3.0, None));
        assert_eq!(mean_and_std(&[1.0, 3.0]), (2.0, Some(2f64.sqrt())));
        assert_eq!(mean_and_std(&[2.0, 4.0, 4.0, 6.0]), (4.0, Some((8.0f64 / 3.0).sqrt())));
    }
}
