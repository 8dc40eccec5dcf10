//! Recorded play with random actions; observations and rewards are real, the rest is noise.

use anyhow::{Result, bail};
use envs::{Ending, EnvSpec, WorkerConfig};
use half::f16;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::SplitMix64;
use replay::{Layout, SequenceStart, Step, Writer};

use crate::console::ProgressLine;

/// Recorded episodes, and noise in place of what an agent adds to them.
pub struct Recording {
    pub spec: EnvSpec,
    pub episodes: Vec<RecordedEpisode>,
    noise: AgentNoise,
}

/// One episode, possibly cut off by the end of the recording.
pub struct RecordedEpisode {
    /// All observations, including the last one.
    pub observations: Vec<u8>,
    pub actions: Vec<u16>,
    pub rewards: Vec<f32>,
    pub terminated: bool,
}

/// Noise in place of network outputs. It does not compress, while real outputs do.
struct AgentNoise {
    embeddings: Vec<f16>,
    states: Vec<f32>,
    rewards: Vec<f32>,
}

/// Number of different noise values, used in turn.
const NOISE_LENGTH: usize = 997;

impl Recording {
    /// Plays `steps` agent steps in total.
    pub fn play(config: &WorkerConfig, layout: impl Fn(&EnvSpec) -> Layout, steps: usize) -> Result<Self> {
        let mut environments = envs::make(config)?;
        let spec = environments.spec().clone();
        let (groups, size) = (environments.groups(), environments.group_size());
        let mut random = SplitMix64::seed_from_u64(config.seed);
        let mut observation = vec![0; spec.observation_bytes()];
        environments.reset()?;
        let mut open: Vec<RecordedEpisode> = Vec::new();
        for environment in 0..groups * size {
            environments.observation(environment / size, environment % size, &mut observation);
            open.push(RecordedEpisode::start(&observation));
        }
        let mut episodes = Vec::new();
        let mut progress = ProgressLine::new();
        let mut actions = vec![0; size];
        for played in 0..steps.div_ceil(groups * size) {
            progress.show(|| format!("played {} of {steps} steps", played * groups * size));
            for group in 0..groups {
                actions.fill_with(|| random.random_range(0..spec.actions()));
                environments.start(group, &actions)?;
                let outcomes = environments.finish(group)?.to_vec();
                for (env, outcome) in outcomes.into_iter().enumerate() {
                    let episode = &mut open[group * size + env];
                    episode.actions.push(actions[env] as u16);
                    episode.rewards.push(outcome.reward as f32);
                    if let Some(end) = outcome.end {
                        environments.last_observation(group, env, &mut observation);
                        episode.observations.extend_from_slice(&observation);
                        episode.terminated = end.ending == Ending::Terminated;
                        environments.observation(group, env, &mut observation);
                        episodes.push(std::mem::replace(episode, RecordedEpisode::start(&observation)));
                    } else {
                        environments.observation(group, env, &mut observation);
                        episode.observations.extend_from_slice(&observation);
                    }
                }
            }
        }
        progress.clear();
        if let Some(fault) = environments.take_faults().first() {
            bail!("invalid recording: {fault}");
        }
        episodes.extend(open.into_iter().filter(|episode| !episode.actions.is_empty()));
        let noise = AgentNoise::new(&layout(&spec), &mut random);
        Ok(Self { spec, episodes, noise })
    }

    /// Number of observations in all episodes.
    pub fn observations(&self) -> usize {
        self.episodes.iter().map(|episode| episode.actions.len() + 1).sum()
    }

    /// Writes an episode to replay.
    pub fn write(&self, layout: &Layout, episode: &RecordedEpisode, writer: &mut Writer) -> replay::Result<()> {
        let size = layout.observation_bytes;
        let steps = episode.actions.len();
        writer.begin_episode(0)?;
        for t in 0..steps {
            let (embedding, state, [ngu, rnd, episodic, probability]) = self.noise.at(layout, t);
            let step = Step {
                action: episode.actions[t],
                behaviour_probability: probability,
                reward_extrinsic: episode.rewards[t],
                reward_ngu: ngu,
                reward_rnd: rnd,
                reward_episodic: episodic,
                discount: if episode.terminated && t + 1 == steps { 0.0 } else { 1.0 },
                embedding,
            };
            let start = SequenceStart { state, parameter_version: 0 };
            writer.append(&episode.observations[t * size..(t + 1) * size], &step, Some(start))?;
        }
        let (embedding, _, [ngu, rnd, episodic, _]) = self.noise.at(layout, steps);
        writer.end_episode(&episode.observations[steps * size..], &Step::last([ngu, rnd, episodic], embedding))
    }
}

impl RecordedEpisode {
    fn start(observation: &[u8]) -> Self {
        Self { observations: observation.to_vec(), actions: Vec::new(), rewards: Vec::new(), terminated: false }
    }
}

impl AgentNoise {
    fn new(layout: &Layout, random: &mut SplitMix64) -> Self {
        let mut unit = || random.random_range(-1.0..1.0f32);
        Self {
            embeddings: (0..NOISE_LENGTH * layout.embedding).map(|_| f16::from_f32(unit())).collect(),
            states: (0..NOISE_LENGTH + layout.state).map(|_| unit()).collect(),
            rewards: (0..NOISE_LENGTH * 4).map(|_| unit().abs()).collect(),
        }
    }

    fn at(&self, layout: &Layout, t: usize) -> (&[f16], &[f32], [f32; 4]) {
        let i = t % NOISE_LENGTH;
        let embedding = &self.embeddings[i * layout.embedding..(i + 1) * layout.embedding];
        (embedding, &self.states[i..i + layout.state], std::array::from_fn(|k| self.rewards[4 * i + k]))
    }
}
