//! The learner: everything that persists, and one update.

mod beside;
mod gather;
mod intrinsic;
mod report;
mod state;
mod target;

use std::sync::Arc;

use tch::{Device, Tensor};
use torch_ext::Stream;

use crate::batch::{Batch, BatchShape, BatchTensors};
use crate::config::AgentConfig;
use crate::error::{AgentError, Result};
use crate::loader::{LoadedBatch, Loader};
use crate::loss::statistics::{policy_statistics, policy_table};
use crate::loss::td::TdNumbers;
use crate::loss::{AgentLoss, LossOutput};
use crate::math::moments::{BatchMoments, Moments};
use crate::math::td_scale::TdScale;
use crate::nets::parameters::ParameterSet;
use crate::networks::{NetworkParameters, Networks};
use crate::observation::ObservationSpec;
use crate::optimizer::{AdamConfig, AdamW};
use crate::random::Random;
use crate::tensor_file::TensorFile;
use crate::weights::export;
use beside::{Beside, beside_stream};
use gather::gather;
use intrinsic::IntrinsicLoss;
use target::TargetNetwork;

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
    /// Checking and uploading the batch.
    Batch,
    /// Forward pass of the online network.
    OnlineForward,
    /// Forward pass of the target network.
    TargetForward,
    /// Returns, losses and priorities.
    Loss,
    /// Backward pass of the online network.
    Backward,
    /// Forward and backward pass of action prediction and RND.
    Intrinsic,
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
    /// For work beside the rest of an update, on a GPU.
    side: Option<Arc<Stream>>,
    updates: u64,
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
            networks,
            device,
            loss,
            target: TargetNetwork::new(target),
            ema,
            side: beside_stream(device)?,
            updates: 0,
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

    /// Number of updates so far.
    pub fn updates(&self) -> u64 {
        self.updates
    }

    /// Running mean and deviation of the RND error, which actors turn errors into novelty with.
    pub fn rnd_errors(&self) -> &Moments {
        &self.rnd_errors
    }

    /// σ_j of each value head: one, or extrinsic and intrinsic with separate losses.
    pub fn td_scales(&self) -> &[TdScale] {
        &self.td_scales
    }

    /// A copy of the parameters for acting.
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

    /// One update: losses, new priorities and statistics of the batch.
    pub fn step(&mut self, batch: &Batch<'_>) -> Result<StepReport> {
        self.step_with(batch, StepOptions::default())
    }

    /// One update, watched, of a batch that is not on the device yet.
    pub fn step_with(&mut self, batch: &Batch<'_>, mut options: StepOptions<'_>) -> Result<StepReport> {
        let (input, shape) = (self.networks.input(), self.batch_shape());
        batch.check(input, &shape)?;
        let tensors = batch.upload(input, &shape, self.device)?;
        if let Some(observer) = &mut options.observer {
            observer(Part::Batch);
        }
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

    /// One update, watched. If it fails, nothing but the scratch space of the gradients has changed, unless libtorch
    /// itself failed while the optimizers were writing.
    fn learn(&mut self, tensors: &BatchTensors, sequences: usize, mut options: StepOptions<'_>) -> Result<StepReport> {
        let mut finished = |part| {
            if let Some(observer) = &mut options.observer {
                observer(part);
            }
        };
        let mut random = self.random.clone();
        let keep = self.keep(sequences, options.keep, &mut random)?;
        let beside = Beside::fork(self.side.as_ref())?;

        let net = &self.networks.agent;
        let online = net.unroll(&net.prepare(&self.online.agent)?, &tensors.input, keep.as_ref())?;
        finished(Part::OnlineForward);
        let target = tch::no_grad(|| net.unroll(self.target.weights(net)?, &tensors.input, None))?;
        finished(Part::TargetForward);
        // Small kernels that run beside the large ones given to the device above.
        let (intrinsic, joined) = beside.run(|| self.intrinsic_gradients_of(tensors))?;
        finished(Part::Intrinsic);
        let loss = self.loss.evaluate(&online.heads, &target.heads, tensors, &self.td_scales)?;
        drop((online, target));
        finished(Part::Loss);
        self.agent.gradients.fill_with_gradients(&loss.total, &self.online.agent)?;
        finished(Part::Backward);
        joined.join()?;

        let (report, numbers, rnd_errors) = self.report(&loss, &intrinsic, tensors)?;
        self.check_finite(&report)?;
        let report = self.commit(report, &numbers, rnd_errors, random)?;
        finished(Part::Optimizer);
        Ok(report)
    }

    /// Losses of the networks behind the intrinsic reward, and their gradients.
    fn intrinsic_gradients_of(&mut self, tensors: &BatchTensors) -> Result<IntrinsicLoss> {
        let intrinsic = IntrinsicLoss::evaluate(&self.networks, &self.online, tensors)?;
        self.action_prediction
            .gradients
            .fill_with_gradients(&intrinsic.action_prediction, &self.online.action_prediction)?;
        self.rnd.gradients.fill_with_gradients(&intrinsic.rnd, &self.online.rnd_predictor)?;
        Ok(intrinsic)
    }

    /// Everything the update tells. Here the learner waits for the device, once.
    fn report(
        &self,
        loss: &LossOutput,
        intrinsic: &IntrinsicLoss,
        tensors: &BatchTensors,
    ) -> Result<(StepReport, Vec<TdNumbers>, BatchMoments)> {
        let norms = [&self.agent, &self.action_prediction, &self.rnd].map(|training| training.gradients.norm());
        let [agent, action_prediction, rnd] = norms;
        let table = policy_table(loss, tensors)?;
        let mut wanted = vec![
            &loss.total,
            &loss.td,
            &loss.distillation,
            &intrinsic.action_prediction,
            &intrinsic.rnd,
            &intrinsic.accuracy,
        ];
        let (agent, action_prediction, rnd) = (agent?, action_prediction?, rnd?);
        wanted.extend([&agent, &action_prediction, &rnd, intrinsic.moments(), &loss.priorities, &table]);
        wanted.extend(loss.heads.iter().map(|head| head.td.statistics()));
        let mut values = gather(&wanted)?.into_iter();
        let mut next = || values.next().unwrap_or_default();
        let [total, td, distillation, action_prediction, rnd, accuracy] = [(); 6].map(|()| next()[0]);
        let losses = Losses { total, td, distillation, action_prediction, rnd };
        let [agent, action_prediction, rnd] = [(); 3].map(|()| next()[0]);
        let gradient_norms = GradientNorms { agent, action_prediction, rnd };
        let moments = next();
        let rnd_errors = BatchMoments { mean: moments[0], mean_square: moments[1] };
        let priorities = next().iter().map(|&priority| priority as f32).collect();
        let table = next();
        let numbers: Vec<_> = loss.heads.iter().map(|_| TdNumbers::new(&next())).collect();
        let report = StepReport {
            update: self.updates + 1,
            losses,
            priorities,
            gradient_norms,
            steps: tensors.total_steps as u64,
            action_prediction_accuracy: accuracy,
            rnd: RndStatistics::default(),
            policies: policy_statistics(&table, &numbers, loss.policy.is_some()),
        };
        Ok((report, numbers, rnd_errors))
    }

    /// Takes the update over into everything that persists.
    fn commit(
        &mut self,
        mut report: StepReport,
        heads: &[TdNumbers],
        rnd_errors: BatchMoments,
        random: Random,
    ) -> Result<StepReport> {
        // The same as torch.nn.utils.clip_grad_norm_.
        let clip = (self.config.optimizer.clip_norm / (report.gradient_norms.agent + 1e-6)).min(1.0);
        let average = (&mut self.ema, 1.0 - self.config.copies.ema_decay);
        self.agent.optimizer.step(&mut self.online.agent, &self.agent.gradients, clip, Some(average))?;
        let f = &mut self.action_prediction;
        f.optimizer.step(&mut self.online.action_prediction, &f.gradients, 1.0, None)?;
        self.rnd.optimizer.step(&mut self.online.rnd_predictor, &self.rnd.gradients, 1.0, None)?;

        self.updates = report.update;
        if self.updates.is_multiple_of(self.config.copies.target_period) {
            self.target.parameters_mut().copy_from(&self.online.agent)?;
        }
        for (scale, head) in self.td_scales.iter_mut().zip(heads) {
            for (policy, &moments) in head.moments.iter().enumerate() {
                scale.update(policy, moments);
            }
        }
        self.rnd_errors.update(rnd_errors);
        self.random = random;
        report.rnd = RndStatistics { mean: self.rnd_errors.mean(), std: self.rnd_errors.std() };
        Ok(report)
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

    /// `[blocks, B]` on the host: 0 where a block is left out for a sequence. Exactly round(rate · B) sequences of a block are.
    fn keep(&self, sequences: usize, given: Option<&[u8]>, random: &mut Random) -> Result<Option<Tensor>> {
        let blocks = self.networks.agent.droppable_blocks();
        let mut keep = vec![1f32; blocks * sequences];
        match given {
            Some(given) if given.len() != keep.len() => {
                let what = format!("{blocks} blocks of {sequences} sequences");
                return Err(AgentError::Length { field: "keep", what, expected: keep.len(), found: given.len() });
            }
            Some(given) => keep = given.iter().map(|&kept| f32::from(kept)).collect(),
            None => {
                for block in 0..blocks {
                    let rate = self.config.network.torso.stochastic_depth.block_rate(block, blocks);
                    let dropped = (rate * sequences as f64).round() as usize;
                    for sequence in random.choose(dropped, sequences) {
                        keep[block * sequences + sequence] = 0.0;
                    }
                }
            }
        }
        if keep.iter().all(|&kept| kept == 1.0) {
            return Ok(None);
        }
        Ok(Some(Tensor::f_from_slice(&keep)?.f_view([blocks as i64, sequences as i64])?))
    }

    /// Whether losses, priorities, scales and gradients are all finite; else names the first that is not.
    fn check_finite(&self, report: &StepReport) -> Result<()> {
        let fail = |tensor: String, value: f64| {
            if value.is_finite() { Ok(()) } else { Err(AgentError::NonFinite { tensor, value, update: report.update }) }
        };
        for (j, policy) in report.policies.iter().enumerate() {
            fail(format!("the TD error of policy {j}"), policy.td_error)?;
            fail(format!("sigma of policy {j}"), policy.sigma)?;
            fail(format!("the intrinsic sigma of policy {j}"), policy.sigma_intrinsic.unwrap_or(0.0))?;
        }
        fail("the TD loss".to_owned(), report.losses.td)?;
        fail("the distillation loss".to_owned(), report.losses.distillation)?;
        fail("the action prediction loss".to_owned(), report.losses.action_prediction)?;
        fail("the RND loss".to_owned(), report.losses.rnd)?;
        for (i, &priority) in report.priorities.iter().enumerate() {
            fail(format!("the priority of sequence {i}"), f64::from(priority))?;
        }
        let norms = &report.gradient_norms;
        for (training, norm, name) in [
            (&self.agent, norms.agent, "agent"),
            (&self.action_prediction, norms.action_prediction, "action prediction"),
            (&self.rnd, norms.rnd, "RND"),
        ] {
            if norm.is_finite() {
                continue;
            }
            if let Some((parameter, value)) = training.gradients.first_non_finite()? {
                fail(format!("the gradient of {parameter}"), value)?;
            }
            // Every element is finite, but the sum of their squares is not.
            fail(format!("the norm of the {name} gradient"), norm)?;
        }
        Ok(())
    }
}
