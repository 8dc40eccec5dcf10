"""The environment of a run, with the preprocessing that its agent was trained with."""

import warnings
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from meme_worker.ale import AleEnvironment
from meme_worker.gym import import_module, is_vector
from meme_worker.protocol import TERMINATED, TRUNCATED, Refused
from meme_worker.seeding import mix
from meme_worker.spaces import ActionFormat, ObservationFormat

from .run import Checkpoint, RunError, open_checkpoint

#: Index of the first environment of an evaluation, which no environment in training has.
EVALUATION_INDEX = 1_000_000


class AtariEnv(gymnasium.Env[Any, Any]):
    """An Atari game as workers play it: no-ops, repeated actions, the maximum over two frames in grayscale."""

    metadata = {"render_modes": ["rgb_array"]}

    def __init__(self, settings: dict[str, Any], seed: int) -> None:
        self._settings = settings
        self._game = self._make_game(seed)
        self._episode = -1
        self.observation_space = gymnasium.spaces.Box(0, 255, self._game.shape, np.uint8)
        self.action_space = gymnasium.spaces.Discrete(len(self._game.actions))
        self.render_mode = "rgb_array"
        self._screen = np.zeros(self._game.shape, np.uint8)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begins the next episode, or the first one of a seed."""
        super().reset(seed=seed)
        if seed is not None:
            self._game, self._episode = self._make_game(seed), -1
        self._episode += 1
        self._game.begin(self._episode, self._screen)
        return self._screen.copy(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Holds an action for some frames."""
        reward, ending = self._game.step(int(action), self._screen)
        return self._screen.copy(), float(reward), ending == TERMINATED, ending == TRUNCATED, {}

    def _make_game(self, seed: int) -> AleEnvironment:
        # The seed of a run's environments, and the index of the first one of an evaluation.
        return AleEnvironment(self._settings, mix(mix(seed)), EVALUATION_INDEX)

    def render(self) -> Any:
        """The observation as an RGB image."""
        return np.repeat(self._screen[:, :, None], 3, axis=2)


class NumberedEnv(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A Gymnasium environment as workers show it: one array or a dictionary of parts to see, numbers as actions."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        self._format = ObservationFormat(env.observation_space)
        self._actions = ActionFormat(env.action_space, env.unwrapped)
        parts: dict[str, gymnasium.Space[Any]] = {part.name: _box(part.array) for part in self._format.parts}
        self.observation_space = gymnasium.spaces.Dict(parts) if parts else _box(self._format)
        self.action_space = gymnasium.spaces.Discrete(len(self._actions.actions))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begins an episode."""
        observation, info = self.env.reset(seed=seed, options=options)
        return self._seen(observation), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Takes the action of this number."""
        observation, reward, terminated, truncated, info = self.env.step(self._actions.actions[int(action)])
        return self._seen(observation), reward, terminated, truncated, info

    def _seen(self, observation: Any) -> Any:
        if not self._format.parts:
            out = np.empty(self._format.shape, self._format.dtype)
            self._format.write(observation, out)
            return out
        arrays = {part.name: np.empty(part.array.shape, part.array.dtype) for part in self._format.parts}
        for part in self._format.parts:
            part.write(observation, arrays[part.name])
        return arrays


def _box(array: Any) -> gymnasium.spaces.Box:
    """The space of an array of bytes or floats."""
    lowest, highest = (0, 255) if array.dtype == np.uint8 else (-np.inf, np.inf)
    return gymnasium.spaces.Box(lowest, highest, array.shape, array.dtype)


def make(run: str | Path | Checkpoint, seed: int | None = None) -> gymnasium.Env[Any, Any]:
    """Makes the environment of a run, an Atari game or a Gymnasium environment.

    An Atari game begins with the first episode of `meme eval` with the same seed, by default the run's. Built-in tasks
    such as `catch` run inside `meme` and cannot be made here.
    """
    checkpoint = run if isinstance(run, Checkpoint) else open_checkpoint(run)
    task, config = checkpoint.task, checkpoint.config["env"]
    actions = (checkpoint.agent.get("environment") or {}).get("action_names", [])
    if task.startswith("gym:"):
        module, _, name = task.removeprefix("gym:").rpartition(":")
        if module:
            import_module(module)
        if is_vector(name):
            raise RunError(
                f"{task} is a vector environment; make it with gymnasium.make_vec({name!r}, num_envs=8), and pass it to "
                "meme_rl.evaluate"
            )
        return NumberedEnv(gymnasium.make(name, disable_env_checker=True))
    settings = {
        "rom": task,
        **{name: config[name] for name in ("action_repeat", "noop_max", "sticky_probability", "frame_cap")},
        "full_actions": config["action_set"] == "full" or len(actions) == 18,
        "ram": [],
    }
    try:
        with warnings.catch_warnings():
            # ale-py warns of a name that is not a game's; the error below does.
            warnings.simplefilter("ignore")
            return AtariEnv(settings, checkpoint.seed if seed is None else seed)
    except (Refused, FileNotFoundError, ValueError) as error:
        raise RunError(f"{task} is a built-in task, which only `meme` itself can play ({error})") from error
