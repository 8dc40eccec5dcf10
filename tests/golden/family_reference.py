"""R2D2, NGU and Agent57 in plain PyTorch, written from docs/agents.md alone.

Nothing is shared with `agent_reference.py`: networks, returns, losses and updates are written out once more, for one
sequence's policy at a time. Everything follows the dtype of the parameters.

Shapes: B sequences, T observations per sequence, A actions, N policies.
"""

import math

import torch
import torch.nn.functional as F

# The constants of the page.
AGENTS = {
    "r2d2": {"returns": "n_step", "n": 5, "burn_in": 40, "policies": 1, "rewards": 1, "networks": 1, "beta": 0.0,
             "gammas": (0.997,), "target_epsilon": 0.0, "adam_epsilon": 1e-3, "frames": 4},
    "ngu": {"returns": "retrace", "lambda": 0.95, "burn_in": 0, "policies": 32, "rewards": 2, "networks": 1, "beta": 0.3,
            "gammas": (0.997, 0.99), "target_epsilon": 0.01, "adam_epsilon": 1e-4, "frames": 1},
    "agent57": {"returns": "retrace", "lambda": 0.95, "burn_in": 0, "policies": 32, "rewards": 2, "networks": 2,
                "beta": 0.3, "gammas": (0.9999, 0.997, 0.99), "target_epsilon": 0.01, "adam_epsilon": 1e-4, "frames": 1},
}  # fmt: skip
PREFIXES = ("", "intrinsic_network.")
HEADS = ("extrinsic", "intrinsic")


def betas(agent):
    """β_j: 0, then a sigmoid of slope 10, then β."""
    n = agent["policies"]
    if n == 1:
        return [0.0]
    middle = [agent["beta"] / (1 + math.exp(-10 * (2 * j - (n - 2)) / (n - 2))) for j in range(1, n - 1)]
    return [0.0, *middle, agent["beta"]]


def log_spaced(first, last, n):
    return [1 - math.exp(((n - 1 - j) * math.log(1 - first) + j * math.log(1 - last)) / (n - 1)) for j in range(n)]


def discounts(agent):
    """γ_j: one, log-spaced between two, or Agent57's eight far-seeing ones before those."""
    gammas, n = agent["gammas"], agent["policies"]
    if len(gammas) == 1:
        return list(gammas)
    if len(gammas) == 2:
        return log_spaced(*gammas, n)
    high, middle, low = gammas
    far = [middle + (high - middle) / (1 + math.exp(-10 * (6 - 2 * j) / 6)) for j in range(1, 7)]
    return [high, *far, middle, *log_spaced(middle, low, n - 8)]


def h(x):
    return torch.sign(x) * (torch.sqrt(torch.abs(x) + 1) - 1) + 0.001 * x


def h_inverse(y):
    """The root of 0.001 u² + 1.002 u = |y| for u = sqrt(|x|+1) - 1, without cancellation."""
    u = 2 * torch.abs(y) / (1.002 + torch.sqrt(1.002**2 + 0.004 * torch.abs(y)))
    return torch.sign(y) * u * (u + 2)


def q_values(p, prefix, head, agent, sizes, batch, state):
    """Q(x_t, ·) of one network for every observation, [B, T, A]."""
    dtype = p[prefix + "lstm.weight_ih"].dtype
    frames = batch["observations"].permute(0, 1, 4, 2, 3).to(dtype) / 255
    sequences, trace = frames.shape[:2]
    x = frames.flatten(0, 1)
    for i, (_, _, stride) in enumerate(sizes["convolutions"], start=1):
        x = F.relu(F.conv2d(x, p[f"{prefix}torso.conv{i}.weight"], p[f"{prefix}torso.conv{i}.bias"], stride=stride))
    x = F.relu(F.linear(x.flatten(1), p[prefix + "torso.linear.weight"], p[prefix + "torso.linear.bias"]))
    inputs = [x.reshape(sequences, trace, -1), F.one_hot(batch["action"][:, :trace], sizes["actions"]).to(dtype)]
    for name in ("reward_extrinsic", "reward_ngu")[: agent["rewards"]]:
        inputs.append(h(batch[name][:, :trace].to(dtype)).unsqueeze(-1))
    if agent["policies"] > 1:
        one_hot = F.one_hot(batch["policy"], agent["policies"]).to(dtype)
        inputs.append(one_hot[:, None].expand(-1, trace, -1))
    inputs = torch.cat(inputs, dim=-1)
    hidden, cell = state.to(dtype).chunk(2, dim=1)
    outputs = []
    for t in range(trace):
        if t == agent["burn_in"]:
            hidden, cell = hidden.detach(), cell.detach()
        gates = F.linear(inputs[:, t], p[prefix + "lstm.weight_ih"], p[prefix + "lstm.bias_ih"])
        gates = gates + F.linear(hidden, p[prefix + "lstm.weight_hh"], p[prefix + "lstm.bias_hh"])
        into, forget, new, out = gates.chunk(4, dim=1)
        cell = torch.sigmoid(forget) * cell + torch.sigmoid(into) * torch.tanh(new)
        hidden = torch.sigmoid(out) * torch.tanh(cell)
        outputs.append(hidden)
    core = torch.stack(outputs, dim=1)

    def stream(name):
        layer = f"{prefix}heads.{head}.{name}."
        x = F.relu(F.linear(core, p[layer + "hidden1.weight"], p[layer + "hidden1.bias"]))
        return F.linear(x, p[layer + "output.weight"], p[layer + "output.bias"])

    advantage = stream("advantage")
    return stream("value") + advantage - advantage.mean(dim=-1, keepdim=True)


def all_values(p, agent, sizes, batch):
    """Q of each network, and their sum Q_e + β_j Q_i."""
    count = agent["networks"]
    states = batch["state"].chunk(count, dim=1)
    values = [q_values(p, PREFIXES[i], HEADS[i], agent, sizes, batch, states[i]) for i in range(count)]
    if count == 1:
        return values, values[0]
    beta = torch.tensor(betas(agent), dtype=values[0].dtype)[batch["policy"]]
    return values, values[0] + beta[:, None, None] * values[1]


def first_loss_step(agent, batch, b):
    """Burn-in, unless the sequence starts an episode; the last step always carries loss."""
    if bool((batch["state"][b] == 0).all()):
        return 0
    return min(agent["burn_in"], int(batch["length"][b]) - 2)


def n_step(agent, q, q_target, rewards, going, gamma, steps):
    """G_t of one sequence with double Q-learning."""
    value = [h_inverse(q_target[t, q[t].argmax()]) for t in range(steps + 1)]
    returns = []
    for t in range(steps):
        last = min(t + agent["n"], steps)
        total, discount = 0.0, 1.0
        for k in range(t, last):
            total = total + discount * rewards[k]
            discount = discount * gamma * going[k]
        returns.append(total + discount * value[last])
    return torch.stack(returns)


def retrace(agent, q, own_target, actions, mu, rewards, going, gamma, steps):
    """G_t of one sequence; q chooses, own_target is what is learned."""
    epsilon, count = agent["target_epsilon"], q.shape[-1]
    policy = torch.full_like(q, epsilon / count)
    policy[torch.arange(len(q)), q.argmax(dim=-1)] += 1 - epsilon
    real = h_inverse(own_target)
    value = (policy * real).sum(dim=-1)
    g, returns = value[steps], []
    for t in reversed(range(steps)):
        if t + 1 < steps:
            a = actions[t + 1]
            trace = agent["lambda"] * torch.clamp(policy[t + 1, a] / mu[t + 1], max=1.0)
            following = value[t + 1] + trace * (g - real[t + 1, a])
        else:
            following = g
        g = rewards[t] + gamma * going[t] * following
        returns.append(g)
    return torch.stack(returns[::-1])


def loss(agent, sizes, online, target, batch):
    """The loss, the priorities and the combined online values."""
    values, q = all_values(online, agent, sizes, batch)
    with torch.no_grad():
        values_target, q_target = all_values(target, agent, sizes, batch)
    dtype = q.dtype
    beta, gamma = betas(agent), discounts(agent)
    total, valid, priorities = 0.0, 0, []
    for b in range(q.shape[0]):
        steps, j = int(batch["length"][b]) - 1, int(batch["policy"][b])
        first = first_loss_step(agent, batch, b)
        actions = batch["action"][b, 1 : steps + 1]
        mu = batch["behaviour_probability"][b, 1 : steps + 1].to(dtype)
        going = batch["discount"][b, 1 : steps + 1].to(dtype)
        extrinsic = batch["reward_extrinsic"][b, 1 : steps + 1].to(dtype)
        intrinsic = batch["reward_ngu"][b, 2 : steps + 2].to(dtype)
        rewards = [extrinsic, intrinsic] if agent["networks"] == 2 else [extrinsic + beta[j] * intrinsic]
        error_sum = 0.0
        for i, own in enumerate(rewards):
            chooses, own_target = q[b, : steps + 1].detach(), values_target[i][b, : steps + 1]
            if agent["returns"] == "n_step":
                returns = n_step(agent, chooses, own_target, own, going, gamma[j], steps)
            else:
                returns = retrace(agent, chooses, own_target, actions, mu, own, going, gamma[j], steps)
            taken = values[i][b, :steps].gather(-1, actions[:, None]).squeeze(-1)
            delta = (taken - h(returns))[first:]
            total = total + batch["weight"][b].to(dtype) * 0.5 * (delta**2).sum()
            error_sum = error_sum + (1.0 if i == 0 else beta[j]) * delta.detach().abs()
        valid += steps - first
        priorities.append(0.9 * error_sum.max() + 0.1 * error_sum.mean())
    return total / valid, torch.stack(priorities), q.detach()


class Learner:
    """Parameters, target network and one Adam per network."""

    def __init__(self, agent, sizes, settings, online, target, dtype):
        self.agent, self.sizes, self.settings = agent, sizes, settings
        self.online = {name: x.clone().to(dtype).requires_grad_(True) for name, x in online.items()}
        self.target = {name: x.clone().to(dtype) for name, x in target.items()}
        own = [{n: x for n, x in self.online.items() if n.startswith(PREFIXES[1])}]
        self.parts = [{n: x for n, x in self.online.items() if not n.startswith(PREFIXES[1])}] + [p for p in own if p]
        rate, epsilon = settings["learning_rate"], agent["adam_epsilon"]
        self.optimizers = [torch.optim.Adam(list(p.values()), lr=rate, eps=epsilon, foreach=False) for p in self.parts]
        self.updates = 0

    def update(self, batch):
        value, priorities, q = loss(self.agent, self.sizes, self.online, self.target, batch)
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        value.backward()
        gradients = {name: x.grad.clone() for name, x in self.online.items()}
        norms = []
        for part, optimizer in zip(self.parts, self.optimizers):
            norms.append(torch.nn.utils.clip_grad_norm_(part.values(), self.settings["clip_norm"]))
            optimizer.step()
        self.updates += 1
        if self.updates % self.settings["target_period"] == 0:
            self.target = {name: x.detach().clone() for name, x in self.online.items()}
        return {"loss": value.detach(), "priority": priorities, "q": q, "norms": torch.stack(norms)}, gradients
