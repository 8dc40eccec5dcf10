"""How observations of Gymnasium's spaces become arrays of bytes or floats, and actions numbers."""

import itertools
import math

import numpy as np
from gymnasium import spaces

from .protocol import Refused

# Combinations of a space of several actions.
MOST_ACTIONS = 1000
# Values of a vector that is put together from parts; a larger image needs convolutions, and is refused inside a Dict.
MOST_PART_VALUES = 4096


class ObservationFormat:
    """Shape and type of the observations of a space, and their conversion."""

    def __init__(self, space):
        self.space = space
        self.dtype = np.dtype(np.uint8 if is_bytes(space) else np.float32)
        if isinstance(space, spaces.Box) and 1 <= len(space.shape) <= 3 and is_number(space.dtype):
            self.shape = space.shape
        elif isinstance(space, (spaces.MultiBinary, spaces.Discrete, spaces.MultiDiscrete, spaces.Dict, spaces.Tuple)):
            self.shape = (part_values(space, space),)
        else:
            refuse(space, space)
        if math.prod(self.shape) == 0:
            refuse(space, space)

    def write(self, observation, out):
        """Writes an observation to an array of this shape and type; refuses one of another."""
        if isinstance(self.space, spaces.Box):
            array = np.asarray(observation)
            check(array, self.space)
            # True becomes 255, which the networks see as 1.
            out[...] = array * np.uint8(255) if array.dtype == np.bool_ else array
        else:
            end = write_part(self.space, observation, out, 0)
            assert end == len(out)
        if self.dtype == np.float32 and not np.isfinite(out).all():
            raise ValueError(f"the environment returned an observation that is not finite: {observation}")


def is_number(dtype):
    return dtype.kind in "buif"


def is_bytes(space):
    """Whether observations are kept as bytes: a Box of bytes or of booleans."""
    return isinstance(space, spaces.Box) and space.dtype in (np.uint8, np.bool_)


def refuse(space, part):
    where = "" if part is space else f", with the part {part}"
    raise Refused(
        f"its observation space is {space}{where}; expected a Box of numbers or booleans with 1, 2 or 3 dimensions, "
        f"MultiBinary, Discrete or MultiDiscrete, or a Dict or Tuple of these with {MOST_PART_VALUES} values each"
    )


def part_values(space, part):
    """Length of the vector of one part of a space."""
    if isinstance(part, spaces.Discrete):
        length = int(part.n)
    elif isinstance(part, spaces.MultiDiscrete):
        length = int(part.nvec.sum())
    elif isinstance(part, spaces.MultiBinary) or (isinstance(part, spaces.Box) and is_number(part.dtype)):
        length = math.prod(part.shape)
    elif isinstance(part, spaces.Dict):
        return sum(part_values(space, inner) for inner in part.spaces.values())
    elif isinstance(part, spaces.Tuple):
        return sum(part_values(space, inner) for inner in part.spaces)
    else:
        refuse(space, part)
    if length > MOST_PART_VALUES:
        refuse(space, part)
    return length


def write_part(part, value, out, at):
    """Writes a part of an observation from `at` on, and returns the end: one-hot numbers, bytes between 0 and 1."""
    if isinstance(part, spaces.Dict):
        for name, inner in part.spaces.items():
            at = write_part(inner, value[name], out, at)
        return at
    if isinstance(part, spaces.Tuple):
        for inner, one in zip(part.spaces, value, strict=True):
            at = write_part(inner, one, out, at)
        return at
    if isinstance(part, spaces.Discrete):
        return write_one_hot(int(value) - int(part.start), int(part.n), out, at)
    if isinstance(part, spaces.MultiDiscrete):
        start = getattr(part, "start", np.zeros_like(part.nvec))
        for one, first, count in zip(np.asarray(value).flat, start.flat, part.nvec.flat, strict=True):
            at = write_one_hot(int(one) - int(first), int(count), out, at)
        return at
    array = np.asarray(value)
    check(array, part)
    end = at + array.size
    out[at:end] = array.reshape(-1)
    if array.dtype == np.uint8 and isinstance(part, spaces.Box):
        out[at:end] /= 255
    return end


def write_one_hot(value, count, out, at):
    if not 0 <= value < count:
        raise ValueError(f"the environment returned the number {value}, expected one from 0 to {count - 1}")
    out[at : at + count] = 0
    out[at + value] = 1
    return at + count


def check(array, space):
    """Raises an error about an array that is not of the space: another shape, or a type that loses values."""
    if array.shape != space.shape:
        raise ValueError(f"the environment returned an observation of shape {array.shape}, expected {space.shape}")
    if array.dtype != space.dtype and (is_bytes(space) or array.dtype.kind != space.dtype.kind):
        raise ValueError(f"the environment returned an observation of {array.dtype}, expected {space.dtype}")


class ActionFormat:
    """The actions of a space, numbered and named."""

    def __init__(self, env):
        space = env.action_space
        if isinstance(space, spaces.Discrete):
            self.actions = [int(space.start) + i for i in range(int(space.n))]
            self.names = meanings(env, len(self.actions)) or [str(action) for action in self.actions]
            return
        if isinstance(space, spaces.MultiBinary):
            counts, start = [2] * math.prod(space.shape), [0] * math.prod(space.shape)
        elif isinstance(space, spaces.MultiDiscrete):
            counts = [int(count) for count in space.nvec.flat]
            start = [int(first) for first in getattr(space, "start", np.zeros_like(space.nvec)).flat]
        else:
            counts, start = [], []
        if not counts or math.prod(counts) > MOST_ACTIONS:
            raise Refused(
                f"its action space is {space}; expected Discrete, or MultiDiscrete or MultiBinary with up to "
                f"{MOST_ACTIONS} combinations"
            )
        ranges = [range(first, first + count) for first, count in zip(start, counts)]
        combinations = list(itertools.product(*ranges))
        self.actions = [np.array(action, space.dtype).reshape(space.shape) for action in combinations]
        self.names = [",".join(map(str, action)) for action in combinations]


def meanings(env, count):
    """The names that an environment gives its actions, if there is one for each."""
    found = getattr(env.unwrapped, "get_action_meanings", None)
    if not callable(found):
        return None
    names = [str(name).lower() for name in found()]
    return names if len(names) == count else None
