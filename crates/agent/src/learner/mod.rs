//! The learner: everything that persists between updates.
//!
//! An update is one call, [`Learner::step`]; or it is [begun](Learner::begin) and [finished](Learner::finish), so that
//! a GPU has the next update's work before the report of the last one is read.

mod intrinsic_loss;
mod report;
mod state;
mod target_network;
mod update;
mod update_graphs;

use std::sync::Arc;

use rand::SeedableRng;
use replay::SequenceBatch;
use tch::Device;
use torch_ext::{Priority, Stream};

use crate::Random;
use crate::batch::{self, BatchShape, BatchTensors};
use crate::config::{AgentConfig, OptimizerConfig};
use crate::error::{AgentError, Result};
use crate::loader::{LoadedBatch, Loader};
use crate::loss::AgentLoss;
use crate::loss::TdScale;
use crate::moments::Moments;
use crate::nets::parameters::ParameterSet;
use crate::networks::{NetworkParameters, Networks};
use crate::observation::ObservationSpec;
use crate::optimizer::{AdamConfig, Optimizer};
use intrinsic_loss::LearnerIntrinsic;
use target_network::TargetNetwork;
use update::PendingUpdate;
use update_graphs::UpdateGraphs;

pub use report::{GradientNorms, Losses, RndStatistics, StepReport};
pub use state::{AVERAGED, LearnerScalars, LearnerState, ONLINE, TARGET};

/// A trained network's optimizer and gradients.
#[derive(Debug)]
struct Training {
    optimizer: Optimizer,
    gradients: ParameterSet,
}

impl Training {
    fn new(config: AdamConfig, parameters: &ParameterSet) -> Result<Self> {
        let gradients = ParameterSet::zeros(parameters.layout(), parameters.flat().device())?;
        Ok(Self { optimizer: Optimizer::new(config, parameters)?, gradients })
    }
}

/// A learner's CUDA streams besides the current one.
#[derive(Debug)]
struct LearnerStreams {
    /// For work that runs in parallel with the rest of an update.
    side: Stream,
    /// For capturing CUDA graphs.
    capture: Stream,
}

impl LearnerStreams {
    /// The streams of a learner on a GPU; none on a CPU.
    fn new(device: Device) -> Result<Option<Arc<Self>>> {
        if !torch_ext::serves(device) {
            return Ok(None);
        }
        let stream = || Stream::new(Priority::Normal);
        Ok(Some(Arc::new(Self { side: stream()?, capture: stream()? })))
    }
}

/// Which parameters of the value and policy network to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParameterSource {
    /// The trained parameters, which actors use.
    Online,
    /// Their exponential moving average, which evaluators use.
    Averaged,
}

/// The parts of an update, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UpdatePart {
    /// Forward pass of the online network's torso.
    OnlineTorso,
    /// Forward pass of the target network's torso.
    TargetTorso,
    /// The rest of both forward passes.
    CoresAndHeads,
    /// Forward and backward pass of action prediction and RND.
    Intrinsic,
    /// Returns, losses and priorities.
    Loss,
    /// Backward pass of the online network.
    Backward,
    /// Optimizers, moving average, target copy and statistics.
    Optimizer,
}

/// Options of an update for tests and benchmarks.
#[derive(Default)]
pub struct StepOptions<'a> {
    /// Stochastic-depth mask instead of a drawn one, `[blocks][B]`: 0 where a block is dropped for a sequence.
    pub depth_mask: Option<&'a [u8]>,
    /// Called at the end of every part.
    pub observer: Option<&'a mut dyn FnMut(UpdatePart)>,
}

/// Everything that persists between updates.
#[derive(Debug)]
pub struct Learner {
    /// The configuration it was made with.
    pub config: AgentConfig,
    /// Descriptions of the networks.
    pub networks: Networks,
    /// f and RND with folded weights, where that is faster.
    folded_intrinsic: Option<LearnerIntrinsic>,
    graphs: UpdateGraphs,
    device: Device,
    loss: AgentLoss,
    online: NetworkParameters,
    target: TargetNetwork,
    averaged: ParameterSet,
    agent: Training,
    action_prediction: Training,
    rnd: Training,
    /// σ_j of each value head.
    pub td_scales: Vec<TdScale>,
    /// Running mean and deviation of the RND error after the last finished update, by which actors judge novelty.
    pub rnd_errors: Moments,
    /// On a GPU.
    streams: Option<Arc<LearnerStreams>>,
    /// Number of finished updates.
    finished_updates: u64,
    /// The update that was begun and not finished.
    pending: Option<PendingUpdate>,
    /// Draws the stochastic-depth masks.
    random: Random,
}

impl Learner {
    /// An untrained learner, whose parameters are a function of the seed.
    pub fn new(
        config: &AgentConfig,
        observation: &ObservationSpec,
        actions: usize,
        seed: u64,
        device: Device,
    ) -> Result<Self> {
        let networks = Networks::new(config, observation, actions)?.on(config.network.precision, device)?;
        let mut random = Random::seed_from_u64(seed);
        let NetworkParameters { agent, action_prediction, rnd_target, rnd_predictor } =
            NetworkParameters::initialised(&networks, &mut random, device)?;
        let (target, averaged) = (agent.duplicate()?, agent.duplicate()?);
        let loss = AgentLoss::new(config, device)?;
        let scale = TdScale::new(config.policies.count, config.loss.sigma_decay, config.loss.sigma_floor);
        let adam = |learning_rate, weight_decay| {
            let OptimizerConfig { kind, beta1, beta2, epsilon, .. } = config.optimizer;
            AdamConfig { kind, learning_rate, beta1, beta2, epsilon, weight_decay }
        };
        let intrinsic = &config.intrinsic;
        let f = &intrinsic.action_prediction;
        Ok(Self {
            agent: Training::new(adam(config.optimizer.learning_rate, config.optimizer.weight_decay), &agent)?,
            action_prediction: Training::new(adam(f.learning_rate, f.weight_decay), &action_prediction)?,
            rnd: Training::new(adam(intrinsic.rnd.learning_rate, 0.0), &rnd_predictor)?,
            td_scales: vec![scale; loss.scales()],
            rnd_errors: Moments::of_the_latest(intrinsic.rnd.moments_decay),
            config: config.clone(),
            online: NetworkParameters {
                agent: agent.trainable()?,
                action_prediction: action_prediction.trainable()?,
                rnd_target,
                rnd_predictor: rnd_predictor.trainable()?,
            },
            folded_intrinsic: LearnerIntrinsic::of(&networks),
            graphs: UpdateGraphs::default(),
            networks,
            device,
            loss,
            target: TargetNetwork::new(target),
            averaged,
            streams: LearnerStreams::new(device)?,
            finished_updates: 0,
            pending: None,
            random,
        })
    }

    /// Number of updates, including the pending one.
    pub fn updates(&self) -> u64 {
        self.finished_updates + u64::from(self.pending.is_some())
    }

    /// A copy of the parameters for acting, including the pending update.
    pub fn parameters(&self, source: ParameterSource) -> Result<NetworkParameters> {
        let agent = match source {
            ParameterSource::Online => &self.online.agent,
            ParameterSource::Averaged => &self.averaged,
        };
        Ok(NetworkParameters {
            agent: agent.duplicate()?,
            action_prediction: self.online.action_prediction.duplicate()?,
            rnd_target: self.online.rnd_target.duplicate()?,
            rnd_predictor: self.online.rnd_predictor.duplicate()?,
        })
    }

    /// The value and policy network's gradient of the last update, before clipping.
    pub fn gradients(&self) -> &ParameterSet {
        &self.agent.gradients
    }

    /// The action prediction network's and the RND predictor's gradients of the last update. For tests.
    #[doc(hidden)]
    pub fn intrinsic_gradients(&self) -> [&ParameterSet; 2] {
        [&self.action_prediction.gradients, &self.rnd.gradients]
    }

    /// Begins an update and returns before it is done.
    ///
    /// The report is that of the previous update, if one was pending.
    ///
    /// An update that fails, here or in [`finish`](Self::finish), changes nothing but the scratch space of the
    /// gradients. If the previous update fails, this one is not begun.
    pub fn begin(&mut self, batch: &LoadedBatch) -> Result<Option<StepReport>> {
        self.begin_on(batch.tensors()?, batch.sequences)
    }

    /// Waits for the pending update, if there is one.
    pub fn finish(&mut self) -> Result<Option<StepReport>> {
        self.pending.take().map(|pending| self.complete(pending)).transpose()
    }

    /// Whether the device runs ahead of the host.
    ///
    /// If so, it pays to begin an update before the last one is finished.
    pub fn runs_ahead(&self) -> bool {
        self.streams.is_some()
    }

    /// Bytes of GPU memory that libtorch has reserved in this process; `None` on a CPU.
    pub fn device_memory(&self) -> Result<Option<u64>> {
        Ok(if torch_ext::serves(self.device) { Some(torch_ext::memory_statistics()?.reserved) } else { None })
    }

    /// One update: losses, new priorities and statistics of the batch.
    pub fn step(&mut self, batch: &SequenceBatch) -> Result<StepReport> {
        self.step_with(batch, StepOptions::default())
    }

    /// One update with options, of a batch that is not on the device yet.
    pub fn step_with(&mut self, batch: &SequenceBatch, options: StepOptions<'_>) -> Result<StepReport> {
        let (input, shape) = (self.networks.input(), self.batch_shape());
        batch::check(batch, &batch.observations, input, &shape)?;
        let tensors = BatchTensors::upload(batch, &batch.observations, input, &shape, self.device)?;
        self.step_on(&tensors, batch.sequences.len(), options)
    }

    /// One update with a batch that was loaded ahead.
    pub fn step_loaded(&mut self, batch: &LoadedBatch, options: StepOptions<'_>) -> Result<StepReport> {
        self.step_on(batch.tensors()?, batch.sequences, options)
    }

    /// A loader that copies batches to the device while the learner works.
    pub fn loader(&self) -> Result<Loader> {
        Loader::new(self.networks.input().clone(), self.batch_shape(), self.device)
    }

    /// Fails while an update is pending.
    fn expect_idle(&self) -> Result<()> {
        match &self.pending {
            Some(_) => Err(AgentError::PendingUpdate { update: self.updates() }),
            None => Ok(()),
        }
    }

    fn batch_shape(&self) -> BatchShape {
        BatchShape {
            actions: self.networks.actions,
            policies: self.networks.policies,
            embedding: self.networks.embedding_length,
            state: self.networks.state_length(),
            intrinsic_steps: self.config.intrinsic.steps,
            burn_in: self.config.loss.burn_in,
        }
    }
}
