"""Plays agents that `meme` has trained, from Python.

    import meme_rl

    agent = meme_rl.load("runs/pong")
    action, state = agent.act(observation)                          # the first observation of an episode
    action, state = agent.act(observation, state, reward=reward)    # every further one

Loading and playing need torch and safetensors only. See docs/python.md.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .agent import Agent as Agent
    from .agent import Decision as Decision
    from .agent import PlayState as PlayState
    from .agent import load as load
    from .environment import make as make
    from .evaluation import Evaluation as Evaluation
    from .evaluation import evaluate as evaluate
    from .metrics_frame import metrics as metrics
    from .run import RunError as RunError

__all__ = ["Agent", "Decision", "Evaluation", "PlayState", "RunError", "evaluate", "load", "make", "metrics"]

# Modules are imported at first use, so that the command `meme` starts without torch.
_MODULES = {
    "Agent": "agent",
    "Decision": "agent",
    "Evaluation": "evaluation",
    "PlayState": "agent",
    "RunError": "run",
    "evaluate": "evaluation",
    "load": "agent",
    "make": "environment",
    "metrics": "metrics_frame",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f".{_MODULES[name]}", __name__), name)
