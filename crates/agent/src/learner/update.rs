//! One update, in two halves: what the device is given to do, and what the host takes over when it has the report.
//!
//! Everything that depends on the numbers of an update, such as whether they are finite, is decided on the device. So a
//! GPU can be given the update as a whole, and the next forward passes behind it, before the host has read a number.

use tch::{Kind, Tensor};

use super::intrinsic::IntrinsicLoss;
use super::numbers::Numbers;
use super::report::{RndStatistics, SentReport, StepReport};
use super::streams::beside;
use super::{Learner, Part, StepOptions};
use crate::batch::BatchTensors;
use crate::error::{AgentError, Result};
use crate::loss::least_scales;
use crate::loss::statistics::policy_table;
use crate::nets::agent_net::{Keep, NetOutput};
use crate::optimizer::Gate;
use crate::random::Random;

/// An update that the device was given, and whose report has not been read.
#[derive(Debug)]
pub(super) struct UnderWay {
    pub report: SentReport,
    /// The generator as the next update finds it.
    pub random: Random,
}

/// What both networks say of a batch.
pub(super) struct Passes {
    online: NetOutput,
    target: NetOutput,
}

/// What an update finds besides the gradients, on the device.
#[derive(Debug)]
pub(super) struct Found {
    numbers: Numbers,
    /// Whether all of them are finite: one bool.
    finite: Tensor,
    /// What the agent's gradient is multiplied with.
    clip: Tensor,
    heads: usize,
    distillation: bool,
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
        let (keep, random) = self.keep(tensors, sequences, options.keep)?;
        let passes = self.passes(tensors, keep.as_ref(), finished)?;
        let found = self.find_gradients(passes, tensors, &self.least_scales()?, finished)?;
        let report = self.apply(&found, tensors)?;
        let report = self.settle(UnderWay { report, random })?;
        finished(Part::Optimizer);
        Ok(report)
    }

    /// Begins an update, and finishes the one before while the device has the forward passes to do.
    pub(super) fn begin_with(&mut self, tensors: &BatchTensors, sequences: usize) -> Result<Option<StepReport>> {
        let (keep, random) = self.keep(tensors, sequences, None)?;
        if let Some(mut recording) = self.recording(tensors, keep.as_ref())? {
            let begun = self.replay(&mut recording, tensors, keep.as_ref(), random);
            self.recorded.put_back(recording);
            return begun;
        }
        let passes = self.passes(tensors, keep.as_ref(), &mut |_| ())?;
        // The loss needs σ_j, which the report of the update before moves.
        let before = self.finish()?;
        let found = self.find_gradients(passes, tensors, &self.least_scales()?, &mut |_| ())?;
        let report = self.apply(&found, tensors)?;
        self.under_way = Some(UnderWay { report, random });
        Ok(before)
    }

    /// The forward passes, of which nothing persists.
    pub(super) fn passes(
        &mut self,
        tensors: &BatchTensors,
        keep: Option<&Keep>,
        finished: &mut dyn FnMut(Part),
    ) -> Result<Passes> {
        let net = &self.networks.agent;
        let (input, weights) = (&tensors.input, net.prepare(&self.online.agent)?);
        let torso = net.torso(&weights, input, keep)?;
        finished(Part::OnlineTorso);
        let target = self.target.weights(net)?;
        let target_torso = tch::no_grad(|| net.torso(target, input, None))?;
        finished(Part::TargetTorso);
        // An LSTM takes one step after the other, too small for a GPU; so do both networks' at the same time.
        let rest = || tch::no_grad(|| net.unroll_from(target, input, target_torso.shallow_clone()));
        let (target, joined) = beside(self.streams.as_deref().map(|streams| &streams.side), rest)?;
        let online = net.unroll_from(&weights, input, torso)?;
        joined.join()?;
        // Until here the other stream has read it, unknown to whoever gives its memory to the next tensor.
        drop(target_torso);
        finished(Part::CoresAndHeads);
        Ok(Passes { online, target })
    }

    /// Losses and gradients. `scales` holds the least σ_j of each value head.
    pub(super) fn find_gradients(
        &mut self,
        passes: Passes,
        tensors: &BatchTensors,
        scales: &[Tensor],
        finished: &mut dyn FnMut(Part),
    ) -> Result<Found> {
        let Passes { online, target } = passes;
        // Losses and the LSTM's backward pass are many small kernels, which leave room on a GPU for these. Earlier they
        // could not be: the gradients of the update before had to stay until it was known whether they are finite.
        let streams = self.streams.clone();
        let side = streams.as_deref().map(|streams| &streams.side);
        let (intrinsic, joined) = beside(side, || self.intrinsic_gradients_of(tensors))?;
        finished(Part::Intrinsic);
        let loss = self.loss.evaluate(&online.heads, &target.heads, tensors, scales)?;
        drop((online, target));
        finished(Part::Loss);
        self.agent.gradients.fill_with_gradients(&loss.total, &self.online.agent)?;
        finished(Part::Backward);
        joined.join()?;
        tch::no_grad(|| {
            let trainings = [&self.agent, &self.action_prediction, &self.rnd];
            let norms = trainings.map(|training| training.gradients.norm());
            let [agent, f, rnd] = norms;
            let norms = [agent?, f?, rnd?];
            let table = policy_table(&loss, tensors)?;
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
            Ok(Found {
                finite: numbers.finite()?,
                numbers,
                clip: clip_factor(&norms[0], self.config.optimizer.clip_norm)?,
                heads: loss.heads.len(),
                distillation: loss.policy.is_some(),
            })
        })
    }

    /// Losses of the networks behind the intrinsic reward, and their gradients.
    fn intrinsic_gradients_of(&mut self, tensors: &BatchTensors) -> Result<IntrinsicLoss> {
        let intrinsic = IntrinsicLoss::evaluate(&self.networks, self.intrinsic_forms.as_ref(), &self.online, tensors)?;
        self.action_prediction
            .gradients
            .fill_with_gradients(&intrinsic.action_prediction, &self.online.action_prediction)?;
        self.rnd.gradients.fill_with_gradients(&intrinsic.rnd, &self.online.rnd_predictor)?;
        Ok(intrinsic)
    }

    /// Moves all parameters, if every number of the update is finite, and sends those numbers to the host.
    pub(super) fn apply(&mut self, found: &Found, tensors: &BatchTensors) -> Result<SentReport> {
        let Found { numbers, finite: apply, clip, heads, distillation } = found;
        let (f, rnd) = (&mut self.action_prediction, &mut self.rnd);
        let average = (&mut self.ema, 1.0 - self.config.copies.ema_decay);
        let (clipped, whole) = (Gate { apply, scale: Some(clip) }, Gate { apply, scale: None });
        let update = self.updates + 1;
        tch::no_grad(|| {
            self.agent.optimizer.step(&mut self.online.agent, &self.agent.gradients, clipped, Some(average))?;
            f.optimizer.step(&mut self.online.action_prediction, &f.gradients, whole, None)?;
            rnd.optimizer.step(&mut self.online.rnd_predictor, &rnd.gradients, whole, None)?;
            if self.config.copies.renews_target(update) {
                self.target.parameters_mut().copy_where(apply, &self.online.agent)?;
            }
            Ok(SentReport {
                numbers: numbers.send()?,
                update,
                steps: tensors.total_steps as u64,
                heads: *heads,
                distillation: *distillation,
            })
        })
    }

    /// The least σ_j of each value head, on the device.
    pub(super) fn least_scales(&self) -> Result<Vec<Tensor>> {
        self.td_scales.iter().map(|scale| least_scales(scale, self.device)).collect()
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

    /// The blocks that stochastic depth keeps, those `given` or drawn, and the generator afterwards. Exactly
    /// round(rate · B) sequences of a block are left out.
    fn keep(&self, tensors: &BatchTensors, sequences: usize, given: Option<&[u8]>) -> Result<(Option<Keep>, Random)> {
        let mut random = self.under_way.as_ref().map_or(&self.random, |update| &update.random).clone();
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
            return Ok((None, random));
        }
        let keep = Tensor::f_from_slice(&keep)?.f_view([blocks as i64, sequences as i64])?;
        let steps = tensors.valid.size()[1];
        Ok((Some(self.networks.agent.keep(&keep, steps, self.device)?), random))
    }
}

/// What a gradient of this norm is multiplied with, f64; the same as torch.nn.utils.clip_grad_norm_.
fn clip_factor(norm: &Tensor, clip_norm: f64) -> Result<Tensor> {
    let norm = norm.f_to_kind(Kind::Double)?.f_add_scalar(1e-6)?;
    Ok(norm.f_full_like(clip_norm)?.f_div(&norm)?.f_clamp_max(1.0)?)
}
