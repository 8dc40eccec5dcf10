//! One update, in two halves: what the device is given to do, and what the host takes over when it has the report.
//!
//! Everything that depends on the numbers of an update, such as whether they are finite, is decided on the device. So a
//! GPU can be given the update as a whole, and the next forward passes behind it, before the host has read a number.

use tch::{Kind, Tensor};

use super::beside::beside;
use super::intrinsic::{IntrinsicInput, IntrinsicLoss};
use super::numbers::Numbers;
use super::report::{RndStatistics, SentReport, StepReport};
use super::{Learner, Part, StepOptions};
use crate::batch::BatchTensors;
use crate::error::{AgentError, Result};
use crate::loss::LossOutput;
use crate::loss::statistics::policy_table;
use crate::nets::agent_net::NetOutput;
use crate::optimizer::Gate;
use crate::random::Random;

/// An update that the device was given, and whose report has not been read.
#[derive(Debug)]
pub(super) struct UnderWay {
    report: SentReport,
    /// The generator as the next update finds it.
    random: Random,
}

/// What both networks say of a batch.
struct Forward {
    online: NetOutput,
    target: NetOutput,
    random: Random,
}

impl Learner {
    /// One update, watched.
    pub(super) fn learn(
        &mut self,
        tensors: &BatchTensors,
        sequences: usize,
        mut options: StepOptions<'_>,
    ) -> Result<StepReport> {
        self.expect_rest()?;
        let mut nobody = |_| ();
        let finished: &mut dyn FnMut(Part) = match &mut options.observer {
            Some(observer) => *observer,
            None => &mut nobody,
        };
        let forward = self.forward(tensors, sequences, options.keep, finished)?;
        let under_way = self.backward(forward, tensors, finished)?;
        let report = self.settle(under_way)?;
        finished(Part::Optimizer);
        Ok(report)
    }

    /// Begins an update, and finishes the one before while the device has the forward passes to do.
    pub(super) fn begin_with(&mut self, tensors: &BatchTensors, sequences: usize) -> Result<Option<StepReport>> {
        let forward = self.forward(tensors, sequences, None, &mut |_| ())?;
        // The loss needs σ_j, which the report of the update before moves.
        let before = self.finish()?;
        self.under_way = Some(self.backward(forward, tensors, &mut |_| ())?);
        Ok(before)
    }

    /// The forward passes, of which nothing persists.
    fn forward(
        &mut self,
        tensors: &BatchTensors,
        sequences: usize,
        keep: Option<&[u8]>,
        finished: &mut dyn FnMut(Part),
    ) -> Result<Forward> {
        let mut random = self.under_way.as_ref().map_or(&self.random, |update| &update.random).clone();
        let keep = self.keep(sequences, keep, &mut random)?;
        let net = &self.networks.agent;
        let (input, weights) = (&tensors.input, net.prepare(&self.online.agent)?);
        let torso = net.torso(&weights, input, keep.as_ref())?;
        finished(Part::OnlineTorso);
        let target = self.target.weights(net)?;
        let target_torso = tch::no_grad(|| net.torso(target, input, None))?;
        finished(Part::TargetTorso);
        // An LSTM takes one step after the other, too small for a GPU; so do both networks' at the same time.
        let rest = || tch::no_grad(|| net.unroll_from(target, input, target_torso.shallow_clone()));
        let (target, joined) = beside(self.side.as_deref(), rest)?;
        let online = net.unroll_from(&weights, input, torso)?;
        joined.join()?;
        // Until here the other stream has read it, unknown to whoever gives its memory to the next tensor.
        drop(target_torso);
        finished(Part::CoresAndHeads);
        Ok(Forward { online, target, random })
    }

    /// Losses, gradients and optimizers.
    fn backward(
        &mut self,
        forward: Forward,
        tensors: &BatchTensors,
        finished: &mut dyn FnMut(Part),
    ) -> Result<UnderWay> {
        let Forward { online, target, random } = forward;
        // Losses and the LSTM's backward pass are many small kernels, which leave room on a GPU for these. Earlier they
        // could not be: the gradients of the update before had to stay until it was known whether they are finite.
        let side = self.side.clone();
        let (intrinsic, joined) = beside(side.as_deref(), || self.intrinsic_gradients_of(tensors))?;
        finished(Part::Intrinsic);
        let loss = self.loss.evaluate(&online.heads, &target.heads, tensors, &self.td_scales)?;
        drop((online, target));
        finished(Part::Loss);
        self.agent.gradients.fill_with_gradients(&loss.total, &self.online.agent)?;
        finished(Part::Backward);
        joined.join()?;
        let report = tch::no_grad(|| self.apply(&loss, &intrinsic, tensors))?;
        Ok(UnderWay { report, random })
    }

    /// Losses of the networks behind the intrinsic reward, and their gradients.
    fn intrinsic_gradients_of(&mut self, tensors: &BatchTensors) -> Result<IntrinsicLoss> {
        let Self { networks, intrinsic_forms, recorded_intrinsic, online, action_prediction: f, rnd, .. } = self;
        let mut work = |input: &IntrinsicInput| {
            let loss = IntrinsicLoss::evaluate(networks, intrinsic_forms.as_ref(), online, input)?;
            f.gradients.fill_with_gradients(&loss.action_prediction, &online.action_prediction)?;
            rnd.gradients.fill_with_gradients(&loss.rnd, &online.rnd_predictor)?;
            loss.detach()
        };
        let input = IntrinsicInput::of(tensors)?;
        match intrinsic_forms {
            Some(_) => recorded_intrinsic.run(input, work),
            None => work(&input),
        }
    }

    /// Moves all parameters, if every number of the update is finite, and sends those numbers to the host.
    fn apply(&mut self, loss: &LossOutput, intrinsic: &IntrinsicLoss, tensors: &BatchTensors) -> Result<SentReport> {
        let (f, rnd) = (&mut self.action_prediction, &mut self.rnd);
        let norms = [self.agent.gradients.norm()?, f.gradients.norm()?, rnd.gradients.norm()?];
        let table = policy_table(loss, tensors)?;
        let mut told = vec![
            &loss.total,
            &loss.td,
            &loss.distillation,
            &intrinsic.action_prediction,
            &intrinsic.rnd,
            &intrinsic.accuracy,
        ];
        told.extend(&norms);
        told.extend([intrinsic.moments(), &loss.priorities, &table]);
        told.extend(loss.heads.iter().map(|head| head.td.statistics()));
        let numbers = Numbers::gather(&told)?;

        let apply = &numbers.finite()?;
        let (clip, whole) = (clip_factor(&norms[0], self.config.optimizer.clip_norm)?, Gate { apply, scale: None });
        let average = (&mut self.ema, 1.0 - self.config.copies.ema_decay);
        let clipped = Gate { apply, scale: Some(&clip) };
        self.agent.optimizer.step(&mut self.online.agent, &self.agent.gradients, clipped, Some(average))?;
        f.optimizer.step(&mut self.online.action_prediction, &f.gradients, whole, None)?;
        rnd.optimizer.step(&mut self.online.rnd_predictor, &rnd.gradients, whole, None)?;
        let update = self.updates + 1;
        if update.is_multiple_of(self.config.copies.target_period) {
            self.target.parameters_mut().copy_where(apply, &self.online.agent)?;
        }
        Ok(SentReport {
            numbers: numbers.send()?,
            update,
            steps: tensors.total_steps as u64,
            heads: loss.heads.len(),
            distillation: loss.policy.is_some(),
        })
    }

    /// Waits for the report of an update and, if it was applied, takes over what the host keeps of it.
    pub(super) fn settle(&mut self, under_way: UnderWay) -> Result<StepReport> {
        let UnderWay { report, random } = under_way;
        let mut received = report.receive()?;
        received.check_finite([
            ("agent", &self.agent.gradients),
            ("action prediction", &self.action_prediction.gradients),
            ("RND", &self.rnd.gradients),
        ])?;
        for training in [&mut self.agent, &mut self.action_prediction, &mut self.rnd] {
            training.optimizer.count();
        }
        self.updates = received.report.update;
        for (scale, head) in self.td_scales.iter_mut().zip(&received.heads) {
            for (policy, &moments) in head.moments.iter().enumerate() {
                scale.update(policy, moments);
            }
        }
        self.rnd_errors.update(received.rnd_errors);
        self.random = random;
        received.report.rnd = RndStatistics { mean: self.rnd_errors.mean(), std: self.rnd_errors.std() };
        Ok(received.report)
    }

    /// `[blocks, B]` on the host: 0 where a block is left out for a sequence. Exactly round(rate · B) sequences of a
    /// block are.
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
}

/// What a gradient of this norm is multiplied with, f64; the same as torch.nn.utils.clip_grad_norm_.
fn clip_factor(norm: &Tensor, clip_norm: f64) -> Result<Tensor> {
    let norm = norm.f_to_kind(Kind::Double)?.f_add_scalar(1e-6)?;
    Ok(norm.f_full_like(clip_norm)?.f_div(&norm)?.f_clamp_max(1.0)?)
}
