#!/usr/bin/env python3
"""Learner step and inference of the paper preset, as fast as PyTorch runs them: the opponent of `meme`.

    python bench/torch_peer.py --mode compile            # the whole torso, the heads and the loss compiled
    python bench/torch_peer.py --mode eager --json       # kernel by kernel; one JSON line at the end
    python bench/torch_peer.py --device cpu --sequences 2 --trace 8 --environments 8
    python bench/torch_peer.py --device cpu --size tiny  # does it run at all?

Parameters, loss and optimizer are those of the golden reference in tests/golden; only the network and the returns are
arranged for speed. `check_torch_peer.py` compares loss and gradients with the golden files.

A step is what `meme bench learner` times, without the two small networks of the intrinsic reward and the copy of the
batch to the GPU: the peer's batch is already there. Inference is one step of the same network, again without those two
networks. Both omissions favour the peer.
"""

import argparse
import json
import statistics
import sys
import time
from pathlib import Path

try:
    import numpy as np
    import torch
    import torch.nn.functional as F
except ImportError as error:
    sys.exit(f"torch_peer: {sys.executable} cannot import {error.name} ({error}); use a Python that has it.")

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "golden"))

import agent_reference as agent
import golden_inputs as inputs
from peer_network import features, heads, residual_blocks, torso, weights

PAPER_NETWORK = {
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
}
# Network, sequences, observations per sequence, and the batch sizes of inference.
SIZES = {"paper": (PAPER_NETWORK, 64, 160, (128, 512)), "tiny": (inputs.LOSS_NETWORK, 5, 9, (4, 8))}

DROP_RATE = 0.25
WARM_UP = 3  # updates before anything is measured

# ----------------------------------------------------------------------------------------------------------- learner


def scan(start, factor):
    """y_t = start_t + factor_t y_{t+1} along time [B, T, N], by doubling."""
    reach = 1
    while reach < start.shape[1]:
        start = start + factor * F.pad(start[:, reach:], (0, 0, 0, reach))
        factor = factor * F.pad(factor[:, reach:], (0, 0, 0, reach))
        reach *= 2
    return start


def following(x):
    """x_{t+1}, and 0 after the last."""
    return F.pad(x[:, 1:], (0, 0, 0, 1))


def scanned_returns(reward, discount, gamma, value, baseline, trace, _length):
    """As agent_reference.lambda_returns at valid steps, all sequences at once: λ is 0 where a sequence ends."""
    discount = gamma * discount
    return scan(reward + discount * following(value - trace * baseline), discount * following(trace))


def random_batch(network, sequences, trace, device):
    """Sequences of full length on the device."""
    rng = np.random.default_rng(0)
    small = {**network, "observation": [1, 4, 4]}
    batch = inputs.draw_batch(rng, small, trace, [(trace, "running", False)] * sequences)
    batch = {name: x.to(device) for name, x in batch.items()}
    shape = (sequences, trace, *network["observation"])
    batch["observations"] = torch.randint(256, shape, dtype=torch.uint8, device=device)
    return batch


class Learner:
    """Everything that persists between updates, and one update."""

    def __init__(self, config, network, online, target, device, mode):
        self.config, self.network, self.device = config, network, torch.device(device)
        self.dtype = torch.bfloat16 if self.device.type == "cuda" else torch.float32
        self.online = agent.leaves({name: x.to(self.device) for name, x in online.items()}, torch.float32)
        self.target = {name: x.to(self.device, copy=True) for name, x in target.items()}
        self.ema = {name: x.to(self.device, copy=True) for name, x in online.items()}
        self.optimizer = agent.adamw(
            config, self.online, config["learning_rate"], config["weight_decay"], fused=True
        )
        policies = network["policies"]
        self.beta, self.gamma = (x.to(self.device) for x in agent.ladders(config, policies, torch.float32))
        moments = agent.empty_moments(policies, torch.float32)
        self.moments = {**moments, "first": moments["first"].to(device), "second": moments["second"].to(device)}
        strides = [stride for _, stride, _ in residual_blocks(network["torso"])]
        self.drop_rates = torch.linspace(0, DROP_RATE, len(strides), device=self.device)[:, None]
        self.updates = 0

        def loss(online, target, batch, sigma_running):
            out = agent.loss_of_outputs(
                config, self.beta, self.gamma, online, target, batch, {"": sigma_running}, scanned_returns
            )
            return out["loss_total"], out["priority"], out["batch_moments"]

        compiled = (lambda f: torch.compile(f, fullgraph=True, dynamic=False)) if mode == "compile" else (lambda f: f)
        self.weights = compiled(lambda parameters: weights(parameters, network, self.dtype))
        self.torso = compiled(lambda frames, keep, w: torso(frames, keep, w, strides))
        self.features = compiled(features)
        self.heads = compiled(lambda core, core_input, w: heads(core, core_input, w, policies))
        self.loss = compiled(loss)

    def keep(self, sequences):
        """[K, B]: 0 where stochastic depth drops a block for a sequence, the same number of sequences each time."""
        rank = torch.rand(len(self.drop_rates), sequences, device=self.device).argsort(1)
        return rank >= torch.round(self.drop_rates * sequences)

    def unroll(self, parameters, batch, keep):
        """Both Q functions and the logits, [B, T, N, A]."""
        b, t = batch["observations"].shape[:2]
        if keep is not None:
            keep = keep.to(self.dtype).repeat_interleave(t, 1)[:, :, None]
        w = self.weights(parameters)
        torso_output = self.torso(batch["observations"].flatten(0, 2), keep, w).unflatten(0, (b, t))
        rewards = [batch[f"reward_{name}"][:, :t] for name in ("extrinsic", "ngu", "rnd", "episodic")]
        step_before = self.features(batch["action"][:, :t], torch.stack(rewards, -1), batch["embedding"][:, :t], w)
        core_input = torch.cat([torso_output, step_before], -1).transpose(0, 1).contiguous()
        state = [x.contiguous()[None] for x in batch["state"].chunk(2, dim=1)]
        lstm = [parameters[f"lstm.{name}"] for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
        with torch.autocast("cuda", self.dtype, enabled=self.device.type == "cuda"):
            core, _, _ = torch.lstm(core_input, state, lstm, True, 1, 0.0, True, False, False)
        outputs = self.heads(core.flatten(0, 1), core_input.flatten(0, 1), w)
        names = ("q_extrinsic", "q_intrinsic", "logits")
        return {name: x.unflatten(0, (t, b)).transpose(0, 1) for name, x in zip(names, outputs)}

    def gradients(self, batch, keep):
        """Loss and new priorities; leaves the gradients in the parameters."""
        with torch.no_grad():
            target = self.unroll(self.target, batch, keep)
        online = self.unroll(self.online, batch, keep)
        decay = self.config["sigma_decay"]
        _, sigma_running = agent.moments_mean_std(self.moments, decay)
        loss, priorities, batch_moments = self.loss(online, target, batch, sigma_running)
        self.moments = agent.update_moments(self.moments, *batch_moments, decay)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        return loss.detach(), priorities

    def update(self, batch):
        result = self.gradients(batch, self.keep(len(batch["length"])))
        online = list(self.online.values())
        torch.nn.utils.clip_grad_norm_(online, self.config["gradient_clip"])
        self.optimizer.step()
        self.updates += 1
        with torch.no_grad():
            torch._foreach_lerp_(list(self.ema.values()), online, 1 - self.config["ema_decay"])
            if self.updates % self.config["target_period"] == 0:
                torch._foreach_copy_(list(self.target.values()), online)
        return result


# --------------------------------------------------------------------------------------------------------- inference


class Acting:
    """One step of many environments whose recurrent states stay on the device."""

    def __init__(self, learner, environments):
        network, self.learner = learner.network, learner
        _, height, width = network["observation"]
        actions = network["actions"]
        cuda = learner.device.type == "cuda"
        with torch.no_grad():
            self.weights = learner.weights(learner.online)
            cell = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
            self.cell = [learner.online[f"lstm.{name}"].to(learner.dtype) for name in cell]
        host = {
            "frames": torch.randint(256, (environments, height, width), dtype=torch.uint8),
            "action": torch.randint(actions, (environments,)),
            "rewards": torch.rand(environments, 4),
            "policy": torch.randint(network["policies"], (environments,)),
        }
        self.host = {name: x.pin_memory() if cuda else x for name, x in host.items()}
        self.input = {name: x.to(learner.device, copy=True) for name, x in host.items()}
        self.embedding = torch.randn(environments, network["embedding"], device=learner.device)
        self.h, self.c = torch.zeros(2, environments, network["lstm"], dtype=learner.dtype, device=learner.device)
        self.output = torch.empty(2, environments, actions, device=learner.device)
        self.answer = torch.empty(self.output.shape, pin_memory=cuda)
        self.replay = self.captured() if cuda else self.step

    @torch.no_grad()
    def step(self):
        """Writes Q and logits of each environment's policy to the output."""
        given, learner = self.input, self.learner
        torso_output = learner.torso(given["frames"], None, self.weights)
        step_before = learner.features(given["action"], given["rewards"], self.embedding, self.weights)
        core_input = torch.cat([torso_output, step_before], -1)
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
        """From an actor's input on the host to the values it chooses its actions by."""
        for name, x in self.host.items():
            self.input[name].copy_(x, non_blocking=True)
        self.replay()
        self.answer.copy_(self.output, non_blocking=True)
        if self.learner.device.type == "cuda":
            torch.cuda.current_stream().synchronize()


# -------------------------------------------------------------------------------------------------------- measurement


def device_milliseconds(run, count, cuda):
    """Median time between the ends of two runs, by device events; the host may run ahead, as in training."""
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
    parser.add_argument("--sequences", type=int, help="sequences per update, if not those of --size")
    parser.add_argument("--trace", type=int, help="observations per sequence, if not those of --size")
    parser.add_argument("--environments", type=int, nargs="+", help="batch sizes of inference, if not those of --size")
    parser.add_argument("--updates", type=int, default=20, help="measured updates (default: 20)")
    parser.add_argument("--json", action="store_true", help="one JSON line on stdout, everything else on stderr")
    options = parser.parse_args()
    if options.updates < 1:
        parser.error(f"--updates must be at least 1, not {options.updates}")
    cuda = options.device == "cuda"
    if cuda and not torch.cuda.is_available():
        sys.exit("torch_peer: torch sees no GPU; `--device cpu --size tiny` only shows that the script runs.")

    def say(text):
        print(text, file=sys.stderr if options.json else sys.stdout, flush=True)

    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    torch.set_float32_matmul_precision("high")
    network, sequences, trace, environment_counts = SIZES[options.size]
    sequences, trace = options.sequences or sequences, options.trace or trace
    name = torch.cuda.get_device_name() if cuda else "CPU"
    say(f"PyTorch {torch.__version__}, {options.mode}, {name}, {sequences} x {trace} frames")

    parameters = inputs.draw_parameters(np.random.default_rng(0), inputs.rl_shapes(network))
    learner = Learner(agent.LEARNER, network, parameters, parameters, options.device, options.mode)
    batch = random_batch(network, sequences, trace, options.device)
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
    for environments in options.environments or environment_counts:
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
            "parameters": sum(x.numel() for x in learner.online.values()),
            "updates": options.updates,
            "milliseconds": milliseconds,
            "updates_per_second": 1e3 / milliseconds,
            "peak_gpu_bytes": peak,
            "inference": inference,
        }
        print(json.dumps(report), flush=True)


if __name__ == "__main__":
    main()
