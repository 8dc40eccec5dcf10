//! Whole updates: the networks behind the intrinsic reward, and ten steps in a row.

use agent::batch::BatchTensors;
use agent::learner::{Learner, ParameterSource, StepOptions, StepReport};
use agent::{AgentConfig, NamedTensors, ObservationSpec, SequenceBatch};
use tch::{Device, Kind, Tensor};

use crate::fixtures::{Case, assert_close, batch_shape, cases, read, read_batch};

/// A fresh learner with the given parameters.
fn learner(
    config: &AgentConfig,
    observation: &ObservationSpec,
    actions: usize,
    start: impl Fn(&str) -> String,
    tensors: &NamedTensors,
) -> Learner {
    let mut state = Learner::new(config, observation, actions, 0, Device::Cpu).unwrap().save().unwrap();
    for (name, tensor) in &mut state.weights {
        let source = start(name);
        if !source.is_empty() {
            *tensor = tensors.get(&source).unwrap_or_else(|| panic!("{name} from {source}")).clone();
        }
    }
    Learner::restore(config, observation, actions, &state, Device::Cpu).unwrap()
}

#[test]
fn action_prediction_and_rnd_losses_agree_with_the_reference() {
    for case in cases("loss_intrinsic") {
        let inputs = read(case.description["inputs"].as_str().unwrap());
        let config = case.config();
        let start = |name: &str| match name.strip_prefix("online.") {
            Some(rest) if rest.starts_with("action_prediction.") || rest.starts_with("rnd.") => rest.to_owned(),
            Some(_) => name.to_owned(),
            None => String::new(),
        };
        let mut learner = learner(&config, &case.observation(), case.actions(), start, &inputs);
        let batch = read_batch(&inputs, "batch");
        let report = learner.step(&batch).unwrap();
        case.assert_values("loss_action_prediction", &[report.losses.action_prediction]);
        case.assert_values("loss_rnd", &[report.losses.rnd]);
        for gradients in learner.intrinsic_gradients() {
            case.assert_gradients(gradients);
        }
        let moments = learner.rnd_errors;
        case.assert_values("rnd_moments_after.first", &[moments.mean()]);
        case.assert_values("rnd_moments_after.second", &[moments.moments().mean_square]);

        let shape = batch_shape(&batch, &config, case.actions());
        let tensors =
            BatchTensors::upload(&batch, &batch.observations, learner.networks.input(), &shape, Device::Cpu).unwrap();
        check_used(&case, &batch, &tensors.recent.transitions, "action_prediction_used", 1);
        check_used(&case, &batch, &tensors.recent.observations, "rnd_used", 0);
    }
}

/// Whether the last steps that are used, `[B, K]`, are those that the file marks in `[B, T]`.
fn check_used(case: &Case, batch: &SequenceBatch, recent: &Tensor, name: &str, less: usize) {
    let (sequences, steps) = recent.size2().unwrap();
    let mut used = vec![0u8; batch.sequences.len() * batch.trace];
    for b in 0..sequences as usize {
        for k in 0..steps as usize {
            if recent.double_value(&[b as i64, k as i64]) == 1.0 {
                used[b * batch.trace + batch.sequences[b].length - less - steps as usize + k] = 1;
            }
        }
    }
    assert_eq!(used, case.host(name).bytes, "{}: {name}", case.name);
}

fn column(reports: &[StepReport], value: impl Fn(&StepReport) -> f64) -> Vec<f64> {
    reports.iter().map(value).collect()
}

fn table(reports: &[StepReport], value: impl Fn(&agent::loss::statistics::PolicyStatistics) -> f64) -> Vec<f64> {
    reports.iter().flat_map(|report| report.policies.iter().map(&value)).collect()
}

#[test]
fn ten_updates_agree_with_the_reference() {
    for case in cases("learner_steps") {
        let config = case.config();
        let start = |name: &str| match name.split_once('.') {
            Some(("online", rest)) if rest.starts_with("action_prediction.") || rest.starts_with("rnd.") => {
                format!("start.{rest}")
            }
            Some(("online" | "target", _)) => format!("start.{name}"),
            Some(("average", rest)) => format!("start.online.{rest}"),
            _ => String::new(),
        };
        let mut learner = learner(&config, &case.observation(), case.actions(), start, &case.tensors);
        let batches = [read_batch(&case.tensors, "batch0"), read_batch(&case.tensors, "batch1")];
        let keep = case.host("keep");
        let (updates, masks) = (keep.shape[0], keep.shape[1] * keep.shape[2]);
        let mut reports = vec![];
        for update in 0..updates {
            let keep = Some(&keep.bytes[update * masks..(update + 1) * masks]);
            let options = StepOptions { depth_mask: keep, ..StepOptions::default() };
            reports.push(learner.step_with(&batches[update % 2], options).unwrap());
            let moments = learner.td_scales[0].running();
            let debias = 1.0 - config.loss.sigma_decay.powi(update as i32 + 1);
            for (part, found) in [
                ("first", moments.iter().map(|m| m.mean() * debias).collect::<Vec<_>>()),
                ("second", moments.iter().map(|m| m.moments().mean_square * debias).collect()),
            ] {
                let wanted = case.tensor(&format!("moments.{part}")).get(update as i64);
                assert_close(&format!("moments.{part} of update {update}"), &Tensor::from_slice(&found), &wanted, 1e-4);
            }
        }
        case.assert_values("loss_total", &column(&reports, |r| r.losses.total));
        case.assert_values("loss_td", &column(&reports, |r| r.losses.td));
        case.assert_values("loss_distillation", &column(&reports, |r| r.losses.distillation));
        case.assert_values("loss_action_prediction", &column(&reports, |r| r.losses.action_prediction));
        case.assert_values("loss_rnd", &column(&reports, |r| r.losses.rnd));
        case.assert_values("gradient_norm", &column(&reports, |r| r.gradient_norms.agent));
        case.assert_values("rnd_mean", &column(&reports, |r| r.rnd.mean));
        case.assert_values("rnd_std", &column(&reports, |r| r.rnd.std));
        case.assert_values("sigma", &table(&reports, |p| p.sigma));
        case.assert_values("trust_region_share", &table(&reports, |p| p.trust_region_share));
        case.assert_values("kl_share", &table(&reports, |p| p.kl_share));
        case.assert_values("lambda_mean", &table(&reports, |p| p.trace_coefficient));
        let priorities: Vec<f64> = reports.iter().flat_map(|r| r.priorities.iter().map(|&p| f64::from(p))).collect();
        case.assert_values("priority", &priorities);
        check_end(&case, &learner);
    }
}

/// Checks the parameters after the last update, and more strictly their change.
fn check_end(case: &Case, learner: &Learner) {
    let state = learner.save().unwrap();
    let mut compared = 0;
    for (end, wanted) in &case.tensors {
        let Some(name) = end.strip_prefix("end.") else { continue };
        let (found, start) = match name.split_once('.') {
            Some(("ema", rest)) => (format!("average.{rest}"), format!("start.online.{rest}")),
            Some(("online" | "target", _)) => (name.to_owned(), format!("start.{name}")),
            _ => (format!("online.{name}"), format!("start.{name}")),
        };
        let found = state.weights[&found].tensor().unwrap().to_kind(Kind::Double);
        let (wanted, start) =
            (wanted.tensor().unwrap().to_kind(Kind::Double), case.tensor(&start).to_kind(Kind::Double));
        assert_close(end, &found, &wanted, 1e-5);
        let largest = |x: &Tensor| x.abs().max().double_value(&[]);
        // The second part is for rounding.
        let allowed = 1e-3 * largest(&(&wanted - &start)) + 1e-6 * largest(&start);
        let error = largest(&(found - wanted));
        assert!(error <= allowed, "change of {name}: off by {error:e}, allowed {allowed:e}");
        compared += 1;
    }
    assert!(compared > 100, "only {compared} tensors compared");
    let average = learner.parameters(ParameterSource::Averaged).unwrap();
    let mut exported = NamedTensors::new();
    average.export(&mut exported, "average.").unwrap();
    assert_eq!(exported["average.torso.stem.weight"], state.weights["average.torso.stem.weight"]);
}
