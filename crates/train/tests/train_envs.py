"""Gymnasium environments for tests of training; they are made as `gym:tests.train_envs:Sick-v0`."""

import os
import tempfile
import time

import gymnasium
import numpy as np


class Sick(gymnasium.Env):
    """Steps fail as long as a file exists that is named after the process that trains: rewards are NaN, `late` ones
    after a while, or with `die` the worker ends."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (3,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(3, np.float32), {}

    def step(self, action):
        self.steps += 1
        path = os.path.join(tempfile.gettempdir(), f"meme-test-sick-{os.getppid()}")
        sick = open(path).read() if os.path.exists(path) else None
        if sick == "die":
            os._exit(7)
        if sick == "late":
            time.sleep(0.5)
        reward = float(action) if sick is None else float("nan")
        return np.full(3, self.steps / 10, np.float32), reward, self.steps == 10, False, {}


gymnasium.register("Sick-v0", entry_point=Sick)


class Unsavable(Sick):
    """Can't be pickled; writes the seed of each episode to a file that is named after the process that trains."""

    def __init__(self):
        self.seeds = open(os.path.join(tempfile.gettempdir(), f"meme-test-seeds-{os.getppid()}"), "a")

    def reset(self, *, seed=None, options=None):
        self.seeds.write(f"{seed}\n")
        self.seeds.flush()
        return super().reset(seed=seed)


gymnasium.register("Unsavable-v0", entry_point=Unsavable)


class Moved(Sick):
    """Can be saved. A file named after the training process says what happens when it is restored: `refuse` fails,
    `die` ends the process with the second environment of a worker."""

    restored = 0

    def __setstate__(self, state):
        Moved.restored += 1
        path = os.path.join(tempfile.gettempdir(), f"meme-test-moved-{os.getppid()}")
        how = open(path).read() if os.path.exists(path) else ""
        if how == "refuse":
            raise AttributeError("there is no class of that name any more")
        if how == "die" and Moved.restored == 2:
            os._exit(7)
        self.__dict__.update(state)


gymnasium.register("Moved-v0", entry_point=Moved)
