"""Gymnasium environments with discrete actions and image or flat observations."""

import importlib
import io
import os
import pickle
import sys

import gymnasium
import numpy as np

from .protocol import Refused
from .seeding import episode_seed

TERMINATED, TRUNCATED = 1, 2


class GymEnvironment:
    """One Gymnasium environment. Each episode is begun with a seed of its own."""

    def __init__(self, settings, run_seed, index):
        self.run_seed, self.index = run_seed, index
        self.frames_per_step = 1
        if settings["module"] is not None:
            import_module(settings["module"])
        try:
            self.env = gymnasium.make(settings["id"], disable_env_checker=True)
        except gymnasium.error.Error as error:
            # What Gymnasium says of a name or a package that is missing is a sentence for the user.
            said = " ".join(str(error).split())
            if isinstance(error, gymnasium.error.NamespaceNotFound) and settings["id"].startswith("ALE/"):
                said += f" Atari games have names of their own here, such as pong; gym:ale_py:{settings['id']} works too."
            raise Refused(said) from error
        self.shape, self.dtype = observation_format(self.env.observation_space)
        self.first_action, self.action_names = action_format(self.env)

    def begin(self, episode, out):
        """Begins an episode and writes its first observation to `out`."""
        self.episode, self.score, self.frames = episode, 0.0, 0
        # 31 bits: some environments hand the seed on to code that takes no more.
        seed = episode_seed(self.run_seed, self.index, episode) >> 33
        observation, _ = self.env.reset(seed=seed)
        self._write(observation, out)

    def step(self, action, out):
        """Takes an action; returns the reward and how the episode ended, 0 if it goes on."""
        observation, reward, terminated, truncated, _ = self.env.step(self.first_action + action)
        # One that is not finite is handed on: whoever trains stops at it and names the environment.
        reward = float(reward)
        self._write(observation, out)
        self.frames += 1
        self.score += reward
        return reward, TERMINATED if terminated else TRUNCATED if truncated else 0

    def save(self):
        """Everything that `restore` needs; the environment itself is pickled."""
        pickled = io.BytesIO()
        try:
            WholePickler(pickled).dump(self.env)
        except Refused:
            raise
        except Exception as error:
            raise Refused(f"it cannot be pickled ({type(error).__name__}: {error})") from error
        origin = (self.run_seed, self.index, self.episode)
        return {"origin": origin, "score": self.score, "frames": self.frames, "env": pickled.getvalue()}

    def restore(self, saved, out):
        """Goes on from what `save` returned; `out` is left alone."""
        try:
            self.env = pickle.loads(saved["env"])
        except Exception as error:
            raise Refused(f"it cannot be unpickled ({type(error).__name__}: {error})") from error
        # With the saved one's seed and index too, so that its later episodes are the same.
        self.run_seed, self.index, self.episode = saved["origin"]
        self.score, self.frames = saved["score"], saved["frames"]

    def close(self):
        """Closes the environment."""
        self.env.close()

    def _write(self, observation, out):
        array = np.asarray(observation)
        if array.shape != self.shape:
            raise ValueError(f"the environment returned an observation of shape {array.shape}, not {self.shape}")
        if array.dtype != self.dtype and (self.dtype == np.uint8 or array.dtype.kind != "f"):
            raise ValueError(f"the environment returned an observation of {array.dtype}, not {self.dtype}")
        out[...] = array
        if self.dtype == np.float32 and not np.isfinite(out).all():
            raise ValueError(f"the environment returned an observation that is not finite: {array}")


def import_module(name):
    """Imports the user's module, which may lie in the folder that meme was started from."""
    if os.getcwd() not in sys.path:
        sys.path.insert(1, os.getcwd())
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            # One that the module itself needs: where it asks for it is worth telling.
            raise
        raise Refused(f"there is no module {error.name} in {os.getcwd()} or among Python's packages") from error


class WholePickler(pickle.Pickler):
    """Refuses what would be pickled without its state, however deep it lies in wrappers and attributes."""

    def reducer_override(self, obj):
        """Leaves everything else to pickle itself."""
        if isinstance(obj, gymnasium.utils.EzPickle):
            name = type(obj).__name__
            raise Refused(f"{name} is an EzPickle, which forgets where the episode stands when it is pickled")
        return NotImplemented


def observation_format(space):
    """Shape and type in which observations of `space` are handed on; refuses what is neither an image nor flat."""
    is_box = isinstance(space, gymnasium.spaces.Box)
    if is_box and space.dtype == np.uint8 and len(space.shape) in (1, 2, 3) and np.prod(space.shape) > 0:
        return space.shape, np.dtype(np.uint8)
    if is_box and space.dtype in (np.float32, np.float64) and len(space.shape) == 1 and space.shape[0] > 0:
        return space.shape, np.dtype(np.float32)
    raise Refused(
        f"its observation space is {space}; it must be a Box of uint8 with 1, 2 or 3 dimensions, "
        "or of float32 or float64 with one"
    )


def action_format(env):
    """The first action's number and the names of all actions; refuses what is not a Discrete space."""
    space = env.action_space
    if not isinstance(space, gymnasium.spaces.Discrete):
        raise Refused(f"its action space is {space}; it must be Discrete")
    first, count = int(space.start), int(space.n)
    meanings = getattr(env.unwrapped, "get_action_meanings", None)
    if callable(meanings):
        names = [str(name).lower() for name in meanings()]
        if len(names) == count:
            return first, names
    return first, [str(first + i) for i in range(count)]
