"""The loss of the paper preset in PyTorch: Soft Watkins Q(lambda) returns, TD loss with trust region, distillation.

Shapes: B sequences, T observations a sequence, N policies, A actions.
"""

import math

import torch
import torch.nn.functional as F

BETA_MAX, GAMMA_MAX, GAMMA_MIN = 0.1, 0.9997, 0.97
LAMBDA, KAPPA, TEMPERATURE = 0.95, 0.01, 0.25
RESCALING_EPSILON = 0.001
CROSS_MIXTURE = 0.5
TRUST_REGION_RADIUS, KL_BOUND, DISTILLATION_EPSILON = 2.0, 0.5, 1e-4
SIGMA_DECAY, SIGMA_FLOOR = 0.99, 0.01
PRIORITY_MAX_SHARE = 0.9


def rescale(x):
    """h(x) = sgn(x) (sqrt(|x|+1) - 1) + ε x."""
    return torch.sign(x) * (torch.sqrt(x.abs() + 1) - 1) + RESCALING_EPSILON * x


def rescale_inverse(x):
    lifted = x.abs() + 1 + RESCALING_EPSILON
    root = 2 * lifted / (torch.sqrt(1 + 4 * RESCALING_EPSILON * lifted) + 1)
    return torch.sign(x) * (root * root - 1)


def ladders(policies):
    """β_j and γ_j."""
    last = policies - 1
    beta = [BETA_MAX / (1 + math.exp(-8 * (2 * j - (last - 1)) / (last - 1))) for j in range(policies)]
    beta[0], beta[last] = 0.0, BETA_MAX
    low, high = math.log(1 - GAMMA_MAX), math.log(1 - GAMMA_MIN)
    gamma = [1 - math.exp(((last - j) * low + j * high) / last) for j in range(policies)]
    return torch.tensor(beta), torch.tensor(gamma)


def scan(start, factor):
    """y_t = start_t + factor_t y_{t+1} along time [B, T, N], by doubling."""
    reach = 1
    while reach < start.shape[1]:
        start = start + factor * F.pad(start[:, reach:], (0, 0, 0, reach))
        factor = factor * F.pad(factor[:, reach:], (0, 0, 0, reach))
        reach *= 2
    return start


def following(x):
    """x_{t+1}, and 0 after the last."""
    return F.pad(x[:, 1:], (0, 0, 0, 1))


def agent_loss(online, target, batch, beta, gamma, moments):
    """Loss of all policies, priorities [B] and the new moments (first, second, decay^count) of the TD errors."""
    q = online[0] + beta[:, None] * online[1]
    q_target = target[0] + beta[:, None] * target[1]
    actions = q.shape[-1]
    taken_action = batch["action"][:, 1:, None, None].expand(*q.shape[:3], 1)
    q_taken = q.gather(-1, taken_action).squeeze(-1)
    log_policy = torch.log_softmax(online[2], -1)
    steps, weight = batch["steps"][:, :, None], batch["weight"][:, None, None]

    with torch.no_grad():
        # Soft Watkins Q(λ), bootstrapping from the online network.
        policy = torch.softmax(log_policy / TEMPERATURE, -1)
        value = (policy * rescale_inverse(q)).sum(-1)
        inside = q_taken[..., None] >= q - KAPPA * q.abs()
        trace = LAMBDA * (policy * inside).sum(-1) * steps
        reward_ngu = F.pad(batch["rewards"][:, 2:, 1], (0, 1))
        reward = batch["rewards"][:, 1:, 0, None] + beta * reward_ngu[:, :, None]
        discount = gamma * batch["discount"][:, 1:, None]
        trace_next = following(trace)
        returns = scan(reward + discount * (1 - trace_next) * following(value), discount * trace_next)
        aim = rescale(returns)

        # σ_j of the batch and of all batches so far.
        count = steps.sum()
        delta = (q_taken - aim) * steps
        mean = delta.sum((0, 1)) / count
        sigma_batch = torch.sqrt(((delta - mean).square() * steps).sum((0, 1)) / count)
        first, second, remaining = moments
        debias = 1 / (1 - remaining).clamp(min=1e-6)
        sigma_running = torch.sqrt((second * debias - (first * debias).square()).clamp(min=0))
        sigma = torch.maximum(sigma_running, sigma_batch).clamp(min=SIGMA_FLOOR)
        weighted = weight * steps
        total = weighted.sum()
        moments = torch.stack([
            torch.lerp((weighted * delta).sum((0, 1)) / total, first, SIGMA_DECAY),
            torch.lerp((weighted * delta.square()).sum((0, 1)) / total, second, SIGMA_DECAY),
            remaining * SIGMA_DECAY,
        ])  # fmt: skip

        distance = q_taken - q_target.gather(-1, taken_action).squeeze(-1)
        outside = distance.abs() > TRUST_REGION_RADIUS * sigma
        trusted = ~(outside & (torch.sign(distance) != torch.sign(delta)))
        log_target = torch.log_softmax(target[2], -1)
        near = (log_target.exp() * (log_target - log_policy)).sum(-1) <= KL_BOUND

        # η for the policy that acted, (1-η)/N for each; means over the valid steps.
        own = F.one_hot(batch["policy"], beta.shape[0])[:, None, :]
        mixture = (CROSS_MIXTURE * own + (1 - CROSS_MIXTURE) / beta.shape[0]) * weighted / count
        # Not a gather of the greedy action's logit: torch.compile of 2.11 then gets the gradient of the logits wrong.
        greedy = F.one_hot(q.argmax(-1), actions)
        greedy = (1 - DISTILLATION_EPSILON) * greedy + DISTILLATION_EPSILON / actions
        error = (delta.abs() / sigma * own).sum(-1)
        share = PRIORITY_MAX_SHARE
        priorities = share * error.amax(1) + (1 - share) * error.sum(1) / batch["steps"].sum(1)

    td = 0.5 * ((q_taken - aim) / sigma).square() * trusted
    distillation = -(greedy * log_policy).sum(-1) * near
    return (mixture * (td + distillation)).sum(), priorities, moments
