"""The network of the paper preset in PyTorch, arranged for speed: parameters, torso, features and heads.

- Activations are bf16 and channels-last, parameters f32. Kernels are standardised in f32 once a pass, with every
  constant factor (activation gain, expected deviation, pooling gain, 1/255) folded in, and then cast.
- The 7x7 stem of stride 4 on one channel is a 2x2 convolution on the 16 channels of 4x4 pixels.
- Gate, twice, keep mask, skip gain and alpha are one factor a frame and channel, applied by one addcmul.
- Eager has two hand-written gradients (convolution with relu, gated residual); the compiler finds its own fusions.

Shapes: F frames, N policies, A actions, K residual blocks.
"""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

from peer_loss import rescale

RELU_GAIN = 1.7139588594436646
ALPHA = 0.2
EMBEDDING = 32  # of the previous action, and of the observation by the action prediction network


class Size(NamedTuple):
    sequences: int
    trace: int
    height: int
    width: int
    stem: int
    stages: tuple  # (blocks, channels, stride)
    features: int
    core: int
    hidden: int
    policies: int
    actions: int
    environments: tuple  # batch sizes of inference


SIZES = {
    "paper": Size(64, 160, 210, 160, 64, ((2, 64, 1), (3, 128, 2), (4, 128, 2), (4, 64, 2)),
                  256, 1024, 1024, 16, 18, (128, 512)),
    "tiny": Size(5, 9, 21, 17, 4, ((2, 6, 1), (2, 8, 2)), 12, 16, 16, 4, 4, (4, 8)),
}  # fmt: skip


def channels_last(x):
    return x.contiguous(memory_format=torch.channels_last)


# -------------------------------------------------------------------------------------------------------- parameters


class StandardisedConvolution(nn.Module):
    """A kernel that is used as gain (W - mean) / sqrt(max(var fan_in, 1e-4)), times what is folded in."""

    def __init__(self, inputs, outputs, kernel, folded):
        super().__init__()
        self.fan_in, self.folded = inputs * kernel**2, folded
        weight = torch.randn(outputs, inputs, kernel, kernel) / math.sqrt(self.fan_in)
        self.weight = nn.Parameter(channels_last(weight))
        self.gain = nn.Parameter(torch.ones(outputs))
        self.bias = nn.Parameter(torch.zeros(outputs))

    def standardised(self):
        variance, mean = torch.var_mean(self.weight, dim=(1, 2, 3), correction=0, keepdim=True)
        scale = torch.rsqrt(torch.clamp(variance * self.fan_in, min=1e-4))
        return (self.weight - mean) * (scale * (self.folded * self.gain[:, None, None, None]))

    def cast(self, dtype):
        return channels_last(self.standardised().to(dtype)), self.bias.to(dtype)


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride, expected_std):
        super().__init__()
        gain = RELU_GAIN / expected_std
        self.conv1 = StandardisedConvolution(inputs, outputs, 3, gain)
        self.conv2 = StandardisedConvolution(outputs, outputs, 3, RELU_GAIN)
        changes = stride > 1 or inputs != outputs
        self.shortcut = StandardisedConvolution(inputs, outputs, 3, gain * stride) if changes else None
        self.down = nn.Linear(outputs, outputs // 2)
        self.up = nn.Linear(outputs // 2, outputs)
        self.skip_gain = nn.Parameter(torch.zeros(1))


class BlockWeights(NamedTuple):
    conv1: tuple
    conv2: tuple
    shortcut: tuple | None
    down: tuple
    up: tuple
    scale: torch.Tensor


class Weights(NamedTuple):
    """A network's parameters as one pass uses them, in the type it computes in."""

    stem: tuple
    blocks: list
    embedding: torch.Tensor
    features: tuple
    hidden1: tuple
    hidden2: tuple
    advantages: tuple
    values: tuple


class Network(nn.Module):
    """The parameters. Heads have five streams: the advantages of both values, the policy, the two state values."""

    def __init__(self, size):
        super().__init__()
        self.stem = StandardisedConvolution(1, size.stem, 7, 1 / 255)
        self.blocks = nn.ModuleList()
        channels, height, width = size.stem, -(-size.height // 4), -(-size.width // 4)
        for blocks, outputs, stride in size.stages:
            for b in range(blocks):
                expected_std = math.sqrt(1 + b * ALPHA**2)
                self.blocks.append(Block(channels, outputs, stride if b == 0 else 1, expected_std))
                channels = outputs
            height, width = -(-height // stride), -(-width // stride)
        self.embedding = nn.Embedding(size.actions, EMBEDDING)
        self.features = nn.Linear(2 * EMBEDDING + 4, size.features)
        inputs, hidden = channels * height * width + size.features, size.hidden
        self.lstm = nn.LSTM(inputs, size.core)
        self.hidden1 = nn.Linear(inputs + size.core, 5 * hidden)
        for name, streams, outputs in (
            ("hidden2", 5, hidden),
            ("advantages", 3, size.policies * size.actions),
            ("values", 2, size.policies),
        ):
            weight = torch.randn(streams, hidden, outputs) / math.sqrt(hidden)
            self.register_parameter(f"{name}_weight", nn.Parameter(weight))
            self.register_parameter(f"{name}_bias", nn.Parameter(torch.zeros(streams, 1, outputs)))

    def weights(self, dtype):
        def pair(layer):
            return layer.weight.to(dtype), layer.bias.to(dtype)

        # The 7x7 kernel as 8x8, and that as 2x2 on the 16 channels of 4x4 pixels.
        stem = F.pad(self.stem.standardised(), (0, 1, 0, 1)).reshape(-1, 2, 4, 2, 4).permute(0, 2, 4, 1, 3)
        stem = stem.reshape(-1, 16, 2, 2).to(dtype)
        blocks = [
            BlockWeights(
                block.conv1.cast(dtype),
                block.conv2.cast(dtype),
                None if block.shortcut is None else block.shortcut.cast(dtype),
                pair(block.down),
                pair(block.up),
                (block.skip_gain * (2 * ALPHA)).to(dtype),
            )
            for block in self.blocks
        ]
        return Weights(
            stem=(channels_last(stem), self.stem.bias.to(dtype)),
            blocks=blocks,
            embedding=self.embedding.weight.to(dtype),
            features=pair(self.features),
            hidden1=pair(self.hidden1),
            hidden2=(self.hidden2_weight.to(dtype), self.hidden2_bias.to(dtype)),
            advantages=(self.advantages_weight.to(dtype), self.advantages_bias.to(dtype)),
            values=(self.values_weight.to(dtype), self.values_bias.to(dtype)),
        )


# ------------------------------------------------------------------------------------------------------------- torso


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
    if w.shortcut is None:
        shortcut = x
    else:
        pooled = F.avg_pool2d(a, stride, stride, ceil_mode=True, count_include_pad=False)
        shortcut = F.conv2d(pooled, *w.shortcut, padding=1)
    if not torch.compiler.is_compiling():
        h = F.conv2d(ConvolutionRelu.apply(a, *w.conv1, stride), *w.conv2, padding=1)
        return GatedResidual.apply(shortcut, h, *w.down, *w.up, w.scale, keep)
    h = F.conv2d(F.relu(F.conv2d(a, *w.conv1, stride=stride, padding=1)), *w.conv2, padding=1)
    gate = torch.sigmoid(F.linear(F.relu(F.linear(h.mean((2, 3)), *w.down)), *w.up))
    factor = w.scale if keep is None else w.scale * keep
    return torch.addcmul(shortcut, h, (gate * factor)[:, :, None, None])


def torso(frames, keep, weights, strides):
    """frames u8 [F, H, W], keep [K, F, 1] of 0/1 or None; returns [F, H W C]."""
    count, height, width = frames.shape
    rows, columns = -(-height // 4) + 1, -(-width // 4) + 1
    x = F.pad(frames, (3, 4 * columns - width - 3, 3, 4 * rows - height - 3))
    x = x.reshape(count, rows, 4, columns, 4).permute(0, 1, 3, 2, 4)
    x = x.to(weights.stem[0].dtype, memory_format=torch.contiguous_format).reshape(count, rows, columns, 16)
    x = F.conv2d(x.permute(0, 3, 1, 2), *weights.stem)
    for k, (stride, block) in enumerate(zip(strides, weights.blocks)):
        x = residual_block(x, block, stride, None if keep is None else keep[k])
    return (F.relu(x) * RELU_GAIN).permute(0, 2, 3, 1).reshape(count, -1)


# ---------------------------------------------------------------------------------------------------- features, heads


def features(action, rewards, embedding, weights):
    """What came before an observation: action [..], rewards [.., 4], f of the observation before [.., 32]."""
    dtype = weights.embedding.dtype
    parts = [F.embedding(action, weights.embedding), rescale(rewards).to(dtype), embedding.to(dtype)]
    return F.relu(F.linear(torch.cat(parts, -1), *weights.features))


def heads(core, core_input, weights, policies):
    """Extrinsic and intrinsic Q and policy logits in f32, each [F, N, A]."""
    hidden = F.relu(F.linear(torch.cat([core.to(core_input.dtype), core_input], -1), *weights.hidden1))
    hidden = hidden.unflatten(-1, (5, -1)).transpose(0, 1)
    weight, bias = weights.hidden2
    hidden = F.relu(torch.baddbmm(bias, hidden, weight))
    weight, bias = weights.advantages
    advantages = torch.baddbmm(bias, hidden[:3], weight).float().unflatten(-1, (policies, -1))
    weight, bias = weights.values
    values = torch.baddbmm(bias, hidden[3:], weight).float().unsqueeze(-1)
    q = advantages[:2] - advantages[:2].mean(-1, keepdim=True) + values
    return q[0], q[1], advantages[2]
