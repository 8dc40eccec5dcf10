#!/usr/bin/env python3
"""Whether the PyTorch peer computes what it is measured for: `.venv-golden/bin/python bench/check_torch_peer.py`.

Gives the peer the parameters and the batch of the golden files in tests/golden, on the CPU in f32, and compares loss,
priorities, moments and every gradient with theirs. The `tiny` shapes of the peer are those of the files.
`scripts/golden.sh` makes `.venv-golden`; `--mode compile` takes minutes of compiling.
"""

import argparse
import sys
from pathlib import Path

import torch
from safetensors.numpy import load_file

from peer_loss import SIGMA_DECAY
from peer_network import SIZES
from torch_peer import Learner

GOLDEN = Path(__file__).resolve().parent.parent / "tests" / "golden"
TOLERANCE = 1e-4  # of max|got - want| / max|want|, as in the Rust tests
STREAMS = ("extrinsic.advantage", "intrinsic.advantage", "policy", "extrinsic.value", "intrinsic.value")


def part(tensors, prefix):
    return {name.removeprefix(prefix): x for name, x in tensors.items() if name.startswith(prefix)}


def arranged(golden, size):
    """Parameters, or their gradients, under the peer's names and in its order: torso outputs H, W, C; heads stacked."""
    _, channels, _ = size.stages[-1]
    length = golden["lstm.weight_ih"].shape[1] - size.features
    order = torch.arange(length).reshape(channels, -1).t().flatten()
    order = torch.cat([order, torch.arange(length, length + size.features)])

    result = {f"stem.{name}": x for name, x in part(golden, "torso.stem.").items()}
    blocks = [(s, b) for s, (count, _, _) in enumerate(size.stages) for b in range(count)]
    for k, (s, b) in enumerate(blocks):
        for name, x in part(golden, f"torso.stage{s}.block{b}.").items():
            result[f"blocks.{k}.{name.removeprefix('squeeze_excite.')}"] = x
    result["embedding.weight"] = golden["features.action_embedding.weight"]
    result.update({f"features.{name}": golden[f"features.linear.{name}"] for name in ("weight", "bias")})
    result.update({f"lstm.{name}_l0": x for name, x in part(golden, "lstm.").items()})
    result["lstm.weight_ih_l0"] = golden["lstm.weight_ih"][:, order]
    columns = torch.cat([torch.arange(size.core), size.core + order])
    result["hidden1.weight"] = torch.cat([golden[f"heads.{name}.hidden1.weight"][:, columns] for name in STREAMS])
    result["hidden1.bias"] = torch.cat([golden[f"heads.{name}.hidden1.bias"] for name in STREAMS])
    for peer, layer, streams in (
        ("hidden2", "hidden2", STREAMS),
        ("advantages", "output", STREAMS[:3]),
        ("values", "output", STREAMS[3:]),
    ):
        result[f"{peer}_weight"] = torch.stack([golden[f"heads.{name}.{layer}.weight"].t() for name in streams])
        result[f"{peer}_bias"] = torch.stack([golden[f"heads.{name}.{layer}.bias"][None] for name in streams])
    return result


def peer_batch(batch):
    """The replay's arrays as the peer has them."""
    trace = batch["observations"].shape[1]
    rewards = [batch[f"reward_{name}"] for name in ("extrinsic", "ngu", "rnd", "episodic")]
    return {
        "action": batch["action"],
        "rewards": torch.stack(rewards, -1),
        "discount": batch["discount"],
        "embedding": batch["embedding"].float(),
        "state": torch.stack(batch["state"].chunk(2, 1))[:, None],
        "policy": batch["policy"],
        "weight": batch["weight"],
        "steps": (torch.arange(trace) < batch["length"][:, None] - 1).float(),
        "frames": batch["observations"].flatten(0, 2),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mode", choices=("eager", "compile"), default="eager")
    mode = parser.parse_args().mode
    given, want = (
        {name: torch.from_numpy(x) for name, x in load_file(GOLDEN / f"{file}.safetensors").items()}
        for file in ("loss_inputs", "loss_soft_watkins_online")
    )
    size = SIZES["tiny"]
    learner = Learner(size, "cpu", mode)
    learner.online.load_state_dict(arranged(part(given, "online."), size))
    learner.target.load_state_dict(arranged(part(given, "target."), size))
    learner.beta, learner.gamma = given["beta"], given["gamma"]
    remaining = torch.full((size.policies,), SIGMA_DECAY ** given["moments.count"].item())
    learner.moments = torch.stack([given["moments.first"], given["moments.second"], remaining])
    loss, priorities = learner.gradients(peer_batch(part(given, "batch.")), given["keep"])

    pairs = {
        "loss": (loss, want["loss_total"]),
        "priorities": (priorities, want["priority"]),
        "first moments": (learner.moments[0], want["moments_after.first"]),
        "second moments": (learner.moments[1], want["moments_after.second"]),
    }
    gradients = arranged(part(want, "gradient."), size)
    pairs |= {f"gradient of {name}": (x.grad, gradients[name]) for name, x in learner.online.named_parameters()}
    errors = {name: ((x - y).abs().max() / y.abs().max()).item() for name, (x, y) in pairs.items()}
    wrong = {name: error for name, error in errors.items() if not error < TOLERANCE}
    for name, error in wrong.items():
        print(f"{name} differs from the golden file by {error:.1e}")
    if wrong:
        sys.exit(1)
    worst = max(errors, key=errors.get)
    print(f"{mode}: {len(pairs)} quantities agree with the golden file, to {errors[worst]:.1e} at worst ({worst})")


if __name__ == "__main__":
    main()
