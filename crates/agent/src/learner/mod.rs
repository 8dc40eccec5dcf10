//! The learner: everything that persists between updates.
//!
//! An update is one call, [`Learner::step`]; or it is [begun](Learner::begin) and [finished](Learner::finish), so that
//! a GPU has the next update's work before the report of the last one is read.

mod intrinsic;
mod numbers;
mod recorded;
mod report;
mod state;
mod streams;
mod target;
mod update;

use std::sync::Arc;

use tch::Device;

use crate::batch::{Batch, BatchShape};
use crate::config::AgentConfig;
use crate::error::{AgentError, Result};
use crate::loader::{LoadedBatch, Loader};
use crate::loss::AgentLoss;
use crate::math::moments::Moments;
use crate::math::td_scale::TdScale;
use crate::nets::parameters::ParameterSet;
use crate::networks::{NetworkParameters, Networks};
use crate::observation::ObservationSpec;
use crate::optimizer::{AdamConfig, AdamW};
use crate::random::Random;
use crate::tensor_file::TensorFile;
use crate::weights::export;
use intrinsic::IntrinsicForms;
use recorded::RecordedUpdate;
use streams::Streams;
use target::TargetNetwork;
use update::UnderWay;

pub use report::{GradientNorms, Losses, RndStatistics, StepReport};

/// A network that is trained: an optimizer and a place for the gradient.
#[derive(Debug)]
struct Training {
    optimizer: AdamW,
    gradients: ParameterSet,
}

impl Training {
    fn new(config: AdamConfig, parameters: &ParameterSet) -> Result<Self> {
        let gradients = ParameterSet::zeros(parameters.layout(), parameters.flat().device())?;
        Ok(Self { optimizer: AdamW::new(config, parameters)?, gradients })
    }
}

/// Where the parameters of the value and policy network are taken from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParameterSource {
    /// Those that are trained; actors use them.
    Online,
    /// Their moving average; evaluators use it.
    Ema,
}

/// The parts of an update, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Part {
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

/// What tests and benchmarks ask of an update besides its result.
#[derive(Default)]
pub struct StepOptions<'a> {
    /// Blocks kept, `[blocks][B]` of 0 and 1, instead of drawn ones.
    pub keep: Option<&'a [u8]>,
    /// Called at the end of every part.
    pub observer: Option<&'a mut dyn FnMut(Part)>,
}

/// Everything that persists between updates.
#[derive(Debug)]
pub struct Learner {
    config: AgentConfig,
    networks: Networks,
    /// f and RND in other forms, where those are faster.
    intrinsic_forms: Option<IntrinsicForms>,
    recorded: RecordedUpdate,
    device: Device,
    loss: AgentLoss,
    online: NetworkParameters,
    target: TargetNetwork,
    ema: ParameterSet,
    agent: Training,
    action_prediction: Training,
    rnd: Training,
    /// σ_j of each value head.
    td_scales: Vec<TdScale>,
    rnd_errors: Moments,
    /// On a GPU.
    streams: Option<Arc<Streams>>,
    /// Finished ones.
    updates: u64,
    /// The update that was begun and not finished.
    under_way: Option<UnderWay>,
    /// Draws the blocks that stochastic depth leaves out.
    random: Random,
}

impl Learner {
    /// A learner that has learned nothing yet; its parameters are a function of the seed.
    pub fn new(
        config: &AgentConfig,
        observation: &ObservationSpec,
        actions: usize,
        seed: u64,
        device: Device,
    ) -> Result<Self> {
        let networks = Networks::new(config, observation, actions)?.on(config.network.precision, device)?;
        let mut random = Random::new(seed);
        let NetworkParameters { agent, action_prediction, rnd_target, rnd_predictor } =
            NetworkParameters::initialised(&networks, &mut random, device)?;
        let (target, ema) = (agent.duplicate()?, agent.duplicate()?);
        let loss = AgentLoss::new(config, device)?;
        let scale = TdScale::new(config.policies.count, config.loss.sigma_decay, config.loss.sigma_floor);
        let adam = |learning_rate, weight_decay| {
            let optimizer = &config.optimizer;
            let (beta1, beta2, epsilon) = (optimizer.beta1, optimizer.beta2, optimizer.epsilon);
            AdamConfig { learning_rate, beta1, beta2, epsilon, weight_decay }
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
            intrinsic_forms: IntrinsicForms::of(&networks),
            recorded: RecordedUpdate::default(),
            networks,
            device,
            loss,
            target: TargetNetwork::new(target),
            ema,
            streams: Streams::new(device)?,
            updates: 0,
            under_way: None,
            random,
        })
    }

    /// Descriptions of the networks.
    pub fn networks(&self) -> &Networks {
        &self.networks
    }

    /// The configuration it was made with.
    pub fn config(&self) -> &AgentConfig {
        &self.config
    }

    /// Number of updates that its parameters hold, the one under way included.
    pub fn updates(&self) -> u64 {
        self.updates + u64::from(self.under_way.is_some())
    }

    /// Running mean and deviation of the RND error after the last finished update; actors turn errors into novelty with
    /// them.
    pub fn rnd_errors(&self) -> &Moments {
        &self.rnd_errors
    }

    /// σ_j of each value head after the last finished update: one, or extrinsic and intrinsic with separate losses.
    pub fn td_scales(&self) -> &[TdScale] {
        &self.td_scales
    }

    /// A copy of the parameters for acting, the update under way included.
    pub fn parameters(&self, source: ParameterSource) -> Result<NetworkParameters> {
        let agent = match source {
            ParameterSource::Online => &self.online.agent,
            ParameterSource::Ema => &self.ema,
        };
        Ok(NetworkParameters {
            agent: agent.duplicate()?,
            action_prediction: self.online.action_prediction.duplicate()?,
            rnd_target: self.online.rnd_target.duplicate()?,
            rnd_predictor: self.online.rnd_predictor.duplicate()?,
        })
    }

    /// The same as a safetensors file with readable names.
    pub fn weights(&self, source: ParameterSource) -> Result<TensorFile> {
        let mut file = TensorFile::default();
        for set in self.parameters(source)?.sets() {
            export(&mut file, "", set)?;
        }
        Ok(file)
    }

    /// The value and policy network's gradient of the last update, before clipping.
    pub fn gradients(&self) -> &ParameterSet {
        &self.agent.gradients
    }

    /// The action prediction network's and the RND predictor's gradients of the last update.
    pub fn intrinsic_gradients(&self) -> [&ParameterSet; 2] {
        [&self.action_prediction.gradients, &self.rnd.gradients]
    }

    /// Begins an update and returns before it is done; the report is that of the one before, if it was not finished.
    ///
    /// Of an update that fails, here or in [`finish`](Self::finish), nothing remains but the scratch space of the
    /// gradients. If it was the one before, this one is not begun.
    pub fn begin(&mut self, batch: &LoadedBatch) -> Result<Option<StepReport>> {
        self.begin_with(batch.tensors()?, batch.sequences())
    }

    /// Waits for the update under way, if there is one.
    pub fn finish(&mut self) -> Result<Option<StepReport>> {
        self.under_way.take().map(|under_way| self.settle(under_way)).transpose()
    }

    /// Whether the device works on while the host does other things, so that it pays to begin an update before the last
    /// one is finished.
    pub fn runs_ahead(&self) -> bool {
        self.streams.is_some()
    }

    /// Bytes of a GPU's memory that libtorch has reserved, for whomever; nothing on a CPU.
    pub fn device_memory(&self) -> Result<Option<u64>> {
        let counted = self.device.is_cuda() && torch_ext::available();
        Ok(if counted { Some(torch_ext::memory_statistics()?.reserved) } else { None })
    }

    /// One update: losses, new priorities and statistics of the batch.
    pub fn step(&mut self, batch: &Batch<'_>) -> Result<StepReport> {
        self.step_with(batch, StepOptions::default())
    }

    /// One update, watched, of a batch that is not on the device yet.
    pub fn step_with(&mut self, batch: &Batch<'_>, options: StepOptions<'_>) -> Result<StepReport> {
        let (input, shape) = (self.networks.input(), self.batch_shape());
        batch.check(input, &shape)?;
        let tensors = batch.upload(input, &shape, self.device)?;
        self.learn(&tensors, batch.sequences, options)
    }

    /// One update with a batch that was loaded ahead.
    pub fn step_loaded(&mut self, batch: &LoadedBatch, options: StepOptions<'_>) -> Result<StepReport> {
        self.learn(batch.tensors()?, batch.sequences(), options)
    }

    /// What brings batches to the device while the learner works.
    pub fn loader(&self) -> Result<Loader> {
        Loader::new(self.networks.input().clone(), self.batch_shape(), self.device)
    }

    /// Fails while an update is under way.
    fn expect_rest(&self) -> Result<()> {
        match &self.under_way {
            Some(_) => Err(AgentError::UnderWay { update: self.updates() }),
            None => Ok(()),
        }
    }

    fn batch_shape(&self) -> BatchShape {
        BatchShape {
            actions: self.networks.actions(),
            policies: self.networks.policies(),
            embedding: self.networks.embedding_length(),
            state: self.networks.state_length(),
            intrinsic_steps: self.config.intrinsic.steps,
        }
    }
}
