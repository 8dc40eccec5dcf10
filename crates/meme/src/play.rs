//! `meme play`: a simple policy in any environment, for a first look at it.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use envs::{Ending, EnvId, Environments, EpisodeEnd};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::SplitMix64;
use serde::Serialize;
use train::number_format::{fixed, rounded};

use crate::console::ProgressLine;
use crate::install;
use crate::options::{self, StickyArg};
use crate::output::{self, count_of, grouped};
use crate::video::VideoWriter;
use crate::video::pictures::Pictures;

/// Arguments of `meme play`.
#[derive(Args)]
pub struct PlayArgs {
    #[arg(help = options::environment_help())]
    environment: String,
    /// Policy that chooses the actions
    #[arg(long, value_enum, default_value_t = SimplePolicy::Random)]
    policy: SimplePolicy,
    /// Number of episodes
    #[arg(long, default_value_t = 1, value_parser = options::count::<u64>())]
    episodes: u64,
    #[command(flatten)]
    sticky: StickyArg,
    /// Use only the actions that have an effect in this game, instead of all 18
    #[arg(long)]
    minimal_actions: bool,
    /// Random seed; the same seed plays the same episodes
    #[arg(long, default_value_t = 0, value_parser = options::field("run.seed"))]
    seed: u64,
    /// Video of all episodes to write: a .gif file or, with ffmpeg, an .mp4 file
    #[arg(long, value_name = "FILE")]
    video: Option<PathBuf>,
    /// Print one JSON document instead of text
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
enum SimplePolicy {
    /// Uniformly random actions
    Random,
    /// Always the first action, which does nothing in an Atari game
    Noop,
}

#[derive(Serialize)]
struct PlayReport {
    environment: String,
    policy: SimplePolicy,
    seed: u64,
    sticky: bool,
    actions: usize,
    episodes: Vec<PlayedEpisode>,
    mean_score: f64,
    frames: u64,
    frames_per_second: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    random_score: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    human_score: Option<f64>,
}

#[derive(Clone, Copy, Serialize)]
struct PlayedEpisode {
    score: f64,
    frames: u64,
    ending: &'static str,
}

impl From<EpisodeEnd> for PlayedEpisode {
    fn from(end: EpisodeEnd) -> Self {
        let ending = if end.ending == Ending::Terminated { "terminated" } else { "truncated" };
        Self { score: rounded(end.score), frames: end.frames, ending }
    }
}

/// Plays, and prints the score of each episode and a summary.
pub fn run(args: &PlayArgs) -> Result<()> {
    let environment: EnvId = args.environment.parse()?;
    let sticky = args.sticky.probability(&environment)?;
    if args.minimal_actions {
        options::check_atari("--minimal-actions", &environment)?;
    }
    let mut config = install::worker_config(environment.clone())?;
    config.seed = args.seed;
    config.ale.sticky_probability = sticky.unwrap_or(0.0);
    config.ale.full_actions = !args.minimal_actions;
    config.render = args.video.is_some();
    let mut set = envs::make(&config)?;
    let spec = set.spec().clone();
    set.reset()?;
    let mut film = args.video.as_deref().map(|path| Film::create(path, set.as_mut())).transpose()?;

    let (episodes, seconds) = play(set.as_mut(), args, film.as_mut())?;
    if let Some(film) = film {
        film.video.finish()?;
    }

    let frames: u64 = episodes.iter().map(|episode| episode.frames).sum();
    let game = environment.game();
    let report = PlayReport {
        environment: environment.to_string(),
        policy: args.policy,
        seed: args.seed,
        sticky: sticky.is_some(),
        actions: spec.actions(),
        mean_score: rounded(episodes.iter().map(|episode| episode.score).sum::<f64>() / episodes.len() as f64),
        episodes,
        frames,
        frames_per_second: frames as f64 / seconds,
        random_score: game.map(|game| game.random),
        human_score: game.map(|game| game.human),
    };
    output::print_report(args.json, &report, |report| summary(report, args))
}

/// The video of the first environment of a set.
struct Film {
    pictures: Pictures,
    video: VideoWriter,
}

impl Film {
    fn create(path: &Path, set: &mut dyn Environments) -> Result<Self> {
        let pictures = Pictures::new(&set.spec().clone(), 1, || Ok(set.render(0, 0, false)?))?;
        let video = VideoWriter::create(path, pictures.size)
            .with_context(|| format!("cannot create the video {}", path.display()))?;
        Ok(Self { pictures, video })
    }

    /// Adds the picture of an observation: the current one, or with `last` the one that ended the last episode.
    fn add(&mut self, set: &mut dyn Environments, observation: &[u8], last: bool) -> Result<()> {
        let rendered = self.pictures.rendered(|| Ok(set.render(0, 0, last)?))?;
        self.video.frame(&self.pictures.picture(rendered.as_deref(), observation))
    }
}

fn play(set: &mut dyn Environments, args: &PlayArgs, mut film: Option<&mut Film>) -> Result<(Vec<PlayedEpisode>, f64)> {
    let spec = set.spec().clone();
    let mut random = SplitMix64::seed_from_u64(args.seed);
    let mut observation = vec![0; spec.observation_bytes()];
    let mut progress = ProgressLine::new();
    let mut episodes = Vec::new();
    let (mut score, mut steps) = (0.0, 0);
    let began = Instant::now();
    set.observation(0, 0, &mut observation);
    record(&mut film, set, &observation, false)?;
    while (episodes.len() as u64) < args.episodes {
        let action = match args.policy {
            SimplePolicy::Random => random.random_range(0..spec.actions() as u64) as usize,
            SimplePolicy::Noop => 0,
        };
        set.start(0, &[action])?;
        let finished = set.finish(0).map(|steps| steps[0]);
        for fault in set.take_faults() {
            progress.warn(fault);
        }
        let step = finished?;
        steps += 1;
        score += step.reward;
        match step.end {
            None => set.observation(0, 0, &mut observation),
            Some(end) => {
                set.last_observation(0, 0, &mut observation);
                score = 0.0;
                // An episode that is lost with its worker is played again.
                if end.ending != Ending::CutOff {
                    progress.clear();
                    let episode = PlayedEpisode::from(end);
                    episodes.push(episode);
                    if !args.json {
                        output::print(&episode_line(episodes.len(), episode))?;
                    }
                }
            }
        }
        // A lost worker has left no picture of the end.
        let last = step.end.is_some_and(|end| end.ending != Ending::CutOff);
        record(&mut film, set, &observation, last)?;
        if step.end.is_some() && (episodes.len() as u64) < args.episodes {
            set.observation(0, 0, &mut observation);
            record(&mut film, set, &observation, false)?;
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

fn episode_line(number: usize, PlayedEpisode { score, frames, ending }: PlayedEpisode) -> String {
    format!("episode {number}: score {score}, {} frames, {ending}\n", grouped(frames))
}

fn record(film: &mut Option<&mut Film>, set: &mut dyn Environments, observation: &[u8], last: bool) -> Result<()> {
    film.as_mut().map_or(Ok(()), |film| film.add(set, observation, last))
}

fn summary(report: &PlayReport, args: &PlayArgs) -> String {
    let mut text = format!(
        "{}: mean score {} over {}, {} frames at {:.0} frames/s\n",
        report.environment,
        fixed(report.mean_score, 2),
        count_of(report.episodes.len(), "episode"),
        grouped(report.frames),
        report.frames_per_second
    );
    if let (Some(random), Some(human)) = (report.random_score, report.human_score) {
        text += &format!("reference scores: random play {random}, human {human}\n");
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
    struct CommandLine {
        #[command(flatten)]
        args: PlayArgs,
    }

    fn rejection(words: &[&str]) -> String {
        let CommandLine { args } = CommandLine::parse_from([&["play"], words].concat());
        run(&args).unwrap_err().to_string()
    }

    #[test]
    fn scores_are_rounded() {
        let end = EpisodeEnd { ending: Ending::Terminated, score: 0.9900000000000001, frames: 10 };
        assert_eq!(PlayedEpisode::from(end).score.to_string(), "0.99");
    }

    #[test]
    fn atari_options_are_rejected_elsewhere() {
        let (catch, gym) = ("catch", "gym:ALE/Pong-v5");
        assert_eq!(rejection(&[catch, "--sticky"]), "--sticky applies to Atari games only, not to catch");
        let refused = "--minimal-actions applies to Atari games only, not to gym:ALE/Pong-v5";
        assert_eq!(rejection(&[gym, "--minimal-actions"]), refused);
    }
}
