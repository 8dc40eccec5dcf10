"""The agent in plain PyTorch: returns, losses and one learner step, on the networks of
`python/meme_rl/networks.py`.

Written to be compared with the equations, not to be fast: every quantity has one line, time is a loop, gradients come
from autograd and the optimizers are PyTorch's own. Everything follows the dtype of the parameters; the same call in
float64 shows how well-conditioned a case is. `README.md` beside this file lists the decisions behind it.

Shapes: B sequences, T observations per sequence, N policies, A actions.
"""

import math
import sys
from pathlib import Path

import torch
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))

from meme_rl.networks import (
    RESCALING_EPSILON,
    action_prediction,
    beta_ladder,
    combine,
    pixels,
    rescale,
    rescale_inverse,
    rl_network,
    rnd_error,
)

# The paper's values. A golden case overrides some of them and records the result in cases.json.
LEARNER = {
    "return": "soft_watkins",  # or watkins, peng, retrace
    "bootstrap": "online",  # or target
    "trust_region": True,
    "td_normalization": True,
    "distillation": True,  # without it there is no policy head
    "losses": "combined",  # or separate: one return and loss per Q head
    "q_combination": "sum",  # or returns: h(h^-1(Qe) + beta h^-1(Qi))
    "q_heads": 2,  # 1: only the extrinsic head exists and learns the combined reward
    "eta": 0.5,
    "lambda": 0.95,
    "kappa": 0.01,
    "temperature": 0.25,
    "rescaling_epsilon": RESCALING_EPSILON,
    "beta_im": 0.1,
    "gamma_max": 0.9997,
    "gamma_min": 0.97,
    "sigma_floor": 0.01,
    "sigma_decay": 0.99,
    "trust_region_alpha": 2.0,
    "kl_bound": 0.5,
    "distillation_epsilon": 1e-4,
    "distillation_weight": 1.0,
    "priority_max_weight": 0.9,
    "intrinsic_steps": 5,
    "rnd_decay": 0.999,
    "learning_rate": 3e-4,
    "weight_decay": 0.05,
    "action_prediction_learning_rate": 6e-4,
    "action_prediction_weight_decay": 0.05,
    "rnd_learning_rate": 6e-4,
    "adam_beta1": 0.9,
    "adam_beta2": 0.999,
    "adam_epsilon": 1e-8,
    "gradient_clip": 40.0,
    "ema_decay": 0.995,
    "target_period": 400,
}

# ---------------------------------------------------------------------------------------------------------- ladders


def gamma_ladder(policies, gamma_max, gamma_min):
    """γ_i = 1 - exp(((N-1-i) ln(1-γ_max) + i ln(1-γ_min)) / (N-1))."""
    if policies == 1:
        return [gamma_max]
    low, high = math.log(1 - gamma_max), math.log(1 - gamma_min)
    return [1 - math.exp(((policies - 1 - i) * low + i * high) / (policies - 1)) for i in range(policies)]


def ladders(config, policies, dtype):
    """β_j and γ_j as tensors [N]."""
    beta = beta_ladder(policies, config["beta_im"])
    gamma = gamma_ladder(policies, config["gamma_max"], config["gamma_min"])
    return torch.tensor(beta, dtype=dtype), torch.tensor(gamma, dtype=dtype)


# ---------------------------------------------------------------------------------------------------------- returns


def greedy_policy(q, epsilon):
    """ε-greedy: 1 - ε + ε/A on the first maximum, ε/A elsewhere."""
    actions = q.shape[-1]
    best = F.one_hot(q.argmax(dim=-1), actions).to(q.dtype)
    return (1 - epsilon) * best + epsilon / actions


def return_policy(config, q, logits):
    """π' [B, T, N, A]; logits are those of π_dist, None without distillation."""
    if config["return"] == "watkins":
        return greedy_policy(q, 0.0)
    if not config["distillation"]:
        return greedy_policy(q, config["distillation_epsilon"])
    return torch.softmax(torch.log_softmax(logits, dim=-1) / config["temperature"], dim=-1)


def taken(x, action):
    """x [B, T, N, A] at the actions [B, T]: [B, T, N]."""
    index = action[:, :, None, None].expand(*x.shape[:3], 1)
    return x.gather(-1, index).squeeze(-1)


def trace_coefficients(config, q, policy, action, behaviour_probability):
    """λ_t [B, T, N]; all arguments are those of step t."""
    q_taken = taken(q, action)
    if config["return"] == "peng":
        cut = torch.ones_like(q_taken)
    elif config["return"] == "retrace":
        # Invalid steps carry probability 0; they are masked out later.
        mu = behaviour_probability.clamp(min=1e-30)[:, :, None]
        cut = (taken(policy, action) / mu).clamp(max=1.0)
    elif config["return"] == "watkins":
        cut = (q_taken >= q.max(dim=-1).values).to(q.dtype)
    else:
        inside = q_taken[..., None] >= q - config["kappa"] * q.abs()
        cut = (policy * inside.to(q.dtype)).sum(dim=-1)
    return config["lambda"] * cut


def lambda_returns(reward, discount, gamma, value, baseline, trace, length):
    """G_t = r_t + γ d_t [V_{t+1} + λ_{t+1} (G_{t+1} - B_{t+1})]; G = V at the last valid observation. All [B, T, N]."""
    returns = torch.zeros_like(value)
    for b in range(value.shape[0]):
        last = int(length[b]) - 1
        g = value[b, last]
        returns[b, last] = g
        for t in reversed(range(last)):
            following = value[b, t + 1] + trace[b, t + 1] * (g - baseline[b, t + 1])
            g = reward[b, t] + gamma * discount[b, t] * following
            returns[b, t] = g
    return returns


# ----------------------------------------------------------------------------------------------------------- moments


def empty_moments(size, dtype):
    return {"first": torch.zeros(size, dtype=dtype), "second": torch.zeros(size, dtype=dtype), "count": 0}


def update_moments(moments, first, second, decay):
    return {
        "first": decay * moments["first"] + (1 - decay) * first,
        "second": decay * moments["second"] + (1 - decay) * second,
        "count": moments["count"] + 1,
    }


def moments_mean_std(moments, decay):
    if moments["count"] == 0:
        return torch.zeros_like(moments["first"]), torch.zeros_like(moments["first"])
    debias = 1 - decay ** moments["count"]  # a Python float: double precision
    mean, second = moments["first"] / debias, moments["second"] / debias
    return mean, torch.sqrt(torch.clamp(second - mean**2, min=0))


def update_latest_moments(moments, first, second, decay):
    """For RND errors, which start orders of magnitude too large: at first over about the last fifth of updates."""
    decay = min(decay, moments["count"] / (moments["count"] + 4))
    after = update_moments(moments, first, second, decay)
    after["weight"] = decay * moments.get("weight", 0.0) + (1 - decay)
    return after


def latest_mean_std(moments):
    mean, second = moments["first"] / moments["weight"], moments["second"] / moments["weight"]
    return mean, torch.sqrt(torch.clamp(second - mean**2, min=0))


# ------------------------------------------------------------------------------------------------------------ losses


def valid_steps(length, trace):
    return torch.arange(trace, device=length.device)[None, :] < length[:, None] - 1


def valid_observations(length, trace):
    return torch.arange(trace, device=length.device)[None, :] < length[:, None]


def mixture(eta, per_policy, behaviour):
    """η L_{jμ} + (1-η)/N Σ_j L_j."""
    return eta * behaviour + (1 - eta) * per_policy.mean()


def policy_losses(loss, weight, steps, policy):
    """Means over valid steps of w·loss: L_j for every policy [N], and L_{jμ} with each sequence's own."""
    count = steps.sum()
    weighted = loss * weight[:, None, None] * steps[:, :, None].to(loss.dtype)
    own = F.one_hot(policy, loss.shape[-1]).to(loss.dtype)
    return weighted.sum(dim=(0, 1)) / count, (weighted * own[:, None, :]).sum() / count


def td_loss(config, q_taken, q_taken_target, returns, sigma_running, weight, steps, policy):
    """TD error, σ, trust region, loss and moments of the batch for one Q function and all policies."""
    dtype = q_taken.dtype
    inside = steps[:, :, None].to(dtype)
    td_error = (q_taken - rescale(returns)) * inside
    delta = td_error.detach()

    count = steps.sum()
    mean = delta.sum(dim=(0, 1)) / count
    sigma_batch = torch.sqrt((((delta - mean) ** 2) * inside).sum(dim=(0, 1)) / count)
    sigma = torch.clamp(torch.maximum(sigma_running, sigma_batch), min=config["sigma_floor"])

    distance = (q_taken - q_taken_target).detach()
    outside = distance.abs() > config["trust_region_alpha"] * sigma
    away = torch.sign(distance) != torch.sign(delta)
    keep = ~(outside & away) if config["trust_region"] else torch.ones_like(outside)

    divisor = sigma if config["td_normalization"] else torch.ones_like(sigma)
    loss = keep.to(dtype) * 0.5 * (td_error / divisor) ** 2
    per_policy, behaviour = policy_losses(loss, weight, steps, policy)

    step_weight = weight[:, None, None] * inside
    total_weight = step_weight.sum()
    first = (step_weight * delta).sum(dim=(0, 1)) / total_weight
    second = (step_weight * delta**2).sum(dim=(0, 1)) / total_weight
    return {
        "td_error": td_error,
        "sigma_batch": sigma_batch,
        "sigma": sigma,
        "trust_region_keep": keep & steps[:, :, None],
        "trust_region_distance": distance,
        "loss_td_policy": per_policy,
        "loss_td_behaviour": behaviour,
        "batch_moments": (first, second),
        "scaled_error": (delta / divisor).abs(),
    }


def distillation_loss(config, q, logits, logits_target, weight, steps, policy):
    """Cross-entropy of π_dist to the ε-greedy policy of the online Q, where KL(π_dist,T || π_dist) is within bounds."""
    dtype = q.dtype
    log_policy, log_policy_target = torch.log_softmax(logits, dim=-1), torch.log_softmax(logits_target, dim=-1)
    kl = (log_policy_target.exp() * (log_policy_target - log_policy.detach())).sum(dim=-1)
    kl = kl * steps[:, :, None].to(dtype)
    keep = (kl <= config["kl_bound"]) & steps[:, :, None]
    aim = greedy_policy(q.detach(), config["distillation_epsilon"])
    cross_entropy = -(aim * log_policy).sum(dim=-1) * keep.to(dtype)
    per_policy, behaviour = policy_losses(cross_entropy, weight, steps, policy)
    return {
        "log_policy": log_policy,
        "log_policy_target": log_policy_target,
        "kl": kl,
        "kl_keep": keep,
        "loss_distillation_policy": per_policy,
        "loss_distillation_behaviour": behaviour,
        "loss_distillation": mixture(config["eta"], per_policy, behaviour),
    }


def rl_loss(config, network, online, target, batch, keep, moments):
    """The whole loss of the RL network; returns every intermediate by the name it has in the golden files.

    moments is {"": ..} for the combined loss and {"": .., "_intrinsic": ..} for separate ones.
    """
    beta, gamma = ladders(config, network["policies"], online["lstm.weight_ih"].dtype)
    out_online = rl_network(online, network, batch, keep)
    with torch.no_grad():
        out_target = rl_network(target, network, batch, keep)  # the same blocks dropped, so that only parameters differ
    decay = config["sigma_decay"]
    sigma_running = {suffix: moments_mean_std(x, decay)[1] for suffix, x in moments.items()}
    result = loss_of_outputs(config, beta, gamma, out_online, out_target, batch, sigma_running, lambda_returns)
    for suffix, before in moments.items():
        if "batch_moments" + suffix in result:
            first, second = result.pop("batch_moments" + suffix)
            result["moments_after" + suffix] = update_moments(before, first, second, decay)
    return result


def loss_of_outputs(config, beta, gamma, out_online, out_target, batch, sigma_running, returns_of):
    """The loss from the outputs of both networks; returns_of computes what lambda_returns does."""
    separate = config["losses"] == "separate"

    def combined(out):
        if "q_intrinsic" not in out:
            return out["q_extrinsic"]
        return combine(config["q_combination"], out["q_extrinsic"], out["q_intrinsic"], beta)

    q, q_target = combined(out_online), combined(out_target)
    dtype, trace = q.dtype, q.shape[1]
    steps, observed = valid_steps(batch["length"], trace), valid_observations(batch["length"], trace)
    weight, policy = batch["weight"].to(dtype), batch["policy"]

    # What happened at observation t is entry t+1; r_NGU(x_{t+1}) is entry t+2, and past the end for t = T-1.
    action = batch["action"][:, 1:]
    probability = batch["behaviour_probability"][:, 1:].to(dtype)
    reward_extrinsic = batch["reward_extrinsic"][:, 1:, None].to(dtype)
    reward_ngu = F.pad(batch["reward_ngu"][:, 2:].to(dtype), (0, 1))[:, :, None]
    discount = batch["discount"][:, 1:, None].to(dtype)

    # Returns: no gradient flows through anything below until the TD error.
    out_source = out_online if config["bootstrap"] == "online" else out_target
    out_source = {name: x.detach() for name, x in out_source.items()}
    q_source = combined(out_source)
    target_policy = return_policy(config, q_source, out_source.get("logits"))
    trace_lambda = trace_coefficients(config, q_source, target_policy, action, probability)
    trace_lambda = trace_lambda * steps[:, :, None].to(dtype)

    # By suffix of the golden names: online, target and bootstrap Q, the reward, and the weight in the priorities.
    if separate:
        heads = {"": ("q_extrinsic", reward_extrinsic, 1.0), "_intrinsic": ("q_intrinsic", reward_ngu, beta)}
        functions = {
            suffix: (out_online[head], out_target[head], out_source[head], reward.expand(-1, -1, q.shape[2]), share)
            for suffix, (head, reward, share) in heads.items()
        }
    else:
        functions = {"": (q, q_target, q_source, reward_extrinsic + beta * reward_ngu, 1.0)}

    result, loss_td, scaled_error = {}, 0.0, 0.0
    for suffix, (q_own, q_own_target, q_own_source, reward, share) in functions.items():
        value = (target_policy * rescale_inverse(q_own_source)).sum(dim=-1)
        baseline = value
        if config["return"] == "retrace":
            baseline = rescale_inverse(taken(q_own_source, action))
        returns = returns_of(reward, discount, gamma, value, baseline, trace_lambda, batch["length"])
        q_taken, q_taken_target = taken(q_own, action), taken(q_own_target, action)
        td = td_loss(config, q_taken, q_taken_target, returns, sigma_running[suffix], weight, steps, policy)
        scaled_error = scaled_error + share * td.pop("scaled_error")
        loss_td = loss_td + mixture(config["eta"], td["loss_td_policy"], td["loss_td_behaviour"])
        td["sigma_running"] = sigma_running[suffix]
        td["value"] = value * observed[:, :, None].to(dtype)
        td["returns"] = returns
        result.update({name + suffix: x for name, x in td.items()})

    per_observation = observed[:, :, None, None].to(dtype)
    if config["distillation"]:
        distillation = distillation_loss(config, q, out_online["logits"], out_target["logits"], weight, steps, policy)
        for name in ("log_policy", "log_policy_target"):
            distillation[name] = distillation[name] * per_observation
    else:
        distillation = {"loss_distillation": torch.zeros_like(loss_td)}

    own = (scaled_error * F.one_hot(policy, q.shape[2])[:, None, :]).sum(dim=-1)  # [B, T], zero at invalid steps
    mean_error = own.sum(dim=1) / steps.sum(dim=1)
    max_weight = config["priority_max_weight"]
    result.update(
        {
            "q": q * per_observation,
            "q_target": q_target * per_observation,
            "q_source": q_source,
            "target_policy": target_policy * per_observation,
            "lambda": trace_lambda,
            "loss_td": loss_td,
            **distillation,
            "loss_total": loss_td + config["distillation_weight"] * distillation["loss_distillation"],
            "priority": max_weight * own.max(dim=1).values + (1 - max_weight) * mean_error,
        }
    )
    return result


def intrinsic_loss(config, network, p, batch):
    """Action prediction on the last valid transitions and RND on the last valid observations of each sequence."""
    dtype = p["action_prediction.conv1.weight"].dtype
    sequences, trace = batch["observations"].shape[:2]
    frames = pixels(batch["observations"], dtype)
    used_transition = torch.zeros(sequences, trace, dtype=torch.bool)
    used_observation = torch.zeros(sequences, trace, dtype=torch.bool)
    for b in range(sequences):
        length = int(batch["length"][b])
        used_transition[b, max(0, length - 1 - config["intrinsic_steps"]) : length - 1] = True
        used_observation[b, max(0, length - config["intrinsic_steps"]) : length] = True

    index_b, index_t = used_transition.nonzero(as_tuple=True)
    logits = action_prediction(p, network, frames[index_b, index_t], frames[index_b, index_t + 1])
    loss_action_prediction = F.cross_entropy(logits, batch["action"][index_b, index_t + 1])

    error = rnd_error(p, network, frames[used_observation])
    return {
        "action_prediction_used": used_transition,
        "rnd_used": used_observation,
        "loss_action_prediction": loss_action_prediction,
        "loss_rnd": error.mean(),
        "rnd_error": torch.zeros(sequences, trace, dtype=dtype).masked_scatter(used_observation, error.detach()),
        "rnd_batch_first": error.detach().mean(),
        "rnd_batch_second": (error.detach() ** 2).mean(),
    }


# ----------------------------------------------------------------------------------------------------------- learner


def leaves(parameters, dtype):
    """Trainable copies."""
    return {name: x.detach().clone().to(dtype).requires_grad_(True) for name, x in parameters.items()}


def adamw(config, parameters, learning_rate, weight_decay, fused=False):
    """AdamW with decay on matrices and kernels only: gains, biases and skip gains have rank 1."""
    return torch.optim.AdamW(
        [
            {"params": [x for x in parameters.values() if x.dim() >= 2], "weight_decay": weight_decay},
            {"params": [x for x in parameters.values() if x.dim() < 2], "weight_decay": 0.0},
        ],
        lr=learning_rate,
        betas=(config["adam_beta1"], config["adam_beta2"]),
        eps=config["adam_epsilon"],
        foreach=False,
        fused=fused,
    )


class Learner:
    """Everything that persists between updates, and one update."""

    def __init__(self, config, network, online, target, intrinsic, dtype):
        self.config, self.network, self.dtype = config, network, dtype
        self.online = leaves(online, dtype)
        self.target = {name: x.detach().clone().to(dtype) for name, x in target.items()}
        self.ema = {name: x.detach().clone().to(dtype) for name, x in online.items()}
        self.intrinsic = leaves(intrinsic, dtype)
        self.td_moments = empty_moments(network["policies"], dtype)
        self.rnd_moments = empty_moments(1, dtype)
        self.updates = 0
        self.rl_optimizer = adamw(config, self.online, config["learning_rate"], config["weight_decay"])
        self.action_prediction_optimizer = adamw(
            config,
            self.part("action_prediction."),
            config["action_prediction_learning_rate"],
            config["action_prediction_weight_decay"],
        )
        self.rnd_optimizer = torch.optim.Adam(
            list(self.part("rnd.predictor.").values()),
            lr=config["rnd_learning_rate"],
            betas=(config["adam_beta1"], config["adam_beta2"]),
            eps=config["adam_epsilon"],
            foreach=False,
        )

    def part(self, prefix):
        return {name: x for name, x in self.intrinsic.items() if name.startswith(prefix)}

    def update(self, batch, keep):
        config = self.config
        rl = rl_loss(config, self.network, self.online, self.target, batch, keep, {"": self.td_moments})
        self.rl_optimizer.zero_grad()
        rl["loss_total"].backward()
        rl["gradient_norm"] = torch.nn.utils.clip_grad_norm_(self.online.values(), config["gradient_clip"])
        self.rl_optimizer.step()
        self.td_moments = rl["moments_after"]

        intrinsic = intrinsic_loss(config, self.network, self.intrinsic, batch)
        self.action_prediction_optimizer.zero_grad()
        intrinsic["loss_action_prediction"].backward()
        self.action_prediction_optimizer.step()
        self.rnd_optimizer.zero_grad()
        intrinsic["loss_rnd"].backward()
        self.rnd_optimizer.step()
        self.rnd_moments = update_latest_moments(
            self.rnd_moments, intrinsic["rnd_batch_first"], intrinsic["rnd_batch_second"], config["rnd_decay"]
        )

        self.updates += 1
        with torch.no_grad():
            for name, x in self.online.items():
                self.ema[name] = config["ema_decay"] * self.ema[name] + (1 - config["ema_decay"]) * x
                if self.updates % config["target_period"] == 0:
                    self.target[name] = x.detach().clone()
        return rl, intrinsic
