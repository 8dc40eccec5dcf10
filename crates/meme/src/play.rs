//! `meme play`: a simple policy in any environment, as a first look at it.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use envs::seeds::SplitMix64;
use envs::{Ending, EnvId, EnvSpec, Environments, EpisodeEnd, WorkerConfig};
use serde::Serialize;
use train::numbers::{fixed, rounded};

use crate::output::{self, Progress, grouped};
use crate::video::{self, VideoWriter};
use crate::{home, options};

/// Options of `meme play`.
#[derive(Args)]
pub struct PlayArgs {
    /// A game (`meme games` lists them), a task (catch, memory, deep_sea, key_door) or gym:ENV_ID
    environment: String,
    /// How to choose actions
    #[arg(long, value_enum, default_value_t = Policy::Random)]
    policy: Policy,
    /// Episodes to play
    #[arg(long, default_value_t = 1, value_parser = options::episodes::<u64>())]
    episodes: u64,
    /// Repeat the previous action with probability 0.25 at each frame of an Atari game
    #[arg(long)]
    sticky: bool,
    /// Use only the actions that do something in this game, instead of all 18
    #[arg(long)]
    minimal_actions: bool,
    /// The same seed plays the same episodes
    #[arg(long, default_value_t = 0, value_parser = options::field("run.seed"))]
    seed: u64,
    /// Write a video of all episodes to a .gif or, with ffmpeg, an .mp4 file
    #[arg(long, value_name = "FILE")]
    video: Option<PathBuf>,
    /// Print one JSON document instead of lines
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
enum Policy {
    /// Every action equally often
    Random,
    /// The first action, which does nothing in an Atari game
    Noop,
}

#[derive(Serialize)]
struct Report {
    environment: String,
    policy: Policy,
    seed: u64,
    sticky: bool,
    actions: usize,
    episodes: Vec<Episode>,
    mean_score: f64,
    frames: u64,
    frames_per_second: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    random_score: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    human_score: Option<f64>,
}

#[derive(Clone, Copy, Serialize)]
struct Episode {
    score: f64,
    frames: u64,
    ending: &'static str,
}

impl From<EpisodeEnd> for Episode {
    fn from(end: EpisodeEnd) -> Self {
        let ending = if end.ending == Ending::Terminated { "terminated" } else { "truncated" };
        Self { score: rounded(end.score), frames: end.frames, ending }
    }
}

/// Plays and prints each episode's score, then what it came to.
pub fn run(args: &PlayArgs) -> Result<()> {
    let environment: EnvId = args.environment.parse()?;
    refuse_without_meaning(args, &environment)?;
    let mut config = WorkerConfig::new(environment.clone(), home::python()?, home::worker_package()?);
    config.seed = args.seed;
    config.ale.sticky = if args.sticky { 0.25 } else { 0.0 };
    config.ale.full_actions = !args.minimal_actions;
    let mut set = envs::make(&config)?;
    let spec = set.spec().clone();
    let mut video = args.video.as_deref().map(|path| open_video(path, &spec)).transpose()?;

    let (episodes, seconds) = play(set.as_mut(), args, video.as_mut())?;
    if let Some(video) = video {
        video.finish()?;
    }

    let frames: u64 = episodes.iter().map(|episode| episode.frames).sum();
    let game = environment.game();
    let report = Report {
        environment: environment.to_string(),
        policy: args.policy,
        seed: args.seed,
        sticky: args.sticky,
        actions: spec.actions(),
        mean_score: rounded(episodes.iter().map(|episode| episode.score).sum::<f64>() / episodes.len() as f64),
        episodes,
        frames,
        frames_per_second: frames as f64 / seconds,
        random_score: game.map(|game| game.random),
        human_score: game.map(|game| game.human),
    };
    if args.json { output::print_json(&report) } else { output::print(&summary(&report, args)) }
}

/// Only Atari games have sticky actions and a minimal set of them.
fn refuse_without_meaning(args: &PlayArgs, environment: &EnvId) -> Result<()> {
    for (option, given) in [("--sticky", args.sticky), ("--minimal-actions", args.minimal_actions)] {
        if given && environment.game().is_none() {
            bail!("{option} is for Atari games, and {environment} is none");
        }
    }
    Ok(())
}

fn open_video(path: &std::path::Path, spec: &EnvSpec) -> Result<VideoWriter> {
    let (height, width) = video::picture_size(spec)?;
    VideoWriter::create(path, height, width, video::FRAMES_PER_SECOND)
        .with_context(|| format!("no video can be made at {}", path.display()))
}

fn play(
    set: &mut dyn Environments,
    args: &PlayArgs,
    mut video: Option<&mut VideoWriter>,
) -> Result<(Vec<Episode>, f64)> {
    let spec = set.spec().clone();
    let mut random = SplitMix64::new(args.seed);
    let mut observation = vec![0; spec.observation_bytes()];
    let mut progress = Progress::new();
    let mut episodes = Vec::new();
    let (mut score, mut steps) = (0.0, 0);
    let began = Instant::now();
    set.reset()?;
    set.observation(0, 0, &mut observation);
    record(&mut video, &observation)?;
    while (episodes.len() as u64) < args.episodes {
        let action = match args.policy {
            Policy::Random => random.below(spec.actions()),
            Policy::Noop => 0,
        };
        set.start(0, &[action])?;
        let finished = set.finish(0).map(|steps| steps[0]);
        for fault in set.take_faults() {
            progress.say(format_args!("meme: {fault}"));
        }
        let step = finished?;
        steps += 1;
        score += step.reward;
        match step.end {
            None => set.observation(0, 0, &mut observation),
            Some(end) => {
                set.last_observation(0, 0, &mut observation);
                score = 0.0;
                // An episode that was lost with its worker is played again.
                if end.ending != Ending::CutOff {
                    progress.clear();
                    let episode = Episode::from(end);
                    episodes.push(episode);
                    if !args.json {
                        output::print(&told(episodes.len(), episode))?;
                    }
                }
            }
        }
        record(&mut video, &observation)?;
        if step.end.is_some() && (episodes.len() as u64) < args.episodes {
            set.observation(0, 0, &mut observation);
            record(&mut video, &observation)?;
        }
        progress.show(|| {
            let frames = steps * u64::from(spec.frames_per_step);
            let rate = frames as f64 / began.elapsed().as_secs_f64();
            let of = args.episodes;
            format!(
                "episode {} of {of}, score {}, {} frames, {rate:.0} frames/s",
                episodes.len() + 1,
                rounded(score),
                grouped(frames)
            )
        });
    }
    progress.clear();
    Ok((episodes, began.elapsed().as_secs_f64()))
}

fn told(number: usize, Episode { score, frames, ending }: Episode) -> String {
    format!("episode {number}: score {score}, {} frames, {ending}\n", grouped(frames))
}

fn record(video: &mut Option<&mut VideoWriter>, observation: &[u8]) -> Result<()> {
    match video {
        Some(video) => Ok(video.frame(observation)?),
        None => Ok(()),
    }
}

fn summary(report: &Report, args: &PlayArgs) -> String {
    let mut text = format!(
        "{}: mean score {} over {} episode{}, {} frames at {:.0} frames/s\n",
        report.environment,
        fixed(report.mean_score, 2),
        report.episodes.len(),
        if report.episodes.len() == 1 { "" } else { "s" },
        grouped(report.frames),
        report.frames_per_second
    );
    if let (Some(random), Some(human)) = (report.random_score, report.human_score) {
        text += &format!("for comparison: random play {random}, a human {human}\n");
    }
    if let Some(path) = &args.video {
        text += &format!("video: {}\n", path.display());
    }
    text
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: PlayArgs,
    }

    fn refusal(words: &[&str]) -> String {
        let Line { args } = Line::parse_from([&["play"], words].concat());
        run(&args).unwrap_err().to_string()
    }

    #[test]
    fn scores_are_told_without_what_adding_leaves_of_them() {
        let end = EpisodeEnd { ending: Ending::Terminated, score: 0.9900000000000001, frames: 10 };
        assert_eq!(Episode::from(end).score.to_string(), "0.99");
    }

    #[test]
    fn options_of_atari_games_are_refused_elsewhere() {
        let (catch, gym) = ("catch", "gym:ALE/Pong-v5");
        assert_eq!(refusal(&[catch, "--sticky"]), "--sticky is for Atari games, and catch is none");
        let refused = "--minimal-actions is for Atari games, and gym:ALE/Pong-v5 is none";
        assert_eq!(refusal(&[gym, "--minimal-actions"]), refused);
    }
}
