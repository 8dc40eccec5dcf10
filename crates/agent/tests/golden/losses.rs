//! The whole loss for every switch: each quantity on the way, priorities, and all gradients.

use agent::batch::{self, BatchTensors};
use agent::loss::{AgentLoss, HeadLoss, LossOutput, TdScale, TdStatistics, running_sigmas};
use agent::nets::agent_net::AgentNet;
use agent::nets::heads::HeadOutputs;
use agent::nets::parameters::ParameterSet;
use agent::observation::ObservationInput;
use agent::policy_family::{beta_ladder, gamma_ladder};
use agent::{NamedTensors, SequenceBatch};
use serde_json::json;
use tch::{Device, Kind, Tensor};

use crate::fixtures::{Case, TOLERANCE, assert_close, batch_shape, cases, load, read, read_batch, valid};

/// The shared loss inputs, evaluated with one case's configuration.
struct Evaluated {
    case: Case,
    batch: SequenceBatch,
    loss: LossOutput,
    gradients: ParameterSet,
}

fn scale(inputs: &NamedTensors, name: &str, decay: f64, floor: f64) -> TdScale {
    let values = |part: &str| -> Vec<f32> { inputs[&format!("{name}.{part}")].tensor().unwrap().try_into().unwrap() };
    let updates = inputs["moments.count"].tensor().unwrap().int64_value(&[0]);
    let seen = json!({"decay": decay, "lead": 0, "weight": 1.0 - decay.powf(updates as f64), "updates": updates});
    let moments = |(first, second): (f32, f32)| {
        let mut moments = seen.clone();
        moments["first"] = first.into();
        moments["second"] = second.into();
        moments
    };
    let running: Vec<_> = values("first").into_iter().zip(values("second")).map(moments).collect();
    serde_json::from_value(json!({"floor": floor, "running": running})).unwrap()
}

fn evaluate(case: Case) -> Evaluated {
    let inputs = read(case.description["inputs"].as_str().unwrap());
    let config = case.config();
    let net = AgentNet::new(&config, ObservationInput::new(case.observation()), case.actions());
    // Networks without a head have no parameters for it.
    let wanted = |name: &str| net.layout.parameters().iter().any(|p| p.name == name);
    let mut online = ParameterSet::zeros(&net.layout, Device::Cpu).unwrap();
    let mut target = ParameterSet::zeros(&net.layout, Device::Cpu).unwrap();
    load(&inputs, "online.", &mut online, wanted);
    load(&inputs, "target.", &mut target, wanted);
    let online = online.trainable().unwrap();
    let batch = read_batch(&inputs, "batch");
    let shape = batch_shape(&batch, &config, case.actions());
    batch::check(&batch, &batch.observations, &net.input, &shape).unwrap();
    let tensors: BatchTensors =
        BatchTensors::upload(&batch, &batch.observations, &net.input, &shape, Device::Cpu).unwrap();
    let keep = inputs["keep"].tensor().unwrap().to_kind(Kind::Float);
    let keep = net.depth_mask(&keep, batch.trace as i64, Device::Cpu).unwrap();
    let run = |set: &ParameterSet| -> HeadOutputs {
        net.unroll(&net.prepare(set).unwrap(), &tensors.input, Some(&keep)).unwrap().heads
    };
    let (online_heads, target_heads) = (run(&online), tch::no_grad(|| run(&target)));
    let scales = ["moments", "moments_intrinsic"]
        .map(|name| scale(&inputs, name, config.loss.sigma_decay, config.loss.sigma_floor));
    let agent_loss = AgentLoss::new(&config, Device::Cpu).unwrap();
    let scales = &scales[..agent_loss.scales()];
    let least: Vec<Tensor> = scales.iter().map(|scale| running_sigmas(scale, Device::Cpu).unwrap()).collect();
    let loss = agent_loss.evaluate(&online_heads, &target_heads, &tensors, &least).unwrap();
    let mut gradients = ParameterSet::zeros(&net.layout, Device::Cpu).unwrap();
    gradients.fill_with_gradients(&loss.total, &online).unwrap();
    Evaluated { case, batch, loss, gradients }
}

impl Evaluated {
    /// `[B, T, ..]` with zeros where the observation (or, with `less` 1, the step) is not valid, as in the files.
    fn masked(&self, x: &Tensor, less: usize) -> Tensor {
        let mut size = vec![1; x.dim()];
        size[..2].copy_from_slice(&[self.batch.sequences.len() as i64, self.batch.trace as i64]);
        x * valid(&self.batch, less).view(&size[..])
    }

    fn check_head(&self, head: &HeadLoss, ending: &str) {
        let (case, td) = (&self.case, &head.td);
        let name = |field: &str| format!("{field}{ending}");
        case.assert_close(&name("value"), &self.masked(&head.value, 0));
        // The recursion covers padding too; only valid entries count, and V is at the end.
        let steps = valid(&self.batch, 1).unsqueeze(-1);
        let end = (valid(&self.batch, 0).unsqueeze(-1) - &steps) * &head.value;
        case.assert_close(&name("returns"), &(self.masked(&head.returns, 1) + end));
        case.assert_close(&name("td_error"), &self.masked(&td.error, 1));
        let statistics = TdStatistics::new(&Vec::<f64>::try_from(td.statistics.reshape([-1])).unwrap());
        case.assert_values(&name("sigma_batch"), &statistics.sigma_batch);
        case.assert_values(&name("sigma"), &statistics.sigma);
        case.assert_close(&name("trust_region_keep"), &self.masked(&td.mask, 1));
        let sums = self.weighted(&td.loss);
        case.assert_close(&name("loss_td_policy"), &sums);
        case.assert_close(&name("loss_td_behaviour"), &self.weighted_own(&td.loss));
        let inputs = read(case.description["inputs"].as_str().unwrap());
        let before = if ending.is_empty() { "moments" } else { "moments_intrinsic" };
        let decay = case.config().loss.sigma_decay;
        for part in ["first", "second"] {
            let batch: Vec<f64> =
                statistics.moments.iter().map(|m| if part == "first" { m.mean } else { m.mean_square }).collect();
            let before = inputs[&format!("{before}.{part}")].tensor().unwrap().to_kind(Kind::Double);
            let after = before * decay + Tensor::from_slice(&batch) * (1.0 - decay);
            case.assert_close(&format!("moments_after{ending}.{part}"), &after);
        }
    }

    fn weights(&self) -> Tensor {
        let weights: Vec<f32> = self.batch.sequences.iter().map(|sequence| sequence.importance_weight).collect();
        let weight = Tensor::from_slice(&weights).view([-1, 1, 1]);
        let steps: usize = self.batch.sequences.iter().map(|sequence| sequence.length - 1).sum();
        weight / steps as f64
    }

    /// L_j of every policy, from the loss of each step.
    fn weighted(&self, loss: &Tensor) -> Tensor {
        (loss * self.weights()).sum_dim_intlist(&[0i64, 1][..], false, Kind::Float).detach()
    }

    /// L_{jμ}.
    fn weighted_own(&self, loss: &Tensor) -> Tensor {
        let policies: Vec<i64> = self.batch.sequences.iter().map(|sequence| sequence.policy as i64).collect();
        let own = Tensor::from_slice(&policies).view([-1, 1, 1]).expand([-1, self.batch.trace as i64, 1], false);
        (loss * self.weights()).gather(-1, &own, false).sum(Kind::Float).view([1]).detach()
    }

    fn check(&self) {
        let (case, loss) = (&self.case, &self.loss);
        case.assert_close("q", &self.masked(&loss.q, 0));
        case.assert_close("q_target", &self.masked(&loss.q_target, 0));
        case.assert_close("target_policy", &self.masked(&loss.target_policy, 0));
        case.assert_close("lambda", &loss.traces);
        match &loss.heads[..] {
            [head] => self.check_head(head, ""),
            [extrinsic, intrinsic] => {
                self.check_head(extrinsic, "");
                self.check_head(intrinsic, "_intrinsic");
            }
            other => panic!("{} value heads", other.len()),
        }
        if let Some(policy) = &loss.policy {
            case.assert_close("log_policy", &self.masked(&policy.log_policy, 0));
            case.assert_close("log_policy_target", &self.masked(&policy.log_policy_target, 0));
            case.assert_close("kl", &self.masked(&policy.kl, 1));
            case.assert_close("kl_keep", &self.masked(&policy.mask, 1));
            case.assert_close("loss_distillation_policy", &self.weighted(&policy.loss));
            case.assert_close("loss_distillation_behaviour", &self.weighted_own(&policy.loss));
        }
        case.assert_close("loss_td", &loss.td.view([1]));
        case.assert_close("loss_distillation", &loss.distillation.view([1]));
        case.assert_close("loss_total", &loss.total.detach().view([1]));
        case.assert_close("priority", &loss.priorities);
        case.assert_values("gradient_norm", &[self.gradients.norm().unwrap().double_value(&[])]);
        case.assert_gradients(&self.gradients);
        let in_file = case.tensors.keys().filter(|name| name.starts_with("gradient.")).count();
        assert_eq!(in_file, self.gradients.named().count(), "{}: number of gradients", case.name);
    }

    fn name(&self) -> &str {
        self.case.name.trim_end_matches(".safetensors")
    }
}

#[test]
fn every_switch_agrees_with_the_reference() {
    let evaluated: Vec<Evaluated> = cases("loss").into_iter().map(evaluate).collect();
    let mut seen: Vec<&str> = evaluated.iter().map(Evaluated::name).collect();
    seen.sort_unstable();
    let mut expected: Vec<String> = vec![];
    for kind in ["soft_watkins", "watkins", "peng", "retrace"] {
        expected.extend(["online", "target"].map(|bootstrap| format!("loss_{kind}_{bootstrap}")));
    }
    let switches = ["no_trust_region", "no_td_normalization", "eta_0", "eta_1", "no_distillation"];
    expected.extend(
        switches
            .into_iter()
            .chain(["separate_losses", "sum_of_returns", "one_head"])
            .map(|name| format!("loss_{name}")),
    );
    expected.sort_unstable();
    assert_eq!(seen, expected, "the golden cases");
    evaluated.iter().for_each(Evaluated::check);

    // Both masks remove some steps' losses and keep others.
    let share = |keep: &Tensor, valid: &Tensor| {
        let steps = valid.unsqueeze(-1);
        let dropped: Tensor = (keep.ones_like() - keep) * &steps;
        let all: Tensor = keep.ones_like() * &steps;
        dropped.sum(Kind::Float).double_value(&[]) / all.sum(Kind::Float).double_value(&[])
    };
    let main = evaluated.iter().find(|e| e.name() == "loss_soft_watkins_online").unwrap();
    let steps = valid(&main.batch, 1);
    for keep in [&main.loss.heads[0].td.mask, &main.loss.policy.as_ref().unwrap().mask] {
        let share = share(keep, &steps);
        assert!(share > 0.0 && share < 1.0, "share of masked steps {share}");
    }
}

#[test]
fn ladders_agree_with_the_reference() {
    for case in cases("loss_inputs") {
        let count = case.config().policies.count;
        let (beta, gamma) = (case.tensor("beta"), case.tensor("gamma"));
        let learner = &cases("loss")[0].config().policies;
        let found = Tensor::from_slice(&beta_ladder(count, learner.beta_max, learner.beta_slope));
        assert_close("beta", &found, &beta, TOLERANCE);
        let found = Tensor::from_slice(&gamma_ladder(count, learner.gamma_max, learner.gamma_min));
        assert_close("gamma", &found, &gamma, TOLERANCE);
    }
}
