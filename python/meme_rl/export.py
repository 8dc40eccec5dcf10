"""Writes an agent to one file for other programs: ONNX, TorchScript or safetensors.

`meme export RUN --format onnx` runs this. The exported step takes observations [B, ...], or each of their parts, and
what the agent remembers, and returns Q, the policy and the action of every environment, and what to remember;
docs/python.md describes inputs and outputs.
"""

import argparse
import json
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from .agent import Agent, greedy, load
from .run import RunError

#: Ending of a file of each format.
ENDINGS = {"onnx": "onnx", "torchscript": "pt", "safetensors": "safetensors"}
MEMORY = ("last_action", "last_rewards", "last_embedding", "state")
OUTPUTS = ("action", "q_values", "policy", "next_state", "embedding", "rnd_error")


class PolicyStep(nn.Module):
    """One step of the chosen policy, with tensors in and out."""

    def __init__(self, agent: Agent) -> None:
        super().__init__()
        self.agent = agent

    def forward(
        self,
        observation: Tensor | tuple[Tensor, ...],
        last_action: Tensor,
        last_rewards: Tensor,
        last_embedding: Tensor,
        state: Tensor,
    ) -> tuple[Tensor, ...]:
        """Returns what `OUTPUTS` names; f(x) is rounded as replay stores it. Several parts are a tuple."""
        parts = self.agent.observation_parts
        named = dict(zip(parts, observation, strict=True)) if isinstance(observation, tuple) else observation
        out = self.agent(named, last_action, last_rewards, last_embedding, state)
        action, q, policy = greedy(self.agent, out)
        return action, q, policy, out.recurrent, out.embedding.half().float(), out.rnd_error


def metadata(agent: Agent, parameters: str) -> dict[str, str]:
    """What a program needs to know to play the exported agent; values are JSON."""
    checkpoint, lifelong = agent.checkpoint, agent.lifelong
    intrinsic = checkpoint.config["intrinsic"]
    known = checkpoint.agent.get("environment") or {}
    atari = not checkpoint.task.startswith("gym:") and known.get("frames_per_step", 1) > 1
    described: dict[str, Any] = {
        "environment": checkpoint.task,
        "action_names": agent.action_names,
        "observation": {
            "shape": known.get("observation_shape"),
            "kind": known.get("observation_kind"),
            "parts": known.get("observation_parts", []),
            "max_side": checkpoint.config["env"].get("max_side", 0),
            "scaling": "larger images are averaged over squares of pixels to this shape; the model divides bytes by 255",
        },
        "preprocessing": {name: checkpoint.config["env"][name] for name in ATARI_SETTINGS} if atari else {},
        "parameters": parameters,
        "policy": agent.policy_index,
        "policies": agent.policies,
        "frames": checkpoint.frames,
        "updates": checkpoint.agent["updates"],
        "score": checkpoint.score,
        "q_rescaling": "h(x) = sgn(x) (sqrt(|x|+1) - 1) + 0.001 x",
        "novelty": {
            "kernel": intrinsic["kernel"],
            "memory_capacity": intrinsic["memory_capacity"],
            "distance_mean": checkpoint.agent["distances"]["mean"],
            "rnd": {name: getattr(lifelong, name) for name in ("mean", "std", "scale", "limit")},
        },
    }
    return {name: json.dumps(value) for name, value in described.items()}


#: Settings of an Atari game that its observations depend on.
ATARI_SETTINGS = ("action_repeat", "noop_max", "sticky_probability", "frame_cap", "action_set")


def input_names(agent: Agent) -> list[str]:
    """Names of the inputs: an observation or its parts, and what the agent remembers."""
    return [*([f"observation.{name}" for name in agent.observation_parts] or ["observation"]), *MEMORY]


def example(agent: Agent, environments: int) -> tuple[Any, ...]:
    """Inputs of a first step."""
    if agent.observation_shape is None:
        raise RunError(f"{agent.checkpoint.path} does not record the shape of its observations; resume the run once")

    def zeros(shape: tuple[int, ...], kind: str) -> Tensor:
        return torch.zeros(environments, *shape, dtype=torch.uint8 if kind == "u8" else torch.float32)

    known = agent.checkpoint.agent["environment"]
    parts = tuple(zeros(part["shape"], part["kind"]) for part in known.get("observation_parts", []))
    observation = parts or zeros(agent.observation_shape, known["observation_kind"])
    state = agent.initial_state(environments)
    return observation, state.action, state.rewards, state.embedding, state.recurrent


def export(agent: Agent, path: Path, format: str, parameters: str = "ema") -> None:
    """Writes the agent with its metadata."""
    about = metadata(agent, parameters)
    step = PolicyStep(agent).eval()
    if format == "safetensors":
        save_file({name: x.detach().contiguous() for name, x in agent.named_parameters()}, path, about)
    elif format == "torchscript":
        with torch.no_grad(), warnings.catch_warnings():
            # Tracing warns about shapes that are fixed on purpose.
            warnings.simplefilter("ignore")
            traced = torch.jit.trace(step, example(agent, 2))  # type: ignore[no-untyped-call]
            torch.jit.save(traced, str(path), _extra_files={"metadata.json": json.dumps(about)})
    else:
        write_onnx(step, agent, path, about)


def write_onnx(step: PolicyStep, agent: Agent, path: Path, about: dict[str, str]) -> None:
    """Writes the step as ONNX, for any number of environments."""
    try:
        import onnx
    except ImportError as error:
        raise RunError(f"export to ONNX needs the package onnx ({error}); run `pip install meme-rl[export]`") from error
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            step,
            example(agent, 2),
            str(path),
            input_names=input_names(agent),
            output_names=list(OUTPUTS),
            dynamic_axes={name: {0: "environments"} for name in (*input_names(agent), *OUTPUTS)},
            opset_version=17,
            dynamo=False,
        )
    model = onnx.load(str(path))
    onnx.helper.set_model_props(model, about)
    onnx.checker.check_model(model)
    onnx.save(model, str(path))


def main(arguments: list[str] | None = None) -> None:
    """Exports from the command line."""
    parser = argparse.ArgumentParser(prog="meme export", description="Write a run's agent for other programs")
    parser.add_argument("run", type=Path)
    parser.add_argument("--format", choices=ENDINGS, default="onnx")
    parser.add_argument("--checkpoint", default="last")
    parser.add_argument("--parameters", choices=("ema", "online"), default="ema")
    parser.add_argument("--policy", type=int)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args(arguments)
    checkpoint = int(given.checkpoint) if given.checkpoint.isdigit() else given.checkpoint
    try:
        agent = load(given.run, given.parameters, checkpoint=checkpoint, policy=given.policy)
        path = given.out or Path(f"{given.run.resolve().name}.{ENDINGS[given.format]}")
        export(agent, path, given.format, given.parameters)
    except (RunError, OSError) as error:
        sys.exit(f"error: {error}")
    print(
        f"wrote {path}: {agent.checkpoint.task} at {agent.checkpoint.frames} frames, {given.parameters} parameters, "
        f"policy {agent.policy_index} of {agent.policies}"
    )
