"""Gymnasium environments for tests: well-behaved, faulty, and with unsupported spaces."""

import ctypes
import os
import signal
import subprocess
import sys
import time

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv


class Image(gymnasium.Env):
    """A color image of step, action and a random number; terminates after 7 steps."""

    observation_space = spaces.Box(0, 255, (12, 10, 3), np.uint8)
    action_space = spaces.Discrete(3, start=5)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps, self.action, self.number = 0, 0, int(self.np_random.integers(256))
        return self._draw(), {}

    def step(self, action):
        assert action in (5, 6, 7), action
        self.steps += 1
        self.action = action
        self.number = int(self.np_random.integers(256))
        return self._draw(), self.number / 2, self.steps == 7, False, {}

    def _draw(self):
        image = np.zeros((12, 10, 3), np.uint8)
        image[0, 0] = self.steps, self.action, self.number
        image[11, 9] = 255
        return image


class Flat(gymnasium.Env):
    """Three doubles; truncated after 5 steps. With `holds_a_file` it cannot be pickled."""

    observation_space = spaces.Box(-1e9, 1e9, (3,), np.float64)
    action_space = spaces.Discrete(2)

    def __init__(self, holds_a_file=False):
        self.file = open(os.devnull) if holds_a_file else None

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.array([0.1, 0.0, -1.5]), {}

    def step(self, action):
        self.steps += 1
        return np.array([0.1, float(self.steps), float(action)]), -0.25, False, self.steps == 5, {}


class Drawn(Flat):
    """Renders its step as a picture of 2 x 3 pixels."""

    metadata = {"render_modes": ["human", "rgb_array"]}

    def __init__(self, render_mode=None):
        super().__init__()
        self.render_mode = render_mode

    def render(self):
        return np.full((2, 3, 3), self.steps, np.uint8)


class DrawnInGray(Drawn):
    """Renders a picture without colours."""

    def render(self):
        return np.zeros((2, 3), np.uint8)


class Rebuilt(Flat, gymnasium.utils.EzPickle):
    """Loses its state when pickled."""

    def __init__(self):
        gymnasium.utils.EzPickle.__init__(self)
        Flat.__init__(self)


class Holder(Flat):
    """Holds another environment without being a wrapper."""

    def __init__(self):
        super().__init__()
        self.inner = Rebuilt()


class Signals(Flat):
    """Shows which of SIGHUP, SIGINT and SIGTERM its child process blocks and ignores."""

    def reset(self, *, seed=None, options=None):
        status = subprocess.run(["cat", "/proc/self/status"], capture_output=True, text=True, check=True).stdout
        masks = dict(line.split(":\t") for line in status.splitlines() if line.startswith("Sig") and ":\t" in line)
        ending = 1 << 0 | 1 << 1 | 1 << 14
        observation, _ = super().reset(seed=seed)
        observation[:2] = [int(masks[name], 16) & ending for name in ("SigBlk", "SigIgn")]
        return observation, {}


class SlowReset(Flat):
    """Takes longer for a reset than for a step."""

    def reset(self, *, seed=None, options=None):
        time.sleep(0.4)
        return super().reset(seed=seed)


class Faulty(gymnasium.Env):
    """Counts steps; the action chooses the fault."""

    observation_space = spaces.Box(0, 255, (4,), np.uint8)
    action_space = spaces.Discrete(13)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.number, self.steps = int(self.np_random.integers(256)), 0
        return self._observation(), {}

    def step(self, action):
        self.steps += 1
        reward, observation = 1.0, self._observation()
        if action == 1:
            raise ValueError("the moon is in\nthe wrong house")
        if action == 2:
            time.sleep(1000)
        if action == 3:
            print("rubbish " * 20_000, flush=True)
            os.write(1, os.urandom(5000))
            sys.stdout.buffer.write(b"\x04\x00\x00\x00" * 100)
            sys.stdout.flush()
            assert sys.stdin.read() == ""
        if action == 4:
            observation = np.zeros((5,), np.uint8)
        if action == 5:
            reward = float("nan")
        if action == 6:
            print("about to leave", file=sys.stderr, flush=True)
            os._exit(3)
        if action == 7:
            os.kill(os.getpid(), signal.SIGKILL)
        if action == 8:
            observation = np.zeros((4,), np.float32)
        if action == 9:
            ctypes.PyDLL(None).sleep(1000)  # holds the interpreter lock
        if action == 10:
            os.closerange(3, 100)
        if action == 11:
            sys.exit("leaving")
        if action == 12:
            time.sleep(0.5)
        return observation, reward, False, False, {}

    def _observation(self):
        return np.array([self.number, self.steps, 7, 7], np.uint8)


class Stalls(Faulty):
    """Finishes an episode with every step, and hangs at the fifth."""

    taken = 0

    def step(self, action):
        self.taken += 1
        if self.taken == 5:
            time.sleep(1000)
        observation, reward, _, _, info = super().step(action)
        return observation, reward, True, False, info


class StallsAtStart(Faulty):
    """Hangs when its first episode begins."""

    def reset(self, *, seed=None, options=None):
        time.sleep(1000)


class Broken(Faulty):
    """Fails at every step, or at the first reset."""

    def __init__(self, at_reset=False):
        self.at_reset = at_reset

    def reset(self, *, seed=None, options=None):
        if self.at_reset:
            raise RuntimeError("no reset today")
        return super().reset(seed=seed)

    def step(self, action):
        raise RuntimeError("no step today")


class Fragile(Faulty):
    """Fails in the third step of an episode; action 1 ends it earlier."""

    def step(self, action):
        if self.steps == 2:
            raise RuntimeError("it broke")
        observation, reward, *_ = super().step(0)
        return observation, reward, action == 1, False, {}


class NotFinite(Flat):
    """Returns an infinite observation."""

    def step(self, action):
        return np.array([0.0, np.inf, 0.0]), 0.0, False, False, {}


class Spaces(gymnasium.Env):
    """Has the given spaces; returns the given observation and, as the reward, the sum of the action's parts."""

    def __init__(
        self, observation_space=Image.observation_space, action_space=Image.action_space, observation=None
    ):
        self.observation_space, self.action_space = observation_space, action_space
        self.observation = observation

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation, {}

    def step(self, action):
        assert self.action_space.contains(action), action
        return self.observation, float(np.sum(action)), False, False, {}


class Countdown(gymnasium.Env):
    """Shows episode, step and action; an episode of 2 steps terminates, a longer one is truncated."""

    observation_space = spaces.Dict({"counts": spaces.Box(0, 99, (2,), np.int16), "action": spaces.Box(0, 9, ())})
    action_space = spaces.Discrete(2, start=5)

    def __init__(self, length, render_mode=None):
        self.length, self.episodes, self.render_mode = length, 0, render_mode
        self.metadata = {"render_modes": ["rgb_array"]}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episodes, self.steps = self.episodes + 1, 0
        return self._observation(0), {}

    def step(self, action):
        self.steps += 1
        ended = self.steps == self.length
        return self._observation(action), self.steps, ended and self.length == 2, ended and self.length > 2, {}

    def render(self):
        return np.full((2, 3, 3), 10 * self.episodes + self.steps, np.uint8)

    def _observation(self, action):
        return {"counts": np.array([self.episodes, self.steps], np.int16), "action": np.array(action, np.float32)}


def countdowns(num_envs, mode, render_mode=None):
    """A vector environment whose parts have episodes of 2 steps, 3 steps, and so on; without a mode, it names none."""
    parts = [lambda length=2 + i: Countdown(length, render_mode) for i in range(num_envs)]
    env = SyncVectorEnv(parts, autoreset_mode=mode or AutoresetMode.NEXT_STEP)
    env.metadata = env.metadata if mode else {}
    return env


def register(name, entry_point, **arguments):
    gymnasium.register(f"{name}-v0", entry_point=entry_point, kwargs=arguments)


register("Image", Image)
register("Flat", Flat)
register("HoldsAFile", Flat, holds_a_file=True)
register("Drawn", Drawn)
register("DrawnInGray", DrawnInGray)
register("Rebuilt", Rebuilt)
register("Holder", Holder)
register("Signals", Signals)
register("SlowReset", SlowReset)
register("Faulty", Faulty)
register("Stalls", Stalls)
register("StallsAtStart", StallsAtStart)
register("Broken", Broken)
register("BrokenReset", Broken, at_reset=True)
register("Fragile", Fragile)
register("NotFinite", NotFinite)
register("OutOfRange", Spaces, observation_space=spaces.Discrete(3, start=5), observation=2)
register(
    "Dict",
    Spaces,
    observation_space=spaces.Dict(
        {
            "picture": spaces.Box(0, 255, (1, 9, 1), np.uint8),
            "place": spaces.Tuple((spaces.Discrete(3, start=1), spaces.Box(-9, 9, (2,), np.int16))),
            "switches": spaces.MultiBinary(2),
        }
    ),
    observation={
        "picture": np.full((1, 9, 1), 51, np.uint8),
        "place": (2, np.array([-3, 4], np.int16)),
        "switches": np.array([1, 0], np.int8),
    },
)
register(
    "Booleans",
    Spaces,
    observation_space=spaces.Box(0, 1, (1, 2, 2), np.bool_),
    observation=np.array([[[True, False], [False, True]]]),
)
register(
    "Camera",
    Spaces,
    observation_space=spaces.Tuple((spaces.Box(-1, 1, (), np.float32), spaces.Box(0, 255, (8, 5), np.uint8))),
    observation=(np.float32(0.5), np.arange(40, dtype=np.uint8).reshape(8, 5)),
)
register(
    "Alone",
    Spaces,
    observation_space=spaces.Dict({"inner": spaces.Tuple((spaces.Box(0, 255, (1, 8), np.uint8),))}),
    observation={"inner": (np.arange(8, dtype=np.uint8).reshape(1, 8),)},
)
register(
    "View",
    Spaces,
    observation_space=spaces.Box(0, 255, (1, 2), np.uint8),
    observation=np.array([[4, 130]], np.uint8),
)
register(
    "Map",
    Spaces,
    observation_space=spaces.Box(0, 5, (9, 1, 2), np.uint8),
    observation=np.array([[[4, 3]]] * 9, np.uint8),
)
register(
    "Masks",
    Spaces,
    observation_space=spaces.Box(0, 1, (1, 2, 2), np.uint8),
    observation=np.array([[[1, 0], [0, 1]]], np.uint8),
)
register(
    "UnknownCode",
    Spaces,
    observation_space=spaces.Box(0, 5, (1, 2), np.uint8),
    observation=np.array([[5, 9]], np.uint8),
)
register("Mission", Spaces, observation_space=spaces.Text(40), observation="open the Door")
register("Items", Spaces, observation_space=spaces.Dict({"items": spaces.Sequence(spaces.Discrete(3))}))
register(
    "Nameless",
    Spaces,
    observation_space=spaces.Dict({"a.b": spaces.Discrete(2), "a": spaces.Dict({"b": spaces.Discrete(2)})}),
)
register("Many", Spaces, observation_space=spaces.Tuple((spaces.Discrete(5000), spaces.Discrete(2))))
register("Piano", Spaces, action_space=spaces.MultiBinary(10))
register("Video", Spaces, observation_space=spaces.Box(0, 255, (4, 8, 8, 3), np.uint8))
register(
    "FloatImage",
    Spaces,
    observation_space=spaces.Box(0.0, 1.0, (2, 2), np.float64),
    observation=np.array([[0.5, 0.25], [1.0, 0.0]]),
)
register(
    "Integers", Spaces, observation_space=spaces.Box(0, 9, (3,), np.int64), observation=np.array([7, 0, 9], np.int32)
)
register("Torque", Spaces, action_space=spaces.Box(-1.0, 1.0, (2,), np.float32))
register(
    "TwoSticks",
    Spaces,
    observation_space=spaces.Discrete(3),
    action_space=spaces.MultiDiscrete([2, 3]),
    observation=np.int64(1),
)
for mode in AutoresetMode:
    gymnasium.register(f"{mode.value}-v0", vector_entry_point=countdowns, kwargs={"mode": mode})
gymnasium.register("NoMode-v0", vector_entry_point=countdowns, kwargs={"mode": None})
gymnasium.register(
    "CartPoles-v0",
    vector_entry_point="gymnasium.envs.classic_control.cartpole:CartPoleVectorEnv",
    max_episode_steps=500,
)
