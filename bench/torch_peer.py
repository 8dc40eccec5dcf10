#!/usr/bin/env python3
"""Learner step and inference of the paper preset in PyTorch, as fast as PyTorch goes: what `meme` stands beside.

    python bench/torch_peer.py --mode compile            # the whole torso, the heads and the loss compiled
    python bench/torch_peer.py --mode eager --json       # kernel by kernel; one JSON line at the end
    python bench/torch_peer.py --device cpu --size tiny  # does it run at all

A step is what `meme bench learner` times, less the two small networks of the intrinsic reward and the copy of the batch
to the GPU: the peer's batch is there already. Inference is the same network for one step, less those two as well. Both
omissions favour the peer. `check_torch_peer.py` compares loss and gradients with the golden files.
"""

import argparse
import copy
import json
import statistics
import sys
import time

try:
    import torch
    from torch import nn
except ImportError as error:
    sys.exit(f"torch_peer: {sys.executable} cannot import torch ({error}); use a Python that has it.")

from peer_loss import agent_loss, ladders
from peer_network import EMBEDDING, SIZES, Network, features, heads, torso

DROP_RATE = 0.25
LEARNING_RATE, WEIGHT_DECAY, CLIP_NORM = 3e-4, 0.05, 40.0
TARGET_PERIOD, EMA_DECAY = 400, 0.995

WARM_UP = 3  # updates before anything is measured

# ----------------------------------------------------------------------------------------------------------- learner


def random_batch(size, device):
    """Sequences of full length; [B, T+1] entries, the first of which is the step before the first observation."""
    b, t = size.sequences, size.trace
    entries = (b, t + 1)
    steps = torch.ones(b, t)
    steps[:, -1] = 0  # the last observation only bootstraps
    batch = {
        "action": torch.randint(size.actions, entries),
        "rewards": torch.rand(*entries, 4),  # extrinsic, NGU, its RND part, its episodic part
        "discount": torch.ones(entries),
        "embedding": torch.randn(*entries, EMBEDDING),
        "state": torch.rand(2, 1, b, size.core) - 0.5,
        "policy": torch.randint(size.policies, (b,)),
        "weight": torch.rand(b) * 0.8 + 0.2,
        "steps": steps,
    }
    batch = {name: x.to(device) for name, x in batch.items()}
    batch["frames"] = torch.randint(256, (b * t, size.height, size.width), dtype=torch.uint8, device=device)
    return batch


class Learner:
    """Everything that persists between updates, and one update."""

    def __init__(self, size, device, mode):
        self.size, self.device = size, torch.device(device)
        self.dtype = torch.bfloat16 if self.device.type == "cuda" else torch.float32
        self.strides = tuple(stride if b == 0 else 1 for blocks, _, stride in size.stages for b in range(blocks))
        self.online = Network(size).to(self.device)
        self.target = copy.deepcopy(self.online).requires_grad_(False)
        self.ema = copy.deepcopy(self.target)
        for network in (self.online, self.target):
            network.lstm.flatten_parameters()
        self.parameters = list(self.online.parameters())
        decaying = [x for name, x in self.online.named_parameters() if "weight" in name]
        others = [x for name, x in self.online.named_parameters() if "weight" not in name]
        groups = [{"params": decaying, "weight_decay": WEIGHT_DECAY}, {"params": others, "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(groups, lr=LEARNING_RATE, fused=True)
        self.beta, self.gamma = (x.to(self.device) for x in ladders(size.policies))
        self.moments = torch.zeros(3, size.policies, device=self.device)
        self.moments[2] = 1.0
        blocks = len(self.strides)
        dropped = [round(DROP_RATE * k / (blocks - 1) * size.sequences) for k in range(blocks)]
        self.dropped = torch.tensor(dropped, device=self.device)[:, None]
        self.updates = 0

        compiled = (lambda f: torch.compile(f, fullgraph=True, dynamic=False)) if mode == "compile" else (lambda f: f)
        self.weights = compiled(lambda network: network.weights(self.dtype))
        self.torso = compiled(lambda frames, keep, weights: torso(frames, keep, weights, self.strides))
        self.features = compiled(features)
        self.heads = compiled(lambda core, core_input, weights: heads(core, core_input, weights, size.policies))
        self.loss = compiled(agent_loss)

    def keep(self):
        """[K, B]: 0 where stochastic depth drops a block for a sequence, the same number of sequences each time."""
        rank = torch.rand(len(self.strides), self.size.sequences, device=self.device).argsort(1)
        return rank >= self.dropped

    def unroll(self, network, batch, keep):
        """Both Q functions and the logits, [B, T, N, A]."""
        b, t = batch["steps"].shape
        if keep is not None:
            keep = keep.to(self.dtype).repeat_interleave(t, 1)[:, :, None]
        weights = self.weights(network)
        seen = self.torso(batch["frames"], keep, weights).unflatten(0, (b, t))
        told = self.features(batch["action"][:, :-1], batch["rewards"][:, :-1], batch["embedding"][:, :-1], weights)
        core_input = torch.cat([seen, told], -1).transpose(0, 1).contiguous()
        with torch.autocast("cuda", self.dtype, enabled=self.device.type == "cuda"):
            core, _ = network.lstm(core_input, tuple(batch["state"]))
        outputs = self.heads(core.flatten(0, 1), core_input.flatten(0, 1), weights)
        return [x.unflatten(0, (t, b)).transpose(0, 1) for x in outputs]

    def gradients(self, batch, keep):
        """Loss and new priorities; leaves the gradients in the parameters."""
        with torch.no_grad():
            target = self.unroll(self.target, batch, None)
        online = self.unroll(self.online, batch, keep)
        loss, priorities, self.moments = self.loss(online, target, batch, self.beta, self.gamma, self.moments)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        return loss.detach(), priorities

    def update(self, batch):
        result = self.gradients(batch, self.keep())
        nn.utils.clip_grad_norm_(self.parameters, CLIP_NORM)
        self.optimizer.step()
        self.updates += 1
        with torch.no_grad():
            torch._foreach_lerp_(list(self.ema.parameters()), self.parameters, 1 - EMA_DECAY)
            if self.updates % TARGET_PERIOD == 0:
                torch._foreach_copy_(list(self.target.parameters()), self.parameters)
        return result


# --------------------------------------------------------------------------------------------------------- inference


class Acting:
    """One step of a number of environments whose recurrent states stay on the device."""

    def __init__(self, learner, environments):
        size, self.learner = learner.size, learner
        cuda = learner.device.type == "cuda"
        with torch.no_grad():
            self.weights = learner.weights(learner.online)
            lstm = learner.online.lstm
            cell = (lstm.weight_ih_l0, lstm.weight_hh_l0, lstm.bias_ih_l0, lstm.bias_hh_l0)
            self.cell = [x.to(learner.dtype) for x in cell]
        host = {
            "frames": torch.randint(256, (environments, size.height, size.width), dtype=torch.uint8),
            "action": torch.randint(size.actions, (environments,)),
            "rewards": torch.rand(environments, 4),
            "policy": torch.randint(size.policies, (environments,)),
        }
        self.host = {name: x.pin_memory() if cuda else x for name, x in host.items()}
        self.input = {name: x.to(learner.device, copy=True) for name, x in host.items()}
        self.embedding = torch.randn(environments, EMBEDDING, device=learner.device)
        self.h, self.c = torch.zeros(2, environments, size.core, dtype=learner.dtype, device=learner.device)
        self.output = torch.empty(2, environments, size.actions, device=learner.device)
        self.answer = torch.empty(self.output.shape, pin_memory=cuda)
        self.replay = self.captured() if cuda else self.step

    @torch.no_grad()
    def step(self):
        """Q and logits of each environment's policy into the output."""
        given, learner = self.input, self.learner
        seen = learner.torso(given["frames"], None, self.weights)
        told = learner.features(given["action"], given["rewards"], self.embedding, self.weights)
        core_input = torch.cat([seen, told], -1)
        h, c = torch.lstm_cell(core_input, (self.h, self.c), *self.cell)
        q_extrinsic, q_intrinsic, logits = learner.heads(h, core_input, self.weights)
        own = given["policy"][None, :, None, None].expand(2, -1, 1, q_extrinsic.shape[-1])
        both = torch.stack([q_extrinsic + learner.beta[:, None] * q_intrinsic, logits])
        self.output.copy_(both.gather(2, own).squeeze(2))
        self.h.copy_(h)
        self.c.copy_(c)

    def captured(self):
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(WARM_UP):
                self.step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.step()
        self.graph = graph
        return graph.replay

    def round_trip(self):
        """From what an actor has on the host to what it chooses its actions by."""
        for name, x in self.host.items():
            self.input[name].copy_(x, non_blocking=True)
        self.replay()
        self.answer.copy_(self.output, non_blocking=True)
        if self.learner.device.type == "cuda":
            torch.cuda.current_stream().synchronize()


# -------------------------------------------------------------------------------------------------------- measurement


def device_milliseconds(run, count, cuda):
    """Median time from one end to the next by device events; the host may run ahead, as in training."""
    if not cuda:
        return host_milliseconds(run, count)
    events = [torch.cuda.Event(enable_timing=True) for _ in range(count + 1)]
    events[0].record()
    for event in events[1:]:
        run()
        event.record()
    torch.cuda.synchronize()
    return statistics.median(before.elapsed_time(after) for before, after in zip(events, events[1:]))


def host_milliseconds(run, count):
    times = []
    for _ in range(count):
        start = time.perf_counter()
        run()
        times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mode", choices=("eager", "compile"), default="eager")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--size", choices=tuple(SIZES), default="paper", help="shapes (default: those of the paper)")
    parser.add_argument("--updates", type=int, default=20, help="measured updates (default: 20)")
    parser.add_argument("--json", action="store_true", help="one JSON line on stdout, everything else on stderr")
    options = parser.parse_args()
    if options.updates < 1:
        parser.error("--updates needs at least 1")
    cuda = options.device == "cuda"
    if cuda and not torch.cuda.is_available():
        sys.exit("torch_peer: torch sees no GPU here; `--device cpu --size tiny` only shows that the script runs.")

    def say(text):
        print(text, file=sys.stderr if options.json else sys.stdout, flush=True)

    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    torch.set_float32_matmul_precision("high")
    size = SIZES[options.size]
    name = torch.cuda.get_device_name() if cuda else "CPU"
    say(f"PyTorch {torch.__version__}, {options.mode}, {name}, {size.sequences} x {size.trace} frames")

    learner, batch = Learner(size, options.device, options.mode), random_batch(size, options.device)
    start = time.perf_counter()
    for update in range(WARM_UP):
        loss, _ = learner.update(batch)
        say(f"warm-up {update + 1} of {WARM_UP}: loss {loss.item():.4f} after {time.perf_counter() - start:.1f} s")
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    milliseconds = device_milliseconds(lambda: learner.update(batch), options.updates, cuda)
    peak = torch.cuda.max_memory_allocated() if cuda else None
    memory = f", peak memory {peak / 1e9:.1f} GB" if cuda else ""
    say(f"learner: {milliseconds:.2f} ms, {1e3 / milliseconds:.3f} updates/s{memory}")

    del batch
    learner.optimizer.zero_grad(set_to_none=True)
    inference = []
    for environments in size.environments:
        acting = Acting(learner, environments)
        for _ in range(WARM_UP):
            acting.round_trip()
        row = {
            "environments": environments,
            "milliseconds": device_milliseconds(acting.replay, 5 * options.updates, cuda),
            "round_trip_milliseconds": host_milliseconds(acting.round_trip, 5 * options.updates),
        }
        say("inference: {environments} environments {milliseconds:.3f} ms, "
            "round trip {round_trip_milliseconds:.3f} ms".format(**row))  # fmt: skip
        inference.append(row)
    if options.json:
        report = {
            "mode": options.mode,
            "size": options.size,
            "device": name,
            "torch": torch.__version__,
            "parameters": sum(x.numel() for x in learner.parameters),
            "updates": options.updates,
            "milliseconds": milliseconds,
            "updates_per_second": 1e3 / milliseconds,
            "peak_gpu_bytes": peak,
            "inference": inference,
        }
        print(json.dumps(report), flush=True)


if __name__ == "__main__":
    main()
