"""The network of the paper preset arranged for speed: what the golden reference does, from the same parameters.

- Activations are bf16 and channels-last, parameters f32. Once per pass, kernels are standardised in f32 with every
  constant factor (activation gain, expected deviation, pooling gain, 1/255) folded in, and then cast.
- The 7x7 stem of stride 4 on one channel is a 2x2 convolution on the 16 channels of 4x4 pixels.
- Gate, factor 2, keep mask, skip gain and alpha are one factor per frame and channel, applied by one addcmul.
- The heads' five streams run as batched matrix products.
- Eager has two hand-written gradients (convolution with relu, gated residual); the compiler finds its own fusions.

Shapes: F frames, N policies, A actions, K residual blocks.
"""

import math

import torch
import torch.nn.functional as F

from meme_rl.networks import RELU_GAIN, rescale, standardised_kernel

# The streams with an output per action, then those with an output per policy.
STREAMS = ("extrinsic.advantage", "intrinsic.advantage", "policy", "extrinsic.value", "intrinsic.value")


def channels_last(x):
    return x.contiguous(memory_format=torch.channels_last)


def residual_blocks(torso):
    """Name, stride and expected deviation of the input of each residual block."""
    for s, stage in enumerate(torso["stages"]):
        for b in range(stage["blocks"]):
            stride = stage["stride"] if b == 0 else 1
            yield f"torso.stage{s}.block{b}", stride, math.sqrt(1 + b * torso["alpha"] ** 2)


def weights(p, network, dtype):
    """The parameters as one pass uses them, in the type it computes in; pairs of weight and bias."""

    def pair(name):
        return p[name + ".weight"].to(dtype), p[name + ".bias"].to(dtype)

    def convolution(name, folded):
        return channels_last((standardised_kernel(p, name) * folded).to(dtype)), p[name + ".bias"].to(dtype)

    def stacked(layer, streams):
        layers = [pair(f"heads.{stream}.{layer}") for stream in streams]
        return torch.stack([weight for weight, _ in layers]).mT, torch.stack([bias for _, bias in layers])[:, None]

    # The 7x7 kernel as 8x8, and that as 2x2 on the 16 channels of 4x4 pixels.
    stem = F.pad(standardised_kernel(p, "torso.stem") / 255, (0, 1, 0, 1))
    stem = stem.reshape(-1, 2, 4, 2, 4).permute(0, 2, 4, 1, 3).reshape(-1, 16, 2, 2)
    blocks = []
    for name, stride, expected_std in residual_blocks(network["torso"]):
        gain = RELU_GAIN / expected_std
        block = {
            "conv1": convolution(name + ".conv1", gain),
            "conv2": convolution(name + ".conv2", RELU_GAIN),
            "down": pair(name + ".squeeze_excite.down"),
            "up": pair(name + ".squeeze_excite.up"),
            "scale": (p[name + ".skip_gain"] * (2 * network["torso"]["alpha"])).to(dtype),
        }
        if name + ".shortcut.weight" in p:
            block["shortcut"] = convolution(name + ".shortcut", gain * stride)
        blocks.append(block)
    first = [pair(f"heads.{stream}.hidden1") for stream in STREAMS]
    return {
        "stem": (channels_last(stem.to(dtype)), p["torso.stem.bias"].to(dtype)),
        "blocks": blocks,
        "embedding": p["features.action_embedding.weight"].to(dtype),
        "features": pair("features.linear"),
        "hidden1": (torch.cat([weight for weight, _ in first]), torch.cat([bias for _, bias in first])),
        "hidden2": stacked("hidden2", STREAMS),
        "advantages": stacked("output", STREAMS[:3]),
        "values": stacked("output", STREAMS[3:]),
    }


class ConvolutionRelu(torch.autograd.Function):
    """relu(conv3x3(x)) in one cuDNN call; the backward pass keeps the result alone."""

    @staticmethod
    def forward(ctx, x, weight, bias, stride):
        if x.is_cuda:
            y = torch.cudnn_convolution_relu(x, weight, bias, (stride, stride), (1, 1), (1, 1), 1)
        else:
            y = F.relu_(F.conv2d(x, weight, bias, stride, 1))
        ctx.save_for_backward(x, weight, y)
        ctx.stride = stride
        return y

    @staticmethod
    def backward(ctx, gradient):
        x, weight, y = ctx.saved_tensors
        gradient = torch.ops.aten.threshold_backward(gradient, y, 0)
        gradients = torch.ops.aten.convolution_backward(
            gradient, x, weight, [weight.shape[0]], [ctx.stride] * 2, [1, 1], [1, 1], False, [0, 0], 1, [True] * 3
        )
        return *gradients, None


class GatedResidual(torch.autograd.Function):
    """shortcut + h · scale · keep · sigmoid(up(relu(down(mean of h)))), two passes over h each way."""

    @staticmethod
    def forward(ctx, shortcut, h, down, down_bias, up, up_bias, scale, keep):
        mean = h.mean((2, 3))
        squeezed = F.relu_(F.linear(mean, down, down_bias))
        gate = torch.sigmoid_(F.linear(squeezed, up, up_bias))
        factor = scale if keep is None else scale * keep
        gated = gate * factor
        ctx.save_for_backward(h, down, up, mean, squeezed, gate, gated, factor, keep)
        return torch.addcmul(shortcut, h, gated[:, :, None, None])

    @staticmethod
    def backward(ctx, gradient):
        h, down, up, mean, squeezed, gate, gated, factor, keep = ctx.saved_tensors
        d_gated = (gradient * h).sum((2, 3), dtype=torch.float32)
        gate32 = gate.float()
        d_factor = d_gated * gate32
        d_scale = (d_factor if keep is None else d_factor * keep).sum().reshape(1).to(h.dtype)
        d_up = (d_gated * factor * gate32 * (1 - gate32)).to(h.dtype)
        d_down = torch.ops.aten.threshold_backward(d_up @ up, squeezed, 0)
        d_mean = (d_down @ down) / (h.shape[2] * h.shape[3])
        d_h = torch.addcmul(d_mean[:, :, None, None], gradient, gated[:, :, None, None])
        return gradient, d_h, d_down.t() @ mean, d_down.sum(0), d_up.t() @ squeezed, d_up.sum(0), d_scale, None


def residual_block(x, w, stride, keep):
    a = F.relu(x)
    shortcut = x
    if "shortcut" in w:
        pooled = F.avg_pool2d(a, stride, stride, ceil_mode=True, count_include_pad=False)
        shortcut = F.conv2d(pooled, *w["shortcut"], padding=1)
    if not torch.compiler.is_compiling():
        h = F.conv2d(ConvolutionRelu.apply(a, *w["conv1"], stride), *w["conv2"], padding=1)
        return GatedResidual.apply(shortcut, h, *w["down"], *w["up"], w["scale"], keep)
    h = F.conv2d(F.relu(F.conv2d(a, *w["conv1"], stride=stride, padding=1)), *w["conv2"], padding=1)
    gate = torch.sigmoid(F.linear(F.relu(F.linear(h.mean((2, 3)), *w["down"])), *w["up"]))
    factor = w["scale"] if keep is None else w["scale"] * keep
    return torch.addcmul(shortcut, h, (gate * factor)[:, :, None, None])


def torso(frames, keep, w, strides):
    """frames u8 [F, H, W], keep [K, F, 1] of 0/1 or None; returns [F, C H W]."""
    count, height, width = frames.shape
    rows, columns = -(-height // 4) + 1, -(-width // 4) + 1
    x = F.pad(frames, (3, 4 * columns - width - 3, 3, 4 * rows - height - 3))
    x = x.reshape(count, rows, 4, columns, 4).permute(0, 1, 3, 2, 4)
    x = x.to(w["stem"][0].dtype, memory_format=torch.contiguous_format).reshape(count, rows, columns, 16)
    x = F.conv2d(x.permute(0, 3, 1, 2), *w["stem"])
    for k, (stride, block) in enumerate(zip(strides, w["blocks"])):
        x = residual_block(x, block, stride, None if keep is None else keep[k])
    return (F.relu(x) * RELU_GAIN).flatten(1)


def features(action, rewards, embedding, w):
    """The step before an observation: action [..], rewards [.., 4], embedding of the observation before [.., 32]."""
    dtype = w["embedding"].dtype
    parts = [F.embedding(action, w["embedding"]), rescale(rewards).to(dtype), embedding.to(dtype)]
    return F.relu(F.linear(torch.cat(parts, -1), *w["features"]))


def heads(core, core_input, w, policies):
    """Extrinsic and intrinsic Q and policy logits in f32, each [F, N, A]."""
    hidden = F.relu(F.linear(torch.cat([core.to(core_input.dtype), core_input], -1), *w["hidden1"]))
    hidden = hidden.unflatten(-1, (len(STREAMS), -1)).transpose(0, 1)
    weight, bias = w["hidden2"]
    hidden = F.relu(torch.baddbmm(bias, hidden, weight))
    weight, bias = w["advantages"]
    advantages = torch.baddbmm(bias, hidden[:3], weight).float().unflatten(-1, (policies, -1))
    weight, bias = w["values"]
    values = torch.baddbmm(bias, hidden[3:], weight).float().unsqueeze(-1)
    q = advantages[:2] - advantages[:2].mean(-1, keepdim=True) + values
    return q[0], q[1], advantages[2]
