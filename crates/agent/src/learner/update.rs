//! One update, in two halves: the work given to the device, and what the host does when it has the report.
//!
//! Everything that depends on the values of an update, such as whether they are finite, is decided on the device. A GPU
//! can therefore be given the whole update, and the next forward passes after it, before the host has read a value.

use rand::seq::index::sample;
use tch::{Kind, Tensor};

use super::intrinsic_loss::IntrinsicLoss;
use super::report::{DeviceReport, PendingReport, RndStatistics, StepReport};
use super::{Learner, StepOptions, UpdatePart};
use crate::Random;
use crate::batch::BatchTensors;
use crate::error::{AgentError, Result};
use crate::loss::running_sigmas;
use crate::nets::agent_net::{DepthMask, NetOutput};
use crate::nets::parameters::ParameterSet;
use crate::optimizer::Gate;
use crate::streams::fork;

/// An update that was given to the device and whose report has not been read.
#[derive(Debug)]
pub(super) struct PendingUpdate {
    report: PendingReport,
    /// The generator as the next update finds it.
    random: Random,
}

/// Outputs of both networks for a batch.
pub(super) struct ForwardPasses {
    online: NetOutput,
    target: NetOutput,
}

/// What an update computes besides the gradients, on the device.
#[derive(Debug)]
pub(super) struct UpdateResults {
    report: DeviceReport,
    /// Whether every value of the report is finite: one bool.
    finite: Tensor,
    /// The factor that clips the gradient of each value network.
    clips: Vec<Tensor>,
}

impl Learner {
    /// One update from start to end.
    pub(super) fn step_on(
        &mut self,
        tensors: &BatchTensors,
        sequences: usize,
        options: StepOptions<'_>,
    ) -> Result<StepReport> {
        self.expect_idle()?;
        let mut ignore = |_| ();
        let observe = options.observer.unwrap_or(&mut ignore);
        let (mask, random) = self.depth_mask(tensors, sequences, options.depth_mask)?;
        let (_, pending) = self.begin_update(tensors, mask.as_ref(), random, observe)?;
        let report = self.complete(pending)?;
        observe(UpdatePart::Optimizer);
        Ok(report)
    }

    /// Begins an update, by CUDA graphs where there are some for its size; the report is that of the previous update.
    pub(super) fn begin_on(&mut self, tensors: &BatchTensors, sequences: usize) -> Result<Option<StepReport>> {
        let (mask, random) = self.depth_mask(tensors, sequences, None)?;
        let mask = mask.as_ref();
        let (previous, pending) = match self.captured_update(tensors, mask)? {
            Some(mut captured) => {
                let begun = self.replay(&mut captured, tensors, mask, random);
                self.graphs.captured = Some(captured);
                begun?
            }
            None => self.begin_update(tensors, mask, random, &mut |_| ())?,
        };
        self.pending = Some(pending);
        Ok(previous)
    }

    /// Gives an update to the device, and finishes the previous one while the device does the forward passes.
    pub(super) fn begin_update(
        &mut self,
        tensors: &BatchTensors,
        mask: Option<&DepthMask>,
        random: Random,
        observe: &mut dyn FnMut(UpdatePart),
    ) -> Result<(Option<StepReport>, PendingUpdate)> {
        let passes = self.forward_passes(tensors, mask, observe)?;
        // The loss needs σ_j, which the report of the previous update changes.
        let previous = self.finish()?;
        let results = self.compute_gradients(passes, tensors, &self.running_sigmas()?, observe)?;
        Ok((previous, self.apply(&results, tensors, random)?))
    }

    /// The forward passes, which change nothing of the learner.
    pub(super) fn forward_passes(
        &mut self,
        tensors: &BatchTensors,
        mask: Option<&DepthMask>,
        observe: &mut dyn FnMut(UpdatePart),
    ) -> Result<ForwardPasses> {
        let net = &self.networks.agent;
        let (input, weights) = (&tensors.input, net.prepare(&self.online.agent)?);
        let torsos = net.torsos(&weights, input, mask)?;
        observe(UpdatePart::OnlineTorso);
        let target = self.target.weights(net)?;
        // With the same mask, so that trust region and KL bound measure parameters and not dropped blocks.
        let target_torsos = tch::no_grad(|| net.torsos(target, input, mask))?;
        observe(UpdatePart::TargetTorso);
        // An LSTM takes one step after the other, each too small for a GPU, so both networks' run at the same time.
        let burn_in = tensors.burn_in;
        let same = || target_torsos.iter().map(Tensor::shallow_clone).collect();
        let rest = || tch::no_grad(|| net.unroll_from(target, input, same(), burn_in));
        let (target, forked) = fork(self.streams.as_deref().map(|streams| &streams.side), rest)?;
        let online = net.unroll_from(&weights, input, torsos, burn_in)?;
        forked.join()?;
        // Dropped only now: the allocator does not know that the side stream reads it.
        drop(target_torsos);
        observe(UpdatePart::CoresAndHeads);
        Ok(ForwardPasses { online, target })
    }

    /// Losses and gradients. `scales` holds max(σ_running, ε) of each value head.
    pub(super) fn compute_gradients(
        &mut self,
        passes: ForwardPasses,
        tensors: &BatchTensors,
        scales: &[Tensor],
        observe: &mut dyn FnMut(UpdatePart),
    ) -> Result<UpdateResults> {
        let ForwardPasses { online, target } = passes;
        // The loss and the LSTM's backward pass are many small kernels, which leave room on a GPU for these. They
        // cannot start earlier: the gradients of the previous update had to stay until it was known whether they are
        // finite.
        let streams = self.streams.clone();
        let side = streams.as_deref().map(|streams| &streams.side);
        let (intrinsic, forked) = fork(side, || self.compute_intrinsic_gradients(tensors))?;
        observe(UpdatePart::Intrinsic);
        let loss = self.loss.evaluate(&online.heads, &target.heads, tensors, scales)?;
        drop((online, target));
        observe(UpdatePart::Loss);
        self.agent.gradients.fill_with_gradients(&loss.total, &self.online.agent)?;
        observe(UpdatePart::Backward);
        forked.join()?;
        tch::no_grad(|| {
            let trainings = [&self.agent, &self.action_prediction, &self.rnd];
            let [agent, f, rnd] = trainings.map(|training| training.gradients.norm());
            let norms = [agent?, f?, rnd?];
            let report = DeviceReport::gather(&loss, &intrinsic, &norms, tensors)?;
            let clip = |part: (i64, i64)| -> Result<Tensor> {
                clip_factor(&self.agent.gradients.norm_of(part)?, self.config.optimizer.clip_norm)
            };
            let clips = self.networks.agent.parts().into_iter().map(clip).collect::<Result<_>>()?;
            Ok(UpdateResults { finite: report.finite()?, report, clips })
        })
    }

    /// Losses of the networks behind the intrinsic reward, and their gradients.
    fn compute_intrinsic_gradients(&mut self, tensors: &BatchTensors) -> Result<IntrinsicLoss> {
        let intrinsic = IntrinsicLoss::evaluate(&self.networks, self.folded_intrinsic.as_ref(), &self.online, tensors)?;
        self.action_prediction
            .gradients
            .fill_with_gradients(&intrinsic.action_prediction, &self.online.action_prediction)?;
        self.rnd.gradients.fill_with_gradients(&intrinsic.rnd, &self.online.rnd_predictor)?;
        Ok(intrinsic)
    }

    /// Moves all parameters, if every value of the update is finite, and sends the report to the host.
    pub(super) fn apply(
        &mut self,
        results: &UpdateResults,
        tensors: &BatchTensors,
        random: Random,
    ) -> Result<PendingUpdate> {
        let UpdateResults { report, finite: apply, clips } = results;
        let (f, rnd) = (&mut self.action_prediction, &mut self.rnd);
        let share = 1.0 - self.config.copies.ema_decay;
        let whole = Gate { apply, scale: None };
        let update = self.finished_updates + 1;
        tch::no_grad(|| {
            for (part, clip) in self.networks.agent.parts().into_iter().zip(clips) {
                let (average, gate) = (Some((&mut self.averaged, share)), Gate { apply, scale: Some(clip) });
                self.agent.optimizer.step(&mut self.online.agent, &self.agent.gradients, part, gate, average)?;
            }
            let all = |set: &ParameterSet| (0, set.layout().length());
            let (f_part, rnd_part) = (all(&f.gradients), all(&rnd.gradients));
            f.optimizer.step(&mut self.online.action_prediction, &f.gradients, f_part, whole, None)?;
            rnd.optimizer.step(&mut self.online.rnd_predictor, &rnd.gradients, rnd_part, whole, None)?;
            if self.config.copies.renews_target(update) {
                self.target.parameters_mut().copy_where(apply, &self.online.agent)?;
            }
            Ok(PendingUpdate { report: report.send(update, tensors.total_steps as u64)?, random })
        })
    }

    /// max(σ_running, ε) of each value head, on the device.
    pub(super) fn running_sigmas(&self) -> Result<Vec<Tensor>> {
        self.td_scales.iter().map(|scale| running_sigmas(scale, self.device)).collect()
    }

    /// Waits for the report of an update and, if it was applied, updates what the host keeps.
    pub(super) fn complete(&mut self, pending: PendingUpdate) -> Result<StepReport> {
        let PendingUpdate { report, random } = pending;
        let mut received = report.receive()?;
        received.check_finite([
            ("agent", &self.agent.gradients),
            ("action prediction", &self.action_prediction.gradients),
            ("RND", &self.rnd.gradients),
        ])?;
        for training in [&mut self.agent, &mut self.action_prediction, &mut self.rnd] {
            training.optimizer.steps += 1;
        }
        self.finished_updates = received.report.update;
        for (scale, td) in self.td_scales.iter_mut().zip(&received.td) {
            for (policy, (&moments, _)) in
                td.moments.iter().zip(&td.steps).enumerate().filter(|(_, (_, steps))| **steps > 0.0)
            {
                scale.update(policy, moments);
            }
        }
        self.rnd_errors.update(received.rnd_errors);
        self.random = random;
        received.report.rnd = RndStatistics { mean: self.rnd_errors.mean(), std: self.rnd_errors.std() };
        Ok(received.report)
    }

    /// The stochastic-depth mask, `given` or drawn, and the generator afterwards; `None` where every block is kept.
    /// Exactly round(rate · B) sequences drop a block.
    fn depth_mask(
        &self,
        tensors: &BatchTensors,
        sequences: usize,
        given: Option<&[u8]>,
    ) -> Result<(Option<DepthMask>, Random)> {
        let mut random = self.pending.as_ref().map_or(&self.random, |pending| &pending.random).clone();
        let blocks = self.networks.agent.droppable_blocks();
        let mut keep = vec![1f32; blocks * sequences];
        match given {
            Some(given) if given.len() != keep.len() => {
                let what = format!("{blocks} blocks of {sequences} sequences");
                return Err(AgentError::Length { field: "depth_mask", what, expected: keep.len(), found: given.len() });
            }
            Some(given) => keep = given.iter().map(|&kept| f32::from(kept)).collect(),
            None => {
                for (block, keep) in keep.chunks_exact_mut(sequences.max(1)).enumerate() {
                    let rate = self.config.network.torso.stochastic_depth.block_rate(block, blocks);
                    let dropped = (rate * sequences as f64).round() as usize;
                    sample(&mut random, sequences, dropped).into_iter().for_each(|sequence| keep[sequence] = 0.0);
                }
            }
        }
        if keep.iter().all(|&kept| kept == 1.0) {
            return Ok((None, random));
        }
        let keep = Tensor::f_from_slice(&keep)?.f_view([blocks as i64, sequences as i64])?;
        let steps = tensors.valid.size()[1];
        Ok((Some(self.networks.agent.depth_mask(&keep, steps, self.device)?), random))
    }
}

/// The factor that clips a gradient of this norm, f64; the same as torch.nn.utils.clip_grad_norm_.
fn clip_factor(norm: &Tensor, clip_norm: f64) -> Result<Tensor> {
    let norm = norm.f_to_kind(Kind::Double)?.f_add_scalar(1e-6)?;
    Ok(norm.f_full_like(clip_norm)?.f_div(&norm)?.f_clamp_max(1.0)?)
}
