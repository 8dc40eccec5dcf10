"""The networks of the agent in plain PyTorch.

A network is a dictionary from parameter name to tensor, `p`, so the names of a checkpoint are the names used here, and a
description with what the parameters do not show, such as strides. Everything follows the dtype of the parameters. The
golden files that the Rust code is tested against are computed with these functions; `tests/golden/README.md` lists the
decisions behind them.

Shapes: B sequences, T observations per sequence, F frames, N policies, A actions, K residual blocks.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

#: Parameters by name.
Parameters = Mapping[str, Tensor]
#: What the parameters of a network do not show.
Description = Mapping[str, Any]
#: Arrays of observations, or the parts by name, in order, where an observation has several.
Observations = Tensor | Mapping[str, Tensor]

# Gains that keep the variance of a unit normal through the activation.
RELU_GAIN = 1.7139588594436646
GELU_GAIN = 1.7015043497085571

# ε of the value rescaling h.
RESCALING_EPSILON = 0.001


def each_part(function: Callable[[Tensor], Tensor], observations: Observations) -> Observations:
    """Applies a function to observations, or to each of their parts."""
    if isinstance(observations, Mapping):
        return {name: function(part) for name, part in observations.items()}
    return function(observations)


# ------------------------------------------------------------------------------------------------------------- layers


def linear(p: Parameters, name: str, x: Tensor) -> Tensor:
    """W x + b."""
    return F.linear(x, p[name + ".weight"], p[name + ".bias"])


def convolution(p: Parameters, name: str, x: Tensor, stride: int, padding: int) -> Tensor:
    """A plain convolution."""
    return F.conv2d(x, p[name + ".weight"], p[name + ".bias"], stride=stride, padding=padding)


def standardised_kernel(p: Parameters, name: str) -> Tensor:
    """gain (W - mean) / sqrt(max(var fan_in, 1e-4)), mean and variance per output channel."""
    weight = p[name + ".weight"]
    fan_in = weight[0].numel()
    variance, mean = torch.var_mean(weight, dim=(1, 2, 3), correction=0, keepdim=True)
    gain = p[name + ".gain"].reshape(-1, 1, 1, 1)
    return gain * (weight - mean) / torch.sqrt(torch.clamp(variance * fan_in, min=1e-4))


def standardised_convolution(p: Parameters, name: str, x: Tensor, stride: int, padding: int) -> Tensor:
    """A convolution with the standardised kernel."""
    return F.conv2d(x, standardised_kernel(p, name), p[name + ".bias"], stride=stride, padding=padding)


def layer_norm(p: Parameters, name: str, x: Tensor) -> Tensor:
    """Layer norm over a frame, with a gain and a bias per channel."""
    return F.group_norm(x, 1, p[name + ".gain"], p[name + ".bias"])


def scaled_activation(kind: str, x: Tensor) -> Tensor:
    """relu or gelu, with the gain that keeps the variance."""
    if kind == "gelu":
        return GELU_GAIN * F.gelu(x)
    return RELU_GAIN * F.relu(x)


def encoder(p: Parameters, name: str, convolutions: Sequence[Sequence[int]], x: Observations) -> Tensor:
    """Convolutions `[channels, kernel, stride, padding = 0]` of images, linear layers of vectors; relu after each.

    The outputs of several parts follow one another.
    """
    if isinstance(x, Mapping):
        return torch.cat([encoder(p, f"{name}.{part}", convolutions, x[part]) for part in x], dim=-1)
    if x.dim() == 2:
        i = 1
        while f"{name}.linear{i}.weight" in p:
            x = F.relu(linear(p, f"{name}.linear{i}", x))
            i += 1
        return x
    for i, (_, _, stride, *padding) in enumerate(convolutions):
        x = F.relu(convolution(p, f"{name}.conv{i + 1}", x, stride, *(padding or [0])))
    return x.flatten(1)


# ------------------------------------------------------------------------------------------------------------- torsos


def pixels(frames: Tensor, dtype: torch.dtype) -> Tensor:
    """Bytes as the networks see them: between 0 and 1."""
    return frames.to(dtype) / 255


def normalised(frames: Tensor, dtype: torch.dtype) -> Tensor:
    """Frames as the networks see them: bytes between 0 and 1, floats as they are."""
    return pixels(frames, dtype) if frames.dtype == torch.uint8 else frames.to(dtype)


def has_shortcut_convolution(stride: int, channels_in: int, channels_out: int) -> bool:
    """Whether a residual block changes the shape of its input."""
    return stride > 1 or channels_in != channels_out


def nfnet_torso(
    p: Parameters, torso: Description, x: Tensor, keep: Tensor | None, prefix: str = "torso"
) -> Tensor:
    """Normalizer-free ResNet. x [F, C, H, W], keep [K, F] of 0/1 or None for all; returns [F, C H W]."""
    alpha = torso["alpha"]
    kernel = p[prefix + ".stem.weight"].shape[-1]
    x = standardised_convolution(p, prefix + ".stem", x, stride=torso.get("stem_stride", 4), padding=kernel // 2)
    index = 0
    for s, stage in enumerate(torso["stages"]):
        expected_std = 1.0
        for b in range(stage["blocks"]):
            name = f"{prefix}.stage{s}.block{b}"
            stride = stage["stride"] if b == 0 else 1
            a = scaled_activation(torso["activation"], x) / expected_std

            if has_shortcut_convolution(stride, x.shape[1], stage["channels"]):
                # A window beyond the edge averages only the pixels inside.
                pooled = F.avg_pool2d(a, stride, stride, ceil_mode=True, count_include_pad=False) * stride
                shortcut = standardised_convolution(p, name + ".shortcut", pooled, stride=1, padding=1)
            else:
                shortcut = x

            branch = standardised_convolution(p, name + ".conv1", a, stride=stride, padding=1)
            branch = scaled_activation(torso["activation"], branch)
            branch = standardised_convolution(p, name + ".conv2", branch, stride=1, padding=1)
            squeezed = F.relu(linear(p, name + ".squeeze_excite.down", branch.mean(dim=(2, 3))))
            gate = torch.sigmoid(linear(p, name + ".squeeze_excite.up", squeezed))
            branch = 2 * gate[:, :, None, None] * branch

            if keep is not None:
                branch = keep[index].reshape(-1, 1, 1, 1) * branch
            x = shortcut + alpha * p[name + ".skip_gain"] * branch
            expected_std = math.sqrt(expected_std**2 + alpha**2)
            index += 1
    return scaled_activation(torso["activation"], x).flatten(1)


def resnet_torso(p: Parameters, torso: Description, x: Tensor, prefix: str = "torso") -> Tensor:
    """The same stages with layer norm; returns [F, C H W]."""
    kernel = p[prefix + ".stem.weight"].shape[-1]
    x = convolution(p, prefix + ".stem", x, torso.get("stem_stride", 4), kernel // 2)
    for s, stage in enumerate(torso["stages"]):
        for b in range(stage["blocks"]):
            name = f"{prefix}.stage{s}.block{b}"
            stride = stage["stride"] if b == 0 else 1
            a = F.relu(layer_norm(p, name + ".norm1", x))
            h = convolution(p, name + ".conv1", a, stride, 1)
            h = convolution(p, name + ".conv2", F.relu(layer_norm(p, name + ".norm2", h)), 1, 1)
            if has_shortcut_convolution(stride, x.shape[1], stage["channels"]):
                x = convolution(p, name + ".shortcut", a, stride, 0)
            x = x + h
    return F.relu(layer_norm(p, prefix + ".norm", x)).flatten(1)


def dqn_torso(p: Parameters, torso: Description, x: Tensor, prefix: str = "torso") -> Tensor:
    """The convolutions of DQN and a linear layer; returns [F, output]."""
    return F.relu(linear(p, prefix + ".linear", encoder(p, prefix, torso["convolutions"], x)))


def any_torso(
    p: Parameters, torso: Description, x: Observations, keep: Tensor | None = None, prefix: str = "torso"
) -> Tensor:
    """The described network for images [F, C, H, W], linear layers for vectors [F, n]; one network per part."""
    if isinstance(x, Mapping):
        return torch.cat([any_torso(p, torso, part, keep, f"{prefix}.{name}") for name, part in x.items()], dim=-1)
    if x.dim() == 2:
        return encoder(p, prefix, (), x)
    if torso["kind"] == "resnet":
        return resnet_torso(p, torso, x, prefix)
    if torso["kind"] == "dqn":
        return dqn_torso(p, torso, x, prefix)
    return nfnet_torso(p, torso, x, keep, prefix)


# ---------------------------------------------------------------------------------------------- core, features, heads


def rescale(x: Tensor, epsilon: float = RESCALING_EPSILON) -> Tensor:
    """h(x) = sgn(x) (sqrt(|x|+1) - 1) + ε x."""
    return torch.sign(x) * (torch.sqrt(torch.abs(x) + 1) - 1) + epsilon * x


def rescale_inverse(x: Tensor, epsilon: float = RESCALING_EPSILON) -> Tensor:
    """h⁻¹(x) = sgn(x) (((sqrt(1 + 4ε(|x|+1+ε)) - 1) / 2ε)² - 1).

    (sqrt(1+z) - 1) / 2ε is written as z / (2ε (sqrt(1+z) + 1)), which avoids the cancellation that costs the
    printed form four digits in f32.
    """
    lifted = torch.abs(x) + 1 + epsilon
    root = 2 * lifted / (torch.sqrt(1 + 4 * epsilon * lifted) + 1)
    return torch.sign(x) * (root * root - 1)


def lstm(p: Parameters, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """inputs [B, T, I], state [B, 2H] (h then c); returns outputs [B, T, H] and the state after the last step."""
    h, c = state.chunk(2, dim=1)
    outputs = []
    for t in range(inputs.shape[1]):
        gates = F.linear(inputs[:, t], p["lstm.weight_ih"], p["lstm.bias_ih"])
        gates = gates + F.linear(h, p["lstm.weight_hh"], p["lstm.bias_hh"])
        i, f, g, o = gates.chunk(4, dim=1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        outputs.append(h)
    return torch.stack(outputs, dim=1), torch.cat([h, c], dim=1)


def core(p: Parameters, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """The LSTM or, without recurrence, a linear layer with a relu, whose state is empty."""
    if "core.weight" in p:
        return F.relu(linear(p, "core", inputs)), state
    return lstm(p, inputs, state)


def stream(p: Parameters, name: str, x: Tensor) -> Tensor:
    """Two hidden layers and an output."""
    x = F.relu(linear(p, name + ".hidden1", x))
    x = F.relu(linear(p, name + ".hidden2", x))
    return linear(p, name + ".output", x)


def by_policy(x: Tensor, policies: int) -> Tensor:
    """[..., N A] as [..., N, A]."""
    return x.reshape(*x.shape[:-1], policies, -1)


def dueling(p: Parameters, name: str, x: Tensor, policies: int) -> Tensor:
    """Q = value + advantage - mean over actions of advantage; [..., N, A]."""
    value = stream(p, name + ".value", x).unsqueeze(-1)
    advantage = by_policy(stream(p, name + ".advantage", x), policies)
    return value + advantage - advantage.mean(dim=-1, keepdim=True)


def rl_network(
    p: Parameters, network: Description, batch: Mapping[str, Any], keep: Tensor | None
) -> dict[str, Tensor]:
    """The RL network on B sequences of T observations. keep [K, B] of 0/1, or None to keep every branch.

    Entry t of the arrays with T+1 entries is the step before observation t, which the network reads there. Observations
    are bytes, or already what the network sees.
    """
    dtype = p["features.linear.weight"].dtype
    observations = batch["observations"]
    parts = list(observations.values()) if isinstance(observations, Mapping) else [observations]
    sequences, trace = parts[0].shape[:2]
    frames = each_part(lambda x: normalised(x.flatten(0, 1), dtype), observations)
    # One mask per sequence, for all its frames.
    keep_frames = None if keep is None else keep.to(dtype).repeat_interleave(trace, dim=1)
    torso = any_torso(p, network["torso"], frames, keep_frames).reshape(sequences, trace, -1)

    action = F.embedding(batch["action"][:, :trace], p["features.action_embedding.weight"])
    rewards = [
        rescale(batch[name][:, :trace].to(dtype)).unsqueeze(-1)
        for name in ("reward_extrinsic", "reward_ngu", "reward_rnd", "reward_episodic")
    ]
    embedding = batch["embedding"][:, :trace].to(dtype)
    features = F.relu(linear(p, "features.linear", torch.cat([action, *rewards, embedding], dim=-1)))

    core_input = torch.cat([torso, features], dim=-1)
    core_output, state_final = core(p, core_input, batch["state"].to(dtype))
    head_input = torch.cat([core_output, core_input], dim=-1)

    policies = network["policies"]
    out = {"torso": torso, "features": features, "lstm": core_output, "state_final": state_final}
    out["q_extrinsic"] = dueling(p, "heads.extrinsic", head_input, policies)
    if network["q_heads"] == 2:
        out["q_intrinsic"] = dueling(p, "heads.intrinsic", head_input, policies)
    if network["policy_head"]:
        out["logits"] = by_policy(stream(p, "heads.policy", head_input), policies)
    return out


def combine(kind: str, extrinsic: Tensor, intrinsic: Tensor, beta: Tensor) -> Tensor:
    """Q_j of both heads [..., N, A]: `sum` is Qe + β_j Qi, `returns` is h(h⁻¹(Qe) + β_j h⁻¹(Qi))."""
    beta = beta.reshape(-1, 1)
    if kind == "sum":
        return extrinsic + beta * intrinsic
    return rescale(rescale_inverse(extrinsic) + beta * rescale_inverse(intrinsic))


def beta_ladder(policies: int, beta_im: float) -> list[float]:
    """β_0 = 0, β_{N-1} = β_IM, else β_i = β_IM sigmoid(8 (2i-(N-2)) / (N-2))."""

    def beta(i: int) -> float:
        if i == 0:
            return 0.0
        if i == policies - 1:
            return beta_im
        return beta_im / (1 + math.exp(-8 * (2 * i - (policies - 2)) / (policies - 2)))

    return [beta(i) for i in range(policies)]


# -------------------------------------------------------------------------------------------------- intrinsic networks


def action_embedding(p: Parameters, network: Description, x: Observations) -> Tensor:
    """f(x), the controllable-state embedding."""
    encoded = encoder(p, "action_prediction", network["intrinsic_convolutions"], x)
    return linear(p, "action_prediction.embedding", encoded)


def action_prediction(p: Parameters, network: Description, x: Observations, x_next: Observations) -> Tensor:
    """Logits of the action that led from one frame to the next."""
    pair = torch.cat([action_embedding(p, network, x), action_embedding(p, network, x_next)], dim=-1)
    return linear(p, "action_prediction.output", F.relu(linear(p, "action_prediction.hidden", pair)))


def rnd_output(p: Parameters, network: Description, side: str, x: Observations) -> Tensor:
    """ĝ(x) of the side `predictor`, g(x) of the side `target`."""
    return linear(p, f"rnd.{side}.output", encoder(p, f"rnd.{side}", network["intrinsic_convolutions"], x))


def rnd_error(p: Parameters, network: Description, x: Observations) -> Tensor:
    """||ĝ(x) - g(x)||²; g is frozen."""
    target = rnd_output(p, network, "target", x).detach()
    return ((rnd_output(p, network, "predictor", x) - target) ** 2).sum(dim=-1)
