"""The networks of the agent in plain PyTorch.

A network is a dictionary from parameter name to tensor, so the names in the golden files are the names used here.
Everything follows the dtype of the parameters. `README.md` beside this file lists the decisions behind it.

Shapes: B sequences, T observations per sequence, F frames, N policies, A actions, K residual blocks.
"""

import math

import torch
import torch.nn.functional as F

# Gains that keep the variance of a unit normal through the activation.
RELU_GAIN = 1.7139588594436646
GELU_GAIN = 1.7015043497085571

# ε of the value rescaling h.
RESCALING_EPSILON = 0.001


def linear(p, name, x):
    return F.linear(x, p[name + ".weight"], p[name + ".bias"])


def standardised_kernel(p, name):
    """gain (W - mean) / sqrt(max(var fan_in, 1e-4)), mean and variance per output channel."""
    weight = p[name + ".weight"]
    fan_in = weight[0].numel()
    variance, mean = torch.var_mean(weight, dim=(1, 2, 3), correction=0, keepdim=True)
    gain = p[name + ".gain"].reshape(-1, 1, 1, 1)
    return gain * (weight - mean) / torch.sqrt(torch.clamp(variance * fan_in, min=1e-4))


def standardised_convolution(p, name, x, stride, padding):
    return F.conv2d(x, standardised_kernel(p, name), p[name + ".bias"], stride=stride, padding=padding)


def scaled_activation(kind, x):
    if kind == "gelu":
        return GELU_GAIN * F.gelu(x)
    return RELU_GAIN * F.relu(x)


def has_shortcut_convolution(stride, channels_in, channels_out):
    return stride > 1 or channels_in != channels_out


def nfnet_torso(p, torso, frames, keep):
    """Normalizer-free ResNet. frames [F, 1, H, W] in 0..255, keep [K, F] of 0/1; returns [F, C H W]."""
    alpha = torso["alpha"]
    x = standardised_convolution(p, "torso.stem", frames / 255, stride=4, padding=3)
    index = 0
    for s, stage in enumerate(torso["stages"]):
        expected_std = 1.0
        for b in range(stage["blocks"]):
            name = f"torso.stage{s}.block{b}"
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

            kept = keep[index].reshape(-1, 1, 1, 1)
            x = shortcut + alpha * p[name + ".skip_gain"] * kept * branch
            expected_std = math.sqrt(expected_std**2 + alpha**2)
            index += 1
    return scaled_activation(torso["activation"], x).flatten(1)


def convolution_stack(p, name, convolutions, frames):
    """Plain convolutions without padding, relu after each; returns [F, C H W]."""
    x = frames / 255
    for i, (_, _, stride) in enumerate(convolutions):
        x = F.relu(F.conv2d(x, p[f"{name}.conv{i + 1}.weight"], p[f"{name}.conv{i + 1}.bias"], stride=stride))
    return x.flatten(1)


def dqn_torso(p, torso, frames):
    return F.relu(linear(p, "torso.linear", convolution_stack(p, "torso", torso["convolutions"], frames)))


def rescale(x, epsilon=RESCALING_EPSILON):
    """h(x) = sgn(x) (sqrt(|x|+1) - 1) + ε x."""
    return torch.sign(x) * (torch.sqrt(torch.abs(x) + 1) - 1) + epsilon * x


def rescale_inverse(x, epsilon=RESCALING_EPSILON):
    """h⁻¹(x) = sgn(x) (((sqrt(1 + 4ε(|x|+1+ε)) - 1) / 2ε)² - 1).

    (sqrt(1+z) - 1) / 2ε is written as z / (2ε (sqrt(1+z) + 1)), which avoids the cancellation that costs the
    printed form four digits in f32.
    """
    lifted = torch.abs(x) + 1 + epsilon
    root = 2 * lifted / (torch.sqrt(1 + 4 * epsilon * lifted) + 1)
    return torch.sign(x) * (root * root - 1)


def lstm(p, inputs, state):
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


def stream(p, name, x):
    x = F.relu(linear(p, name + ".hidden1", x))
    x = F.relu(linear(p, name + ".hidden2", x))
    return linear(p, name + ".output", x)


def dueling(p, name, x, policies, actions):
    """Q = value + advantage - mean over actions of advantage; [..., N, A]."""
    value = stream(p, name + ".value", x).unsqueeze(-1)
    advantage = stream(p, name + ".advantage", x).unflatten(-1, (policies, actions))
    return value + advantage - advantage.mean(dim=-1, keepdim=True)


def rl_network(p, network, batch, keep):
    """The RL network on B sequences of T observations. keep [K, B] of 0/1, or None to keep every branch.

    Entry t of the arrays with T+1 entries is the step before observation t, which the network reads there.
    """
    dtype = p["lstm.weight_ih"].dtype
    observations = batch["observations"]
    sequences, trace = observations.shape[:2]
    blocks = sum(stage["blocks"] for stage in network["torso"]["stages"])
    if keep is None:
        keep = torch.ones(blocks, sequences)
    keep_frames = keep.to(dtype).repeat_interleave(trace, dim=1)  # one mask per sequence, for all its frames
    torso = nfnet_torso(p, network["torso"], observations.flatten(0, 1).to(dtype), keep_frames)
    torso = torso.reshape(sequences, trace, -1)

    action = F.embedding(batch["action"][:, :trace], p["features.action_embedding.weight"])
    rewards = [
        rescale(batch[name][:, :trace].to(dtype)).unsqueeze(-1)
        for name in ("reward_extrinsic", "reward_ngu", "reward_rnd", "reward_episodic")
    ]
    embedding = batch["embedding"][:, :trace].to(dtype)
    features = F.relu(linear(p, "features.linear", torch.cat([action, *rewards, embedding], dim=-1)))

    core_input = torch.cat([torso, features], dim=-1)
    core, state_final = lstm(p, core_input, batch["state"].to(dtype))
    head_input = torch.cat([core, core_input], dim=-1)

    policies, actions = network["policies"], network["actions"]
    out = {"torso": torso, "features": features, "lstm": core, "state_final": state_final}
    out["q_extrinsic"] = dueling(p, "heads.extrinsic", head_input, policies, actions)
    if network["q_heads"] == 2:
        out["q_intrinsic"] = dueling(p, "heads.intrinsic", head_input, policies, actions)
    if network["policy_head"]:
        out["logits"] = stream(p, "heads.policy", head_input).unflatten(-1, (policies, actions))
    return out


def action_embedding(p, network, frames):
    """f(x), the controllable-state embedding."""
    convolved = convolution_stack(p, "action_prediction", network["intrinsic_convolutions"], frames)
    return linear(p, "action_prediction.embedding", convolved)


def action_prediction(p, network, frames, frames_next):
    """Logits of the action that led from one frame to the next."""
    pair = torch.cat([action_embedding(p, network, frames), action_embedding(p, network, frames_next)], dim=-1)
    return linear(p, "action_prediction.output", F.relu(linear(p, "action_prediction.hidden", pair)))


def rnd_output(p, network, side, frames):
    convolved = convolution_stack(p, f"rnd.{side}", network["intrinsic_convolutions"], frames)
    return linear(p, f"rnd.{side}.output", convolved)


def rnd_error(p, network, frames):
    """||ĝ(x) - g(x)||²; g is frozen."""
    target = rnd_output(p, network, "target", frames).detach()
    return ((rnd_output(p, network, "predictor", frames) - target) ** 2).sum(dim=-1)
