"""Gymnasium environments; `spaces.py` says which."""

import importlib
import importlib.util
import io
import os
import pickle
import sys
from functools import partial

import gymnasium

from . import pictures
from .protocol import TERMINATED, TRUNCATED, Refused
from .seeding import episode_seed
from .spaces import ActionFormat, ObservationFormat
from .vector import VectorGroup


def make_group(settings, run_seed, first_index, count):
    """Makes environments that are stepped together: as one vector environment if the id has no other kind."""
    if settings["module"] is not None:
        import_module(settings["module"])
    try:
        if is_vector(settings["id"]):
            make = partial(
                gymnasium.make_vec, settings["id"], num_envs=count, vectorization_mode="vector_entry_point"
            )
            env = pictures.make_env(make, settings["render"])
            if env.num_envs != count:
                raise Refused(f"its vector environment has {env.num_envs} environments, expected num_envs={count}")
            return VectorGroup(env, run_seed, first_index, settings["frame_cap"]).members()
        return [GymEnvironment(settings, run_seed, first_index + i) for i in range(count)]
    except gymnasium.error.Error as error:
        # Gymnasium's message about a missing name or package is fit for the user.
        message = " ".join(str(error).split())
        if isinstance(error, gymnasium.error.UnregisteredEnv):
            message += registration_hint(settings["id"], settings["module"])
        raise Refused(message) from error


def is_vector(name):
    """Returns whether an id is registered as a vector environment and as nothing else."""
    spec = gymnasium.registry.get(name)
    return spec is not None and spec.entry_point is None


class GymEnvironment:
    """One Gymnasium environment. Each episode has its own seed."""

    frames_per_step = 1
    vector = None

    def __init__(self, settings, run_seed, index):
        self.run_seed, self.index = run_seed, index
        self.frame_cap = settings["frame_cap"]
        make = partial(gymnasium.make, settings["id"], disable_env_checker=True)
        self.env = pictures.make_env(make, settings["render"])
        # The picture that ended an episode is kept once somebody has asked for pictures.
        self.is_rendered, self.last_picture = False, None
        self.observations = ObservationFormat(self.env.observation_space)
        self.shape, self.dtype = self.observations.shape, self.observations.dtype
        self.parts = self.observations.parts
        actions = ActionFormat(self.env.action_space, self.env.unwrapped)
        self.actions, self.action_names = actions.actions, actions.names

    def begin(self, episode, out):
        """Begins an episode and writes its first observation to `out`."""
        self.episode, self.score, self.frames = episode, 0.0, 0
        # Some environments pass the seed on to code that takes only 31 bits.
        seed = episode_seed(self.run_seed, self.index, episode) >> 33
        observation, _ = self.env.reset(seed=seed)
        self.observations.write(observation, out)

    def step(self, action, out):
        """Takes an action; returns the reward and the ending, 0 if the episode continues."""
        observation, reward, terminated, truncated, _ = self.env.step(self.actions[action])
        # A reward that is not finite is passed on; training stops at it and names the environment.
        reward = float(reward)
        self.observations.write(observation, out)
        self.frames += 1
        self.score += reward
        truncated = truncated or self.frames == self.frame_cap
        if self.is_rendered and (terminated or truncated):
            self.last_picture = pictures.render_picture(self.env)
        return reward, TERMINATED if terminated else TRUNCATED if truncated else 0

    def render(self, last):
        """Returns the picture of the current state, or of the one that ended the last episode."""
        self.is_rendered = True
        return self.last_picture if last else pictures.render_picture(self.env)

    def save(self):
        """Returns everything that `restore` needs, including the pickled environment."""
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
        """Continues from what `save` returned; does not use `out`."""
        try:
            self.env = pickle.loads(saved["env"])
        except Exception as error:
            raise Refused(f"it cannot be unpickled ({type(error).__name__}: {error})") from error
        # Seed and index are restored too, so that later episodes are the same.
        self.run_seed, self.index, self.episode = saved["origin"]
        self.score, self.frames = saved["score"], saved["frames"]

    def close(self):
        """Closes the environment."""
        self.env.close()


def registration_hint(name, module):
    """Returns which module to import first, for an environment that is not registered."""
    if name.startswith("ALE/"):
        return f" Use a game's own name, such as pong, or gym:ale_py:{name}."
    if module is not None:
        return f" The module {module} does not register it."
    # Packages are often called like their environments: MiniGrid-Empty-5x5-v0 comes with minigrid.
    package = name.replace("/", "-").split("-")[0].lower()
    package = {"babyai": "minigrid"}.get(package, package)
    if package.isidentifier() and importlib.util.find_spec(package) is not None:
        return f" Write gym:{package}:{name} to import {package} first."
    if package == "minigrid":
        return f" Install the package minigrid and write gym:minigrid:{name}."
    return f" If a package registers it, install that and write gym:MODULE:{name}."


def import_module(name):
    """Imports the user's module, which may be in the current directory."""
    if os.getcwd() not in sys.path:
        sys.path.insert(1, os.getcwd())
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            # The module itself imports a missing one; the traceback shows where.
            raise
        raise Refused(f"no module {error.name} in {os.getcwd()} or among Python's packages") from error


class WholePickler(pickle.Pickler):
    """Refuses objects that lose their state when pickled, however deep in wrappers and attributes."""

    def reducer_override(self, obj):
        """Refuses an EzPickle; leaves everything else to pickle."""
        if isinstance(obj, gymnasium.utils.EzPickle):
            name = type(obj).__name__
            raise Refused(f"{name} is an EzPickle, which loses the state of the episode when pickled")
        return NotImplemented
