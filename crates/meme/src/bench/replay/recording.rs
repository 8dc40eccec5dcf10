//! Real play to measure with: random actions, everything but the observations and rewards made up.

use anyhow::{Result, bail};
use envs::{Ending, EnvSpec, WorkerConfig};
use half::f16;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::SplitMix64;
use replay::{Layout, SequenceStart, Step, Writer};

use crate::console::ProgressLine;

/// Recorded episodes, and what an agent would have added to them.
pub struct Recording {
    pub spec: EnvSpec,
    pub episodes: Vec<Episode>,
    agent: MadeUp,
}

/// One episode, cut off where the recording ended.
pub struct Episode {
    /// All observations, the last included, end to end.
    pub observations: Vec<u8>,
    pub actions: Vec<u16>,
    pub rewards: Vec<f32>,
    pub terminated: bool,
}

/// Values of the kind that networks compute. They are noise, which does not compress: real ones take less.
struct MadeUp {
    embeddings: Vec<f16>,
    states: Vec<f32>,
    rewards: Vec<f32>,
}

/// Sets of made-up values, used in turn.
const MADE_UP: usize = 997;

impl Recording {
    /// Plays `steps` agent steps in all environments together.
    pub fn play(config: &WorkerConfig, layout: impl Fn(&EnvSpec) -> Layout, steps: usize) -> Result<Self> {
        let mut environments = envs::make(config)?;
        let spec = environments.spec().clone();
        let (groups, size) = (environments.groups(), environments.group_size());
        let mut random = SplitMix64::seed_from_u64(config.seed);
        let mut observation = vec![0; spec.observation_bytes()];
        environments.reset()?;
        let mut open: Vec<Episode> = Vec::new();
        for environment in 0..groups * size {
            environments.observation(environment / size, environment % size, &mut observation);
            open.push(Episode::begin(&observation));
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
                        episodes.push(std::mem::replace(episode, Episode::begin(&observation)));
                    } else {
                        environments.observation(group, env, &mut observation);
                        episode.observations.extend_from_slice(&observation);
                    }
                }
            }
        }
        progress.clear();
        if let Some(fault) = environments.take_faults().first() {
            bail!("the recording is void: {fault}");
        }
        episodes.extend(open.into_iter().filter(|episode| !episode.actions.is_empty()));
        let agent = MadeUp::new(&layout(&spec), &mut random);
        Ok(Self { spec, episodes, agent })
    }

    /// Observations of all episodes, which is what a replay holds of them.
    pub fn observations(&self) -> usize {
        self.episodes.iter().map(|episode| episode.actions.len() + 1).sum()
    }

    /// Writes an episode, leaving its sequences ready.
    pub fn write(&self, layout: &Layout, episode: &Episode, writer: &mut Writer) -> replay::Result<()> {
        let size = layout.observation_bytes;
        let steps = episode.actions.len();
        writer.begin_episode(0)?;
        for t in 0..steps {
            let (embedding, state, [ngu, rnd, episodic, probability]) = self.agent.at(layout, t);
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
        let (embedding, _, [ngu, rnd, episodic, _]) = self.agent.at(layout, steps);
        writer.end_episode(&episode.observations[steps * size..], &Step::last([ngu, rnd, episodic], embedding))
    }
}

impl Episode {
    fn begin(observation: &[u8]) -> Self {
        Self { observations: observation.to_vec(), actions: Vec::new(), rewards: Vec::new(), terminated: false }
    }
}

impl MadeUp {
    fn new(layout: &Layout, random: &mut SplitMix64) -> Self {
        let mut unit = || random.random_range(-1.0..1.0f32);
        Self {
            embeddings: (0..MADE_UP * layout.embedding).map(|_| f16::from_f32(unit())).collect(),
            states: (0..MADE_UP + layout.state).map(|_| unit()).collect(),
            rewards: (0..MADE_UP * 4).map(|_| unit().abs()).collect(),
        }
    }

    fn at(&self, layout: &Layout, t: usize) -> (&[f16], &[f32], [f32; 4]) {
        let i = t % MADE_UP;
        let embedding = &self.embeddings[i * layout.embedding..(i + 1) * layout.embedding];
        (embedding, &self.states[i..i + layout.state], std::array::from_fn(|k| self.rewards[4 * i + k]))
    }
}
