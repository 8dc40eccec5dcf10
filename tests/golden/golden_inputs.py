"""Synthetic inputs of the golden cases: network descriptions, parameters, batches.

Drawn by NumPy's seeded generator, so equal on every machine. Sizes are small, and odd where that matters.
"""

import math

import numpy as np
import torch

# The two-stage torso of the loss cases: 21x17 -> stem 6x5 -> 6x5 -> 3x3, with a partial last pooling column.
LOSS_NETWORK = {
    "observation": [1, 21, 17],
    "actions": 4,
    "policies": 4,
    "q_heads": 2,
    "policy_head": True,
    "torso": {
        "kind": "nfnet",
        "activation": "relu",
        "alpha": 0.2,
        "squeeze_excite_ratio": 0.5,
        "stem_channels": 4,
        "stages": [
            {"blocks": 2, "channels": 6, "stride": 1},
            {"blocks": 2, "channels": 8, "stride": 2},
        ],
    },
    "action_embedding": 32,
    "features": 12,
    "lstm": 16,
    "hidden": 16,
    "embedding": 32,
    "action_prediction_hidden": 128,
    "rnd_output": 128,
    "intrinsic_convolutions": [[4, 5, 2], [5, 3, 2], [6, 2, 1]],
}


def blocks(network):
    return sum(stage["blocks"] for stage in network["torso"]["stages"])


# -------------------------------------------------------------------------------------------------------- parameters


def linear_shapes(name, inputs, outputs):
    return {f"{name}.weight": (outputs, inputs), f"{name}.bias": (outputs,)}


def convolution_shapes(name, inputs, outputs, kernel):
    return {f"{name}.weight": (outputs, inputs, kernel, kernel), f"{name}.bias": (outputs,)}


def standardised_shapes(name, inputs, outputs, kernel):
    return {**convolution_shapes(name, inputs, outputs, kernel), f"{name}.gain": (outputs,)}


def nfnet_shapes(observation, torso, prefix="torso"):
    """Parameter shapes of the torso and the length of its output."""
    channels, height, width = observation
    shapes = standardised_shapes(prefix + ".stem", channels, torso["stem_channels"], 7)
    channels, height, width = torso["stem_channels"], math.ceil(height / 4), math.ceil(width / 4)
    for s, stage in enumerate(torso["stages"]):
        for b in range(stage["blocks"]):
            name, out = f"{prefix}.stage{s}.block{b}", stage["channels"]
            stride = stage["stride"] if b == 0 else 1
            squeezed = max(1, int(out * torso["squeeze_excite_ratio"]))
            shapes.update(standardised_shapes(name + ".conv1", channels, out, 3))
            shapes.update(standardised_shapes(name + ".conv2", out, out, 3))
            if stride > 1 or channels != out:
                shapes.update(standardised_shapes(name + ".shortcut", channels, out, 3))
            shapes.update(linear_shapes(name + ".squeeze_excite.down", out, squeezed))
            shapes.update(linear_shapes(name + ".squeeze_excite.up", squeezed, out))
            shapes[name + ".skip_gain"] = (1,)
            channels, height, width = out, math.ceil(height / stride), math.ceil(width / stride)
    return shapes, channels * height * width


def stack_shapes(name, observation, convolutions):
    """Parameter shapes of convolutions without padding and the length of their output."""
    channels, height, width = observation
    shapes = {}
    for i, (out, kernel, stride) in enumerate(convolutions):
        shapes.update(convolution_shapes(f"{name}.conv{i + 1}", channels, out, kernel))
        channels, height, width = out, (height - kernel) // stride + 1, (width - kernel) // stride + 1
    return shapes, channels * height * width


def dqn_shapes(observation, torso):
    shapes, size = stack_shapes("torso", observation, torso["convolutions"])
    return {**shapes, **linear_shapes("torso.linear", size, torso["output"])}


def hidden_shapes(name, inputs, widths):
    """Parameter shapes of linear layers and the length of their output."""
    shapes = {}
    for i, width in enumerate(widths):
        shapes.update(linear_shapes(f"{name}.linear{i + 1}", inputs, width))
        inputs = width
    return shapes, inputs


def channels_first(part):
    height, width, channels = part["shape"]
    return [channels, height, width]


def torso_shapes(network):
    """Parameter shapes of the torso, or of one for each part of an observation, and the length of the output."""
    if "parts" not in network:
        return nfnet_shapes(network["observation"], network["torso"])
    shapes, size = {}, 0
    for part in network["parts"]:
        name = f"torso.{part['name']}"
        if len(part["shape"]) == 1:
            own, length = hidden_shapes(name, part["shape"][0], network["torso"]["hidden"])
        else:
            own, length = nfnet_shapes(channels_first(part), network["torso"], name)
        shapes.update(own)
        size += length
    return shapes, size


def encoder_shapes(name, network):
    """Parameter shapes of an encoder of f or RND, or of one for each part, and the length of the output."""
    if "parts" not in network:
        return stack_shapes(name, network["observation"], network["intrinsic_convolutions"])
    shapes, size = {}, 0
    for part in network["parts"]:
        prefix = f"{name}.{part['name']}"
        if len(part["shape"]) == 1:
            own, length = hidden_shapes(prefix, part["shape"][0], network["torso"]["hidden"])
        else:
            own, length = stack_shapes(prefix, channels_first(part), network["intrinsic_convolutions"])
        shapes.update(own)
        size += length
    return shapes, size


def rl_shapes(network):
    shapes, torso = torso_shapes(network)
    actions, policies = network["actions"], network["policies"]
    shapes["features.action_embedding.weight"] = (actions, network["action_embedding"])
    feature_inputs = network["action_embedding"] + 4 + network["embedding"]
    shapes.update(linear_shapes("features.linear", feature_inputs, network["features"]))
    core, hidden = torso + network["features"], network["lstm"]
    shapes["lstm.weight_ih"], shapes["lstm.weight_hh"] = (4 * hidden, core), (4 * hidden, hidden)
    shapes["lstm.bias_ih"] = shapes["lstm.bias_hh"] = (4 * hidden,)
    streams = {"extrinsic.value": policies, "extrinsic.advantage": policies * actions}
    if network["q_heads"] == 2:
        streams.update({"intrinsic.value": policies, "intrinsic.advantage": policies * actions})
    if network["policy_head"]:
        streams["policy"] = policies * actions
    for name, out in streams.items():
        shapes.update(linear_shapes(f"heads.{name}.hidden1", hidden + core, network["hidden"]))
        shapes.update(linear_shapes(f"heads.{name}.hidden2", network["hidden"], network["hidden"]))
        shapes.update(linear_shapes(f"heads.{name}.output", network["hidden"], out))
    return shapes


def action_prediction_shapes(network):
    name = "action_prediction"
    shapes, size = encoder_shapes(name, network)
    shapes.update(linear_shapes(f"{name}.embedding", size, network["embedding"]))
    shapes.update(linear_shapes(f"{name}.hidden", 2 * network["embedding"], network["action_prediction_hidden"]))
    shapes.update(linear_shapes(f"{name}.output", network["action_prediction_hidden"], network["actions"]))
    return shapes


def rnd_shapes(network):
    shapes = {}
    for side in ("target", "predictor"):
        name = f"rnd.{side}"
        stack, size = encoder_shapes(name, network)
        shapes.update({**stack, **linear_shapes(f"{name}.output", size, network["rnd_output"])})
    return shapes


def draw_parameters(rng, shapes, output_scale=1.0):
    """Random parameters of a trained network's size: no gain is 1, no bias and no skip gain is 0.

    output_scale spreads the Q values and logits so that decisions between them are clear.
    """
    parameters = {}
    for name, shape in shapes.items():
        if name.endswith("skip_gain"):
            x = rng.uniform(0.5, 1.5, shape)
        elif name.endswith("gain"):
            x = rng.uniform(0.6, 1.4, shape)
        elif "bias" in name:
            x = rng.normal(0.0, 0.1, shape)
        elif name == "features.action_embedding.weight":
            x = rng.normal(0.0, 1.0, shape)
        else:
            x = rng.normal(0.0, 1.0, shape) * math.sqrt(2 / math.prod(shape[1:]))
        if name.startswith("heads.") and ".output." in name:
            x = x * output_scale
        parameters[name] = torch.from_numpy(np.asarray(x, dtype=np.float32))
    return parameters


def perturb(rng, parameters, scale, q_scale, policy_scale):
    """A network close to the given one; the outputs of the heads also move by q_scale and policy_scale."""
    perturbed = {}
    for name, x in parameters.items():
        noise = scale * float(x.std() if x.numel() > 1 else 0.1) * rng.normal(0.0, 1.0, tuple(x.shape))
        if name.startswith("heads.") and name.endswith("output.bias"):
            output_scale = policy_scale if name.startswith("heads.policy") else q_scale
            noise = noise + output_scale * rng.normal(0.0, 1.0, tuple(x.shape))
        perturbed[name] = torch.from_numpy(x.numpy() + noise.astype(np.float32))
    return perturbed


# ----------------------------------------------------------------------------------------------------------- batches


def draw_frames(rng, count, observation):
    """Frames of 4x4 patches with noise and varying brightness."""
    _, height, width = observation
    patches = rng.uniform(0, 1, (count, math.ceil(height / 4), math.ceil(width / 4)))
    frames = np.kron(patches, np.ones((1, 4, 4)))[:, :height, :width]
    frames = frames * rng.uniform(0.3, 1.0, (count, 1, 1)) + rng.uniform(0, 0.1, (count, height, width))
    return torch.from_numpy(np.clip(frames * 255, 0, 255).astype(np.uint8)[:, None])


def draw_parts(rng, count, parts):
    """Frames of each part, images with the channels last."""
    drawn = {}
    for part in parts:
        if part["kind"] == "f32":
            values = rng.normal(0.0, 1.0, (count, *part["shape"])).astype(np.float32)
        else:
            height, width, channels = part["shape"]
            planes = [draw_frames(rng, count, [1, height, width]).numpy()[:, 0] for _ in range(channels)]
            values = np.stack(planes, axis=-1)
        drawn[part["name"]] = values
    return drawn


def in_bytes(drawn):
    """Frames of all parts as flat observations: each part begins at a multiple of four bytes."""
    columns = []
    for values in drawn.values():
        flat = np.ascontiguousarray(values).reshape(len(values), -1).view(np.uint8)
        columns.append(np.pad(flat, ((0, 0), (0, -flat.shape[1] % 4))))
    return np.concatenate(columns, axis=1)


def draw_keep(rng, block_count, sequences):
    """Drops one sequence in even blocks and two in odd ones."""
    keep = np.ones((block_count, sequences), dtype=np.uint8)
    for k in range(block_count):
        keep[k, rng.choice(sequences, size=1 + k % 2, replace=False)] = 0
    return torch.from_numpy(keep)


def draw_batch(rng, network, trace, sequences):
    """A batch as replay returns it. sequences: per sequence (length, end, starts an episode).

    end is "terminated" (discount 0 on the last action), "truncated" or "running" (both bootstrap).
    """
    count, actions, policies = len(sequences), network["actions"], network["policies"]
    entries = trace + 1

    def uniform(low, high, *shape):
        return rng.uniform(low, high, shape).astype(np.float32)

    reward_rnd = np.maximum(uniform(0.5, 4.0, count, entries), np.float32(1.0))
    reward_episodic = uniform(0.0, 0.8, count, entries)
    rare = rng.uniform(size=(count, entries)) < 0.6
    batch = {
        "observations": draw_frames(rng, count * trace, network["observation"])
        .reshape(count, trace, *network["observation"])
        .numpy(),
        "action": rng.integers(0, actions, (count, entries)),
        "behaviour_probability": uniform(0.2, 1.0, count, entries),
        "reward_extrinsic": (rng.normal(0.0, 3.0, (count, entries)) * rare).astype(np.float32),
        "reward_ngu": reward_rnd * reward_episodic,
        "reward_rnd": reward_rnd,
        "reward_episodic": reward_episodic,
        "discount": np.ones((count, entries), dtype=np.float32),
        "embedding": rng.normal(0.0, 1.0, (count, entries, network["embedding"])).astype(np.float16),
        "length": np.array([length for length, _, _ in sequences]),
        "policy": rng.permutation(np.arange(count) % policies),
        "state": rng.normal(0.0, 0.5, (count, 2 * network["lstm"])).astype(np.float32),
        "weight": uniform(0.3, 1.0, count),
    }
    batch["weight"] /= batch["weight"].max()
    per_entry = [name for name, x in batch.items() if x.ndim >= 2 and x.shape[1] == entries and name != "state"]
    for b, (length, end, starts) in enumerate(sequences):
        if end == "terminated":
            batch["discount"][b, length - 1] = 0  # entry of step length-2, the last action
        for name in ("action", "behaviour_probability", "reward_extrinsic", "discount"):
            batch[name][b, length] = 0  # the last observation only bootstraps
        for name in per_entry:
            batch[name][b, length + 1 :] = 0
            if starts:
                batch[name][b, 0] = 0
        batch["observations"][b, length:] = 0
        if starts:
            batch["state"][b] = 0
    return {name: torch.from_numpy(np.ascontiguousarray(x)) for name, x in batch.items()}
