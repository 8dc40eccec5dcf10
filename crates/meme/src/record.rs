//! `meme record`: a video of a run's play, with what the agent thinks beside the game.

use std::fs;
use std::path::PathBuf;

use agent::math::policy::target_policy;
use agent::math::rescaling::rescale_inverse_f32;
use anyhow::{Context, Result};
use clap::Args;
use envs::Ending;
use serde::Serialize;
use train::demonstration::{Demonstration, Moment};
use train::numbers::rounded;

use crate::chosen_run::{ChosenRun, OpenRun};
use crate::options;
use crate::output::{self, Progress, grouped};
use crate::video::scene::{Bars, Scene, Shown};
use crate::video::{FRAMES_PER_SECOND, VideoWriter};

/// How long the end of an episode is shown.
const HOLD: u32 = FRAMES_PER_SECOND;

/// Options of `meme record`.
#[derive(Args)]
pub struct RecordArgs {
    #[command(flatten)]
    run: ChosenRun,
    /// The video: a .gif or, with ffmpeg, an .mp4 file [default: FRAMES-seed-SEED.gif in the run's videos folder]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Episodes to show
    #[arg(long, default_value_t = 1, value_parser = options::episodes::<u64>())]
    episodes: u64,
    /// End the video after so many seconds, also in the midst of an episode
    #[arg(long, value_parser = options::whole::<u64>(1, 86_400))]
    seconds: Option<u64>,
    /// Print one JSON document instead of a line
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Report {
    run: String,
    environment: String,
    video: PathBuf,
    checkpoint_frames: u64,
    updates: u64,
    policy: usize,
    seed: u64,
    scores: Vec<f64>,
    /// Of an episode that the video does not show to its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    score_so_far: Option<f64>,
}

/// Plays and writes the video.
pub fn run(args: &RecordArgs) -> Result<()> {
    let run = args.run.open()?;
    let OpenRun { task, config, checkpoint, seed, .. } = &run;
    let mut play = run.because_of_checkpoint(Demonstration::new(task, config, checkpoint, *seed))?;
    let mut scene = Scene::new(play.spec(), config.agent.policies.count)?;
    let (height, width) = scene.size();
    let out = match &args.out {
        Some(out) => out.clone(),
        None => default_video(&run)?,
    };
    let mut video = VideoWriter::create(&out, height, width, FRAMES_PER_SECOND)
        .with_context(|| format!("no video can be made at {}", out.display()))?;
    let length = Length { episodes: args.episodes, pictures: args.seconds.map(|s| s * u64::from(FRAMES_PER_SECOND)) };
    let (scores, score_so_far) = film(&mut play, length, config.agent.loss.distillation, &mut scene, &mut video)?;
    video.finish()?;
    let report = Report {
        run: run.files.name().to_owned(),
        environment: task.environment.to_string(),
        video: out,
        checkpoint_frames: checkpoint.frames(),
        updates: play.updates(),
        policy: play.policy(),
        seed: *seed,
        scores,
        score_so_far,
    };
    if args.json { output::print_json(&report) } else { output::print(&text(&report)) }
}

/// Where a video goes that was given no place, by all that the first episode follows from.
fn default_video(run: &OpenRun) -> Result<PathBuf> {
    let folder = run.files.videos_folder();
    fs::create_dir_all(&folder).with_context(|| format!("{} can't be made", folder.display()))?;
    Ok(folder.join(format!("{:012}-seed-{}.gif", run.checkpoint.frames(), run.seed)))
}

/// How much is shown: so many episodes, or so many pictures if those are fewer.
#[derive(Clone, Copy)]
struct Length {
    episodes: u64,
    pictures: Option<u64>,
}

/// Shows so much; the scores of whole episodes, and that of one that was not shown to its end. One that is lost with its
/// worker is shown and does not count.
fn film(
    play: &mut Demonstration,
    Length { episodes, pictures }: Length,
    distilled: bool,
    scene: &mut Scene,
    video: &mut VideoWriter,
) -> Result<(Vec<f64>, Option<f64>)> {
    let mut progress = Progress::new();
    let mut scores = Vec::new();
    let (mut score, mut step, mut shown_pictures) = (0.0, 0, 0);
    let policy = play.policy();
    while (scores.len() as u64) < episodes && pictures.is_none_or(|most| shown_pictures < most) {
        let Moment { observation, decision, novelty, action, reward, end } =
            play.step(&mut |fault| progress.say(format_args!("meme: {fault}")))?;
        let mut probabilities = vec![0.0; decision.preferences.len()];
        target_policy(&decision.preferences, 1.0, &mut probabilities);
        let bars = if distilled { Bars::Policy(&probabilities) } else { Bars::Values };
        let q: Vec<f32> = decision.q.iter().map(|&q| rescale_inverse_f32(q)).collect();
        let episode = scores.len() as u64 + 1;
        let (observation, q, intrinsic) = (&observation[..], &q[..], Some(novelty.ngu));
        let shown = Shown { observation, episode, step, score, policy, bars, q, action, intrinsic };
        video.frame(scene.draw(&shown))?;
        (score, step, shown_pictures) = (score + reward, step + 1, shown_pictures + 1);
        if let Some((end, last)) = end {
            let pixels = scene.draw(&Shown { observation: &last, step, score, intrinsic: None, ..shown });
            for _ in 0..HOLD {
                video.frame(pixels)?;
            }
            shown_pictures += u64::from(HOLD);
            if end.ending != Ending::CutOff {
                scores.push(rounded(end.score));
            }
            (score, step) = (0.0, 0);
        }
        progress.show(|| format!("episode {episode} of {episodes}, step {step}, score {}", rounded(score)));
    }
    progress.clear();
    Ok((scores, (step > 0).then_some(rounded(score))))
}

fn text(report: &Report) -> String {
    let so_far = report.score_so_far.map(|score| format!("{score} so far"));
    let scores: Vec<String> = report.scores.iter().map(f64::to_string).chain(so_far).collect();
    format!(
        "{}: {} at {} frames, policy {}, seed {}, score {}\n",
        report.video.display(),
        report.run,
        grouped(report.checkpoint_frames),
        report.policy,
        report.seed,
        scores.join(" ")
    )
}
