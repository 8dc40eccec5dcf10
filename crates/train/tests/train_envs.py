"""Gymnasium environments for tests of training; they are made as `gym:tests.train_envs:Sick-v0`."""

import os
import tempfile

import gymnasium
import numpy as np


class Sick(gymnasium.Env):
    """Rewards are NaN as long as a file exists that is named after the process that trains."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (3,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(3, np.float32), {}

    def step(self, action):
        self.steps += 1
        sick = os.path.join(tempfile.gettempdir(), f"meme-test-sick-{os.getppid()}")
        reward = float("nan") if os.path.exists(sick) else float(action)
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
