"""One learner step on the CPU as a PyTorch user would have it: `python speed_peer.py --batch 2 --trace 8`.

The agent of `agent_reference.py` with its slow parts replaced by what PyTorch offers: the fused LSTM, returns for the
whole batch at once, the fused optimizers. Before anything is timed, its losses and gradients are compared with the
reference on the same batch. Prints the median time of a step, to stand beside `meme bench learner` in one run.
"""

import argparse
import json
import statistics
import time
from pathlib import Path

import numpy as np
import torch

import agent_reference as agent
import golden_inputs as inputs
import network_reference as nets

PAPER = {
    **inputs.LOSS_NETWORK,
    "observation": [1, 210, 160],
    "actions": 18,
    "policies": 16,
    "torso": {
        **inputs.LOSS_NETWORK["torso"],
        "stem_channels": 64,
        "stages": [
            {"blocks": 2, "channels": 64, "stride": 1},
            {"blocks": 3, "channels": 128, "stride": 2},
            {"blocks": 4, "channels": 128, "stride": 2},
            {"blocks": 4, "channels": 64, "stride": 2},
        ],
    },
    "features": 256,
    "lstm": 1024,
    "hidden": 1024,
    "intrinsic_convolutions": [[32, 8, 4], [64, 4, 2], [64, 3, 1]],
}


def fused_lstm(p, sequence, state):
    """As network_reference.lstm, in one call."""
    weights = [p["lstm.weight_ih"], p["lstm.weight_hh"], p["lstm.bias_ih"], p["lstm.bias_hh"]]
    h, c = (part.contiguous().unsqueeze(0) for part in state.chunk(2, dim=1))
    outputs, h, c = torch.lstm(sequence, (h, c), weights, True, 1, 0.0, False, False, True)
    return outputs, torch.cat([h[0], c[0]], dim=1)


def batched_returns(reward, discount, gamma, value, baseline, trace, length):
    """As agent_reference.lambda_returns, all sequences at once: past a sequence's last observation G stays V."""
    steps = agent.valid_steps(length, value.shape[1])[:, :, None]
    returns = [value[:, -1]]
    for t in reversed(range(value.shape[1] - 1)):
        following = value[:, t + 1] + trace[:, t + 1] * (returns[-1] - baseline[:, t + 1])
        returns.append(torch.where(steps[:, t], reward[:, t] + gamma * discount[:, t] * following, value[:, t]))
    observed = agent.valid_observations(length, value.shape[1])[:, :, None]
    return torch.stack(returns[::-1], dim=1) * observed


def fused(optimizer):
    """The same optimizer with PyTorch's fused step."""
    groups = [{key: group[key] for key in ("params", "weight_decay")} for group in optimizer.param_groups]
    first = optimizer.param_groups[0]
    return type(optimizer)(groups, lr=first["lr"], betas=first["betas"], eps=first["eps"], fused=True)


REFERENCE_PARTS = (nets.lstm, agent.lambda_returns)
FAST_PARTS = (fused_lstm, batched_returns)


def use(parts):
    nets.lstm, agent.lambda_returns = parts


def fast_learner(*arguments):
    learner = agent.Learner(*arguments)
    learner.rl_optimizer = fused(learner.rl_optimizer)
    learner.action_prediction_optimizer = fused(learner.action_prediction_optimizer)
    learner.rnd_optimizer = fused(learner.rnd_optimizer)
    return learner


def check(reference, fast, batch, keep):
    """One update of both: the same losses, priorities and clipped gradients."""
    use(REFERENCE_PARTS)
    want, _ = reference.update(batch, keep)
    use(FAST_PARTS)
    got, _ = fast.update(batch, keep)
    pairs = {name: (got[name], want[name]) for name in ("loss_td", "loss_distillation", "priority")}
    pairs.update({name: (x.grad, reference.online[name].grad) for name, x in fast.online.items()})
    for name, (x, y) in pairs.items():
        error = ((x - y).abs().max() / y.abs().max().clamp(min=1e-12)).item()
        assert error < 1e-3, f"{name} differs from the reference by {error:.1e}"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--network", default="paper", help="paper, or a JSON file with a `network` as in cases.json")
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--trace", type=int, default=8)
    parser.add_argument("--steps", type=int, default=10, help="timed steps, after two that are not")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)

    network = PAPER if options.network == "paper" else json.loads(Path(options.network).read_text())
    rng = np.random.default_rng(0)
    online = inputs.draw_parameters(rng, inputs.rl_shapes(network))
    intrinsic = inputs.draw_parameters(rng, {**inputs.action_prediction_shapes(network), **inputs.rnd_shapes(network)})
    batch = inputs.draw_batch(rng, network, options.trace, [(options.trace, "running", False)] * options.batch)
    keep = torch.ones(inputs.blocks(network), options.batch, dtype=torch.uint8)
    arguments = (agent.LEARNER, network, online, online, intrinsic, torch.float32)
    learner = fast_learner(*arguments)
    check(agent.Learner(*arguments), learner, batch, keep)

    use(FAST_PARTS)
    times = []
    for step in range(options.steps + 2):
        start = time.perf_counter()
        learner.update(batch, keep)
        if step >= 2:
            times.append(1000 * (time.perf_counter() - start))
    result = {
        "parameters": sum(x.numel() for x in online.values()),
        "batch": options.batch,
        "trace": options.trace,
        "threads": options.threads,
        "step_ms": round(statistics.median(times), 2),
    }
    print(json.dumps(result) if options.json else ", ".join(f"{name} {value}" for name, value in result.items()))


if __name__ == "__main__":
    main()
