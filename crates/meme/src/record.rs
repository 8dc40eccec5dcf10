//! `meme record`: a video of a trained agent, with its values and policy next to the game.

use std::fs;
use std::path::PathBuf;

use agent::acting::softmax;
use agent::rescaling::unscale_value;
use anyhow::{Context, Result};
use clap::Args;
use envs::Ending;
use serde::Serialize;
use train::number_format::rounded;
use train::roles::demonstration::{Demonstration, DemonstrationStep};

use crate::console::ProgressLine;
use crate::options;
use crate::output::{self, grouped};
use crate::run_args::{PlayedRun, PlayedRunArgs};
use crate::step_table::StepTable;
use crate::video::pictures::Pictures;
use crate::video::scene::{Scene, SceneStep};
use crate::video::{FRAMES_PER_SECOND, VideoWriter};

/// Frames for which the end of an episode is shown.
const HOLD: u32 = FRAMES_PER_SECOND;

/// Arguments of `meme record`.
#[derive(Args)]
pub struct RecordArgs {
    #[command(flatten)]
    run: PlayedRunArgs,
    /// Video to write: a .gif file or, with ffmpeg, an .mp4 file [default: FRAMES-seed-SEED.gif in the run's videos
    /// directory]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Number of episodes
    #[arg(long, default_value_t = 1, value_parser = options::count::<u64>())]
    episodes: u64,
    /// Length limit in seconds; the video may end within an episode
    #[arg(long, value_parser = options::integer::<u64>(1, 86_400))]
    seconds: Option<u64>,
    /// Also write every step to this safetensors file: observations, actions, rewards, rescaled Q values, and the
    /// preferences and intrinsic rewards of the agent
    #[arg(long, value_name = "FILE")]
    data: Option<PathBuf>,
    /// Print one JSON document instead of text
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct RecordReport {
    run: String,
    environment: String,
    video: PathBuf,
    checkpoint_frames: u64,
    updates: u64,
    policy: usize,
    seed: u64,
    scores: Vec<f64>,
    /// Score of an episode that the video does not show to its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    score_so_far: Option<f64>,
}

/// Plays the episodes and writes the video.
pub fn run(args: &RecordArgs) -> Result<()> {
    let run = args.run.open()?;
    let PlayedRun { task, config, checkpoint, seed, .. } = &run;
    let mut play = run.context(Demonstration::new(task, config, checkpoint, *seed))?;
    let spec = play.spec.clone();
    let pictures = Pictures::new(&spec, config.env.frame_stack, || Ok(play.render(false)?))?;
    let mut scene = Scene::new(&spec, pictures.size, config.agent.policies.count);
    let out = match &args.out {
        Some(out) => out.clone(),
        None => default_video(&run)?,
    };
    let mut video =
        VideoWriter::create(&out, scene.size).with_context(|| format!("cannot create the video {}", out.display()))?;
    let mut steps = args.data.as_ref().map(|_| StepTable::default());
    let distilled = config.agent.acts_by_policy();
    let (scores, score_so_far) = film(&mut play, args, distilled, pictures, (&mut scene, &mut video), steps.as_mut())?;
    video.finish()?;
    if let (Some(file), Some(steps)) = (&args.data, steps) {
        steps.write(&spec, file).with_context(|| format!("cannot write {}", file.display()))?;
    }
    let report = RecordReport {
        run: run.files.name().to_owned(),
        environment: task.environment.to_string(),
        video: out,
        checkpoint_frames: checkpoint.frames(),
        updates: play.updates,
        policy: play.policy(),
        seed: *seed,
        scores,
        score_so_far,
    };
    output::print_report(args.json, &report, text)
}

/// Default path of a video; its name contains all that the first episode depends on.
fn default_video(run: &PlayedRun) -> Result<PathBuf> {
    let directory = run.files.videos_directory();
    fs::create_dir_all(&directory).with_context(|| format!("cannot create {}", directory.display()))?;
    Ok(directory.join(format!("{:012}-seed-{}.gif", run.checkpoint.frames(), run.seed)))
}

/// Returns the scores of complete episodes, and that of an incomplete one. An episode that is lost with its worker is
/// shown but does not count.
fn film(
    play: &mut Demonstration,
    args: &RecordArgs,
    distilled: bool,
    pictures: Pictures,
    (scene, video): (&mut Scene, &mut VideoWriter),
    mut steps: Option<&mut StepTable>,
) -> Result<(Vec<f64>, Option<f64>)> {
    let episodes = args.episodes;
    let most_pictures = args.seconds.map(|seconds| seconds * u64::from(FRAMES_PER_SECOND));
    let mut progress = ProgressLine::new();
    let mut scores = Vec::new();
    let (mut score, mut step, mut shown_pictures) = (0.0, 0, 0);
    let policy = play.policy();
    while (scores.len() as u64) < episodes && most_pictures.is_none_or(|most| shown_pictures < most) {
        let rendered = pictures.rendered(|| Ok(play.render(false)?))?;
        let played = play.step(&mut |fault| progress.warn(fault))?;
        if let Some(steps) = &mut steps {
            steps.add(&played);
        }
        let DemonstrationStep { observation, decision, intrinsic, action, reward, end } = played;
        let probabilities = softmax(&decision.preferences);
        let probabilities = distilled.then_some(&probabilities[..]);
        let q: Vec<f32> = decision.q.iter().map(|&q| unscale_value(f64::from(q)) as f32).collect();
        let episode = scores.len() as u64 + 1;
        let (q, intrinsic) = (&q[..], Some(intrinsic.ngu));
        let picture = &pictures.picture(rendered.as_deref(), &observation)[..];
        let shown = SceneStep { picture, episode, step, score, policy, probabilities, q, action, intrinsic };
        video.frame(scene.draw(&shown))?;
        (score, step, shown_pictures) = (score + reward, step + 1, shown_pictures + 1);
        if let Some((end, last)) = end {
            // A lost worker has left no picture of the end.
            let rendered_end = match end.ending {
                Ending::CutOff => None,
                _ => pictures.rendered(|| Ok(play.render(true)?))?,
            };
            let picture = &pictures.picture(rendered_end.as_deref().or(rendered.as_deref()), &last)[..];
            let pixels = scene.draw(&SceneStep { picture, step, score, intrinsic: None, ..shown });
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

fn text(report: &RecordReport) -> String {
    let so_far = report.score_so_far.map(|score| format!("{score} so far"));
    let scores: Vec<String> = report.scores.iter().map(f64::to_string).chain(so_far).collect();
    format!(
        "wrote {}: run {} at {} frames, policy {}, seed {}, score {}\n",
        report.video.display(),
        report.run,
        grouped(report.checkpoint_frames),
        report.policy,
        report.seed,
        scores.join(" ")
    )
}
