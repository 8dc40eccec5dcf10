"""Writes the golden files: `python make_golden.py FOLDER`.

Computes every case in float32, which is stored, and in float64. Fails where the two differ by more than rounding, and
where a decision is so close that a correct f32 implementation could take the other side.
"""

import argparse
import json
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import save_file

import agent_reference as agent
import golden_checks as checks
import golden_inputs as inputs
import make_agents
from meme_rl import networks as nets

STEPS = 10

# A larger intrinsic reward than in the paper, so that its head matters in small examples.
LEARNER = {**agent.LEARNER, "beta_im": 0.5}


# ------------------------------------------------------------------------------------------------------------- files


class Golden:
    """The files written so far and their entries in cases.json."""

    def __init__(self, directory):
        self.directory, self.files = Path(directory), []
        self.directory.mkdir(parents=True, exist_ok=True)

    def write(self, name, kind, tensors, note="", **description):
        stored = {}
        for key, x in tensors.items():
            x = x.detach()
            x = x.to(torch.uint8) if x.dtype == torch.bool else x
            stored[key] = np.ascontiguousarray((x.reshape(1) if x.dim() == 0 else x).numpy())
            assert stored[key].dtype != np.float64, f"{name}: {key} is float64"
        path = self.directory / f"{name}.safetensors"
        save_file(stored, path)
        self.files.append({"file": path.name, "kind": kind, **description})
        size = path.stat().st_size
        assert size < 1_000_000, f"{path.name} has {size} bytes"
        print(f"{path.name:<40} {size / 1000:6.0f} kB  {note}", flush=True)

    def finish(self):
        text = json.dumps({"files": self.files}, indent=1)
        (self.directory / "cases.json").write_text(text + "\n")


def prefixed(prefix, tensors):
    return {prefix + name: x for name, x in tensors.items()}


def gradients(parameters):
    """Gradients by parameter name; zeros where nothing flows."""
    return {
        f"gradient.{name}": torch.zeros_like(x) if x.grad is None else x.grad for name, x in parameters.items()
    }


def in_both_precisions(file, compute):
    """Runs compute(dtype) in f32 and f64; returns both results and a note on their agreement."""
    single, double = compute(torch.float32), compute(torch.float64)
    worst, where = checks.check_agreement(file, single, double)
    return single, double, f"f32 and f64 agree to {worst:.1e} ({where})"


# ----------------------------------------------------------------------------------------------------------- forward

TORSO_RELU = {
    "observation": [1, 21, 27],  # stem 6x7, stages 6x7 and 3x4
    "torso": inputs.LOSS_NETWORK["torso"],
}
TORSO_GELU = {
    "observation": [1, 19, 33],  # stem 5x9, stages 5x9, 3x5 and 2x3
    "torso": {
        **inputs.LOSS_NETWORK["torso"],
        "activation": "gelu",
        "stem_channels": 5,
        "stages": [
            {"blocks": 2, "channels": 5, "stride": 1},
            {"blocks": 3, "channels": 7, "stride": 2},
            {"blocks": 1, "channels": 6, "stride": 2},
        ],
    },
}
TORSO_DQN = {
    "observation": [1, 44, 37],
    "torso": {"kind": "dqn", "convolutions": [[4, 8, 4], [6, 4, 2], [6, 3, 1]], "output": 10},
}
FORWARD_NETWORK = {
    **inputs.LOSS_NETWORK,
    "observation": [1, 19, 22],  # stem 5x6, stages 5x6 and 3x3
    "actions": 5,
    "policies": 3,
    "torso": {
        **inputs.LOSS_NETWORK["torso"],
        "stages": [{"blocks": 1, "channels": 4, "stride": 1}, {"blocks": 2, "channels": 6, "stride": 2}],
    },
    "features": 10,
    "lstm": 12,
    "hidden": 14,
}
PARTS_NETWORK = {
    **{name: x for name, x in FORWARD_NETWORK.items() if name != "observation"},
    "parts": [
        {"name": "camera", "shape": [13, 15, 3], "kind": "u8"},  # 585 bytes, and three of padding
        {"name": "map.near", "shape": [9, 11, 1], "kind": "f32"},  # stem 3x3, stages 3x3 and 2x2
        {"name": "place", "shape": [7], "kind": "f32"},
    ],
    "torso": {**FORWARD_NETWORK["torso"], "hidden": [9, 8]},
    "action_prediction_hidden": 16,
    "rnd_output": 16,
    "intrinsic_convolutions": [[4, 5, 2], [5, 2, 1]],  # of the map: 3x4 and 2x3
}
INTRINSIC_NETWORK = {
    "observation": [1, 44, 37],  # 10x8, 4x3, 2x1
    "actions": 5,
    "embedding": 32,
    "action_prediction_hidden": 128,
    "rnd_output": 128,
    "intrinsic_convolutions": [[4, 8, 4], [6, 4, 2], [6, 3, 1]],
}


def forward_torso(golden, file, seed, network):
    rng = np.random.default_rng(seed)
    sequences, trace = 3, 2
    dqn = network["torso"]["kind"] == "dqn"
    if dqn:
        shapes = inputs.dqn_shapes(network["observation"], network["torso"])
        features = network["torso"]["output"]
    else:
        shapes, features = inputs.nfnet_shapes(network["observation"], network["torso"])
    parameters = inputs.draw_parameters(rng, shapes)
    frames = inputs.draw_frames(rng, sequences * trace, network["observation"])
    given = {"observations": frames.reshape(sequences, trace, *network["observation"])}
    if not dqn:
        given["keep"] = inputs.draw_keep(rng, inputs.blocks(network), sequences)
    given["probe"] = torch.from_numpy(rng.normal(0, 1, (sequences, trace, features)).astype(np.float32))

    def compute(dtype):
        p = agent.leaves(parameters, dtype)
        if dqn:
            output = nets.dqn_torso(p, network["torso"], nets.pixels(frames, dtype))
            outputs = {}
        else:
            keep = given["keep"].to(dtype).repeat_interleave(trace, dim=1)
            output = nets.nfnet_torso(p, network["torso"], nets.pixels(frames, dtype), keep)
            acting = nets.nfnet_torso(p, network["torso"], nets.pixels(frames, dtype), None)
            outputs = {"output_acting": acting.detach().reshape(sequences, trace, -1)}
        outputs["output"] = output.detach().reshape(sequences, trace, -1)
        (output * given["probe"].to(dtype).flatten(0, 1)).sum().backward()
        return {**outputs, **gradients(p)}

    outputs, _, note = in_both_precisions(file, compute)
    kind = "forward_torso_dqn" if dqn else "forward_torso"
    golden.write(file, kind, {**prefixed("parameters.", parameters), **given, **outputs}, note, network=network)


def forward_network(golden, file, seed):
    rng = np.random.default_rng(seed)
    network = FORWARD_NETWORK
    parameters = inputs.draw_parameters(rng, inputs.rl_shapes(network))
    batch = inputs.draw_batch(rng, network, 4, [(4, "running", False), (4, "running", True), (3, "terminated", False)])
    keep = inputs.draw_keep(rng, inputs.blocks(network), 3)

    def compute(dtype):
        p = {name: x.to(dtype) for name, x in parameters.items()}
        return nets.rl_network(p, network, batch, keep)

    outputs, _, note = in_both_precisions(file, compute)
    tensors = {**prefixed("parameters.", parameters), **prefixed("batch.", batch), "keep": keep, **outputs}
    golden.write(file, "forward_network", tensors, note, network=network)


def forward_parts(golden, file, seed):
    rng = np.random.default_rng(seed)
    network = PARTS_NETWORK
    shapes = [inputs.rl_shapes(network), inputs.action_prediction_shapes(network), inputs.rnd_shapes(network)]
    parameters = inputs.draw_parameters(rng, {name: shape for one in shapes for name, shape in one.items()})
    sequences, trace = 3, 4
    kinds = [(4, "running", False), (4, "running", True), (4, "terminated", False)]
    batch = inputs.draw_batch(rng, {**network, "observation": [1, 1, 1]}, trace, kinds)
    drawn = inputs.draw_parts(rng, sequences * trace, network["parts"])
    flat = inputs.in_bytes(drawn).reshape(sequences, trace, -1)
    parts = {name: torch.from_numpy(x) for name, x in drawn.items()}
    parts = {name: x.permute(0, 3, 1, 2) if x.dim() == 4 else x for name, x in parts.items()}
    keep = inputs.draw_keep(rng, inputs.blocks(network), sequences)

    def compute(dtype):
        p = {name: x.to(dtype) for name, x in parameters.items()}
        by_sequence = nets.each_part(lambda x: x.unflatten(0, (sequences, trace)), parts)
        frames = nets.each_part(lambda x: nets.normalised(x, dtype), parts)
        return {
            **nets.rl_network(p, network, {**batch, "observations": by_sequence}, keep),
            "embedding": nets.action_embedding(p, network, frames),
            "rnd_error": nets.rnd_error(p, network, frames),
        }

    outputs, _, note = in_both_precisions(file, compute)
    batch["observations"] = torch.from_numpy(flat)
    tensors = {**prefixed("parameters.", parameters), **prefixed("batch.", batch), "keep": keep, **outputs}
    golden.write(file, "forward_parts", tensors, note, network=network)


def forward_action_prediction(golden, file, seed):
    rng = np.random.default_rng(seed)
    network = INTRINSIC_NETWORK
    parameters = inputs.draw_parameters(rng, inputs.action_prediction_shapes(network))
    given = {name: inputs.draw_frames(rng, 4, network["observation"]) for name in ("observations", "observations_next")}

    def compute(dtype):
        p = {name: x.to(dtype) for name, x in parameters.items()}
        frames, frames_next = (nets.pixels(x, dtype) for x in given.values())
        return {
            "embedding": nets.action_embedding(p, network, frames),
            "logits": nets.action_prediction(p, network, frames, frames_next),
        }

    outputs, _, note = in_both_precisions(file, compute)
    tensors = {**prefixed("parameters.", parameters), **given, **outputs}
    golden.write(file, "forward_action_prediction", tensors, note, network=network)


def forward_rnd(golden, file, seed):
    rng = np.random.default_rng(seed)
    network = INTRINSIC_NETWORK
    parameters = inputs.draw_parameters(rng, inputs.rnd_shapes(network))
    given = {"observations": inputs.draw_frames(rng, 4, network["observation"])}

    def compute(dtype):
        p = {name: x.to(dtype) for name, x in parameters.items()}
        frames = nets.pixels(given["observations"], dtype)
        return {
            "output_target": nets.rnd_output(p, network, "target", frames),
            "output_predictor": nets.rnd_output(p, network, "predictor", frames),
            "error": nets.rnd_error(p, network, frames),
        }

    outputs, _, note = in_both_precisions(file, compute)
    tensors = {**prefixed("parameters.", parameters), **given, **outputs}
    golden.write(file, "forward_rnd", tensors, note, network=network)


# -------------------------------------------------------------------------------------------------------------- loss

# (length, end, starts an episode); T = 9.
LOSS_SEQUENCES = [
    (9, "running", False),
    (9, "terminated", False),
    (6, "terminated", True),
    (4, "truncated", False),
    (2, "terminated", True),
]
LOSS_CASES = {
    **{
        f"loss_{kind}_{source}": {"return": kind, "bootstrap": source}
        for kind in ("soft_watkins", "watkins", "peng", "retrace")
        for source in ("online", "target")
    },
    "loss_no_trust_region": {"trust_region": False},
    "loss_no_td_normalization": {"td_normalization": False},
    "loss_eta_0": {"eta": 0.0},
    "loss_eta_1": {"eta": 1.0},
    "loss_no_distillation": {"distillation": False},
    "loss_separate_losses": {"losses": "separate"},
    "loss_sum_of_returns": {"q_combination": "returns"},
    "loss_one_head": {"q_heads": 1},
}


class LossInputs:
    """Inputs shared by the loss cases."""

    def __init__(self, seed):
        rng = np.random.default_rng(seed)
        network = inputs.LOSS_NETWORK
        self.online = inputs.draw_parameters(rng, inputs.rl_shapes(network), output_scale=2.0)
        self.target = inputs.perturb(rng, self.online, scale=0.1, q_scale=5.0, policy_scale=2.0)
        self.action_prediction = inputs.draw_parameters(rng, inputs.action_prediction_shapes(network))
        self.rnd = inputs.draw_parameters(rng, inputs.rnd_shapes(network))
        self.batch = inputs.draw_batch(rng, network, 9, LOSS_SEQUENCES)
        self.keep = inputs.draw_keep(rng, inputs.blocks(network), len(LOSS_SEQUENCES))
        # Running σ between half and twice a typical batch σ, so that each of the two is larger somewhere.
        self.count = 7
        self.moments = {
            "": self.draw_moments(rng, [0.4, -0.3, 0.2, 0.1], [1.0, 4.0, 1.2, 5.0]),
            "_intrinsic": self.draw_moments(rng, [-0.2, 0.1, 0.3, -0.1], [3.0, 0.5, 4.0, 0.6]),
        }

    def draw_moments(self, rng, means, stds):
        mean = np.array(means) + rng.normal(0, 0.05, len(means))
        std = np.array(stds) * rng.uniform(0.9, 1.1, len(stds))
        debias = 1 - LEARNER["sigma_decay"] ** self.count
        first, second = mean * debias, (std**2 + mean**2) * debias
        return {name: torch.from_numpy(x.astype(np.float32)) for name, x in (("first", first), ("second", second))}

    def moments_in(self, dtype):
        return {
            suffix: {"first": m["first"].to(dtype), "second": m["second"].to(dtype), "count": self.count}
            for suffix, m in self.moments.items()
        }

    def write(self, golden, file):
        network = inputs.LOSS_NETWORK
        ladders = {
            "beta": agent.beta_ladder(network["policies"], LEARNER["beta_im"]),
            "gamma": agent.gamma_ladder(network["policies"], LEARNER["gamma_max"], LEARNER["gamma_min"]),
        }
        tensors = {
            **prefixed("online.", self.online),
            **prefixed("target.", self.target),
            **self.action_prediction,
            **self.rnd,
            **prefixed("batch.", self.batch),
            "keep": self.keep,
            **{name: torch.tensor(values) for name, values in ladders.items()},
            **prefixed("moments.", self.moments[""]),
            **prefixed("moments_intrinsic.", self.moments["_intrinsic"]),
            "moments.count": torch.tensor([self.count]),
        }
        golden.write(file, "loss_inputs", tensors, network=network)


def loss_case(golden, file, given, changes):
    config = {**LEARNER, **changes}
    network = {**inputs.LOSS_NETWORK, "q_heads": config["q_heads"], "policy_head": config["distillation"]}
    kept = inputs.rl_shapes(network)  # without the heads that the case does not use
    notes = {}

    def compute(dtype):
        online = agent.leaves({name: given.online[name] for name in kept}, dtype)
        target = {name: given.target[name].to(dtype) for name in kept}
        out = agent.rl_loss(config, network, online, target, given.batch, given.keep, given.moments_in(dtype))
        out["loss_total"].backward()
        notes["margins"] = checks.decision_margins(config, out, given.batch)
        notes["shares"] = checks.masked_shares(out, given.batch)
        running = out["sigma_running"] > out["sigma_batch"]
        notes["sigma"] = bool(running.any() and not running.all())
        for suffix in ("", "_intrinsic"):
            out.pop("trust_region_distance" + suffix, None)
            moments = out.pop("moments_after" + suffix, None)
            if moments:
                out[f"moments_after{suffix}.first"] = moments["first"]
                out[f"moments_after{suffix}.second"] = moments["second"]
        out.pop("q_source")
        norm = torch.stack([x.grad.norm() for x in online.values() if x.grad is not None]).norm()
        outputs = {name: x.detach() for name, x in out.items()}
        return {**outputs, "gradient_norm": norm, **gradients(online)}

    outputs, _, note = in_both_precisions(file, compute)
    margin = checks.check_margins(file, notes["margins"])
    assert notes["sigma"], f"{file}: running or batch σ is never the larger one"
    for mask, share in notes["shares"].items():
        if mask == "kl_keep" or config["trust_region"]:
            assert checks.MASKED[0] < share < checks.MASKED[1], f"{file}: {mask} masks {share:.0%} of the steps"
    shares = ", ".join(f"{name.removesuffix('_keep')} {share:.0%}" for name, share in notes["shares"].items())
    note = f"{note}; margin {margin:.1e}; masked: {shares}"
    golden.write(file, "loss", outputs, note, inputs="loss_inputs.safetensors", network=network, learner=config)


def loss_intrinsic(golden, file, given):
    network = inputs.LOSS_NETWORK

    def compute(dtype):
        p = agent.leaves({**given.action_prediction, **given.rnd}, dtype)
        out = agent.intrinsic_loss(LEARNER, network, p, given.batch)
        (out["loss_action_prediction"] + out["loss_rnd"]).backward()
        moments = agent.update_latest_moments(
            agent.empty_moments(1, dtype), out.pop("rnd_batch_first"), out.pop("rnd_batch_second"), LEARNER["rnd_decay"]
        )
        out["rnd_moments_after.first"], out["rnd_moments_after.second"] = moments["first"], moments["second"]
        trained = {name: x for name, x in p.items() if not name.startswith("rnd.target")}
        return {**{name: x.detach() for name, x in out.items()}, **gradients(trained)}

    outputs, _, note = in_both_precisions(file, compute)
    golden.write(
        file, "loss_intrinsic", outputs, note, inputs="loss_inputs.safetensors", network=network, learner=LEARNER
    )


# ----------------------------------------------------------------------------------------------------- learner steps

# Larger learning rates than the paper's, so that ten updates change the parameters visibly; a target copied twice; a
# clip that takes effect on some updates. Adam's ε is above the rounding error of a gradient: Adam divides a gradient by
# its own size, so with 1e-8 an entry of pure rounding error would move as far as any other, in an arbitrary direction.
STEPS_LEARNER = {
    **LEARNER,
    "learning_rate": 3e-3,
    "action_prediction_learning_rate": 3e-3,
    "rnd_learning_rate": 3e-3,
    "target_period": 4,
    "gradient_clip": 4.0,
    "adam_epsilon": 1e-4,
}
# T = 7.
STEPS_SEQUENCES = [
    [(7, "running", False), (5, "terminated", True), (7, "terminated", False), (2, "truncated", False)],
    [(3, "terminated", False), (7, "running", True), (6, "truncated", False), (7, "running", False)],
]


def learner_steps(golden, file, seed):
    rng = np.random.default_rng(seed)
    network, config = inputs.LOSS_NETWORK, STEPS_LEARNER
    online = inputs.draw_parameters(rng, inputs.rl_shapes(network), output_scale=5.0)
    target = inputs.perturb(rng, online, scale=0.1, q_scale=10.0, policy_scale=4.0)
    intrinsic = inputs.draw_parameters(
        rng, {**inputs.action_prediction_shapes(network), **inputs.rnd_shapes(network)}
    )
    batches = [inputs.draw_batch(rng, network, 7, sequences) for sequences in STEPS_SEQUENCES]
    keep = torch.stack([inputs.draw_keep(rng, inputs.blocks(network), 4) for _ in range(STEPS)])
    notes = {}

    def compute(dtype):
        learner = agent.Learner(config, network, online, target, intrinsic, dtype)
        rows, margins, shares = [], [], []
        for step in range(STEPS):
            batch = batches[step % 2]
            rl, own = learner.update(batch, keep[step])
            margins.append(checks.decision_margins(config, rl, batch))
            shares.append(checks.masked_shares(rl, batch))
            steps = agent.valid_steps(batch["length"], batch["observations"].shape[1])
            mean, std = agent.latest_mean_std(learner.rnd_moments)
            row = {name: rl[name] for name in ("loss_total", "loss_td", "loss_distillation")}
            row.update({name: own[name] for name in ("loss_action_prediction", "loss_rnd")})
            row.update({name: rl[name] for name in ("sigma", "gradient_norm", "priority")})
            row.update({f"moments.{name}": learner.td_moments[name] for name in ("first", "second")})
            row.update({f"rnd_moments.{name}": learner.rnd_moments[name].squeeze() for name in ("first", "second")})
            row.update({"rnd_mean": mean.squeeze(), "rnd_std": std.squeeze()})
            row["trust_region_share"] = 1 - rl["trust_region_keep"][steps].to(dtype).mean(dim=0)
            row["kl_share"] = 1 - rl["kl_keep"][steps].to(dtype).mean(dim=0)
            row["lambda_mean"] = rl["lambda"][steps].mean(dim=0)
            rows.append({name: x.detach() for name, x in row.items()})
        notes["margins"] = {name: min(m[name] for m in margins) for name in margins[0]}
        notes["shares"] = {name: [s[name] for s in shares] for name in shares[0]}
        series = {name: torch.stack([row[name] for row in rows]) for name in rows[0]}
        trained = {name: x for name, x in learner.intrinsic.items() if not name.startswith("rnd.target")}
        end = {
            **prefixed("end.online.", learner.online),
            **prefixed("end.ema.", learner.ema),
            **prefixed("end.target.", learner.target),
            **prefixed("end.", trained),
        }
        return {**series, **{name: x.detach() for name, x in end.items()}}

    outputs, double, note = in_both_precisions(file, compute)
    checks.check_changes(file, online, outputs, double)
    margin = checks.check_margins(file, notes["margins"])
    clipped = int((outputs["gradient_norm"] > config["gradient_clip"]).sum())
    assert 2 <= clipped <= STEPS - 2, f"{file}: {clipped} of {STEPS} updates are clipped"
    for mask, shares in notes["shares"].items():
        active = sum(checks.MASKED[0] < share < checks.MASKED[1] for share in shares)
        assert active >= 3, f"{file}: {mask} is active on only {active} updates"
    tensors = {
        **prefixed("start.online.", online),
        **prefixed("start.target.", target),
        **prefixed("start.", intrinsic),
        **prefixed("batch0.", batches[0]),
        **prefixed("batch1.", batches[1]),
        "keep": keep,
        **outputs,
    }
    note = f"{note}; margin {margin:.1e}; {clipped} of {STEPS} updates clipped"
    golden.write(file, "learner_steps", tensors, note, network=network, learner=config)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", help="where the files go")
    golden = Golden(parser.parse_args().directory)
    torch.set_num_threads(1)

    forward_torso(golden, "forward_torso_relu", 1, TORSO_RELU)
    forward_torso(golden, "forward_torso_gelu", 2, TORSO_GELU)
    forward_torso(golden, "forward_torso_dqn", 3, TORSO_DQN)
    forward_network(golden, "forward_network", 4)
    forward_parts(golden, "forward_parts", 7)
    forward_action_prediction(golden, "forward_action_prediction", 5)
    forward_rnd(golden, "forward_rnd", 6)
    # Seeds for which every decision of every case is clear; the checks fail for others.
    given = LossInputs(73)
    given.write(golden, "loss_inputs")
    for file, changes in LOSS_CASES.items():
        loss_case(golden, file, given, changes)
    loss_intrinsic(golden, "loss_intrinsic", given)
    learner_steps(golden, "learner_steps", 0)
    for name in ("r2d2", "ngu", "agent57"):
        make_agents.agent_steps(golden, name)
    golden.finish()


if __name__ == "__main__":
    main()
