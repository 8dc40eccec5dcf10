"""How observations of Gymnasium's spaces become arrays of bytes or floats, and actions numbers."""

import itertools
import math
import zlib

import numpy as np
from gymnasium import spaces

from .protocol import Refused

# Maximum number of combinations of a space of several actions.
MAX_ACTIONS = 1000
# Maximum length of a one-hot vector.
MAX_ONE_HOT = 4096
# Length of the vector of a text.
TEXT_VALUES = 256
# An image of bytes holds codes, not shades, if its largest declared value is at most this: as shades, all would look
# black.
MAX_CODE = 31
# It also does if neither side is longer than this: MiniGrid declares values up to 255 for the codes of its 7 x 7 cells.
MAX_GRID_SIDE = 7
# Every part of an observation begins at a multiple of this many bytes, and the observation ends at one.
ALIGNMENT = 4


class ObservationFormat:
    """The array that observations of a space become: for a Dict or Tuple, its parts one after the other as bytes."""

    def __init__(self, space):
        leaves = list(find_leaves(space))
        #: The parts of an observation of several.
        self.parts = []
        if len(leaves) == 1:
            self.path, leaf = leaves[0]
            self.array = ArrayFormat(leaf, space)
            self.shape, self.dtype = self.array.shape, self.array.dtype
            return
        end = 0
        for path, leaf in leaves:
            part = Part(path, ArrayFormat(leaf, space), end)
            self.parts.append(part)
            end = aligned(part.place.stop)
        names = {part.name for part in self.parts}
        if "" in names or len(names) != len(leaves) or not leaves:
            raise Refused(f"its observation space is {space}; expected parts with distinct names")
        self.shape, self.dtype = (end,), np.dtype(np.uint8)

    def write(self, observation, out):
        """Writes an observation to an array of this shape and type; refuses one of another."""
        if not self.parts:
            self.array.write(at(observation, self.path), out)
        for part in self.parts:
            part.write(observation, out[part.place].view(part.array.dtype).reshape(part.array.shape))


class Part:
    """One array of an observation of several."""

    def __init__(self, path, array, start):
        self.path, self.array = path, array
        self.name = ".".join(map(str, path))
        #: Its bytes in the observation.
        self.place = slice(start, start + math.prod(array.shape) * array.dtype.itemsize)

    def write(self, observation, out):
        """Writes this part of an observation to an array of its shape and type."""
        self.array.write(at(observation, self.path), out)


class ArrayFormat:
    """Shape and type of the array that the values of a space become, which is `whole` or a part of it."""

    def __init__(self, space, whole):
        self.space = space
        self.dtype = np.dtype(np.uint8 if is_bytes(space) else np.float32)
        #: Bits of a grid's codes, each of which becomes a channel; 0 for all else.
        self.bits = code_bits(space)
        if isinstance(space, spaces.Box) and len(space.shape) <= 3 and is_number(space.dtype):
            self.shape = space.shape or (1,)
        elif (length := vector_length(space)) is not None and length <= MAX_ONE_HOT:
            self.shape = (length,)
        else:
            refuse(whole, space)
        if math.prod(self.shape) == 0:
            refuse(whole, space)
        if self.bits:
            height, width, *channels = self.shape
            self.shape = (height, width, math.prod(channels) * self.bits)

    def write(self, value, out):
        """Writes a value of the space to an array of this shape and type; refuses values of another shape or range."""
        space = self.space
        if isinstance(space, spaces.Discrete):
            write_one_hot([int(value)], [int(space.start)], [int(space.n)], out)
        elif isinstance(space, spaces.MultiDiscrete):
            start = getattr(space, "start", np.zeros_like(space.nvec))
            write_one_hot(*(np.ravel(array).tolist() for array in (value, start, space.nvec)), out)
        elif is_text(space):
            write_words(value, out)
        else:
            array = np.asarray(value)
            check(array, space)
            if self.bits:
                if array.max() > space.high.max():
                    raise ValueError(f"the environment returned {array.max()}, expected codes up to {space.high.max()}")
                array = np.unpackbits(array[..., None], axis=-1)[..., 8 - self.bits :].astype(np.bool_)
            # True becomes 255, which the networks see as 1.
            out[...] = (array * np.uint8(255) if array.dtype == np.bool_ else array).reshape(out.shape)
            if self.dtype == np.float32 and not np.isfinite(out).all():
                raise ValueError(f"the environment returned an observation that is not finite: {value}")


def find_leaves(space, path=()):
    """Yields every space that nested Dicts and Tuples consist of, with its path."""
    if isinstance(space, spaces.Dict):
        inner = space.spaces.items()
    elif isinstance(space, spaces.Tuple):
        inner = enumerate(space.spaces)
    else:
        yield path, space
        return
    for key, part in inner:
        yield from find_leaves(part, (*path, key))


def at(observation, path):
    """Returns the part of an observation at a path."""
    for key in path:
        observation = observation[key]
    return observation


def aligned(end):
    """Returns where the next part begins."""
    return -(-end // ALIGNMENT) * ALIGNMENT


def is_number(dtype):
    return dtype.kind in "buif"


def is_bytes(space):
    """Whether values are kept as bytes: a Box of bytes or of booleans, or text."""
    return isinstance(space, spaces.Box) and space.dtype in (np.uint8, np.bool_) or is_text(space)


def code_bits(space):
    """Bits of the codes of an image of bytes that is a grid of codes; 0 for other spaces."""
    if not isinstance(space, spaces.Box) or space.dtype != np.uint8 or len(space.shape) not in (2, 3):
        return 0
    largest = int(space.high.max(initial=0))
    return largest.bit_length() if largest <= MAX_CODE or max(space.shape[:2]) <= MAX_GRID_SIDE else 0


def is_text(space):
    """Whether a space is of text: Gymnasium's, or one of another package, such as MiniGrid's missions."""
    return space.dtype is not None and np.dtype(space.dtype).kind == "U"


def refuse(whole, part):
    where = "" if part is whole else f", with the part {part}"
    raise Refused(
        f"its observation space is {whole}{where}; expected a Box of numbers or booleans with up to 3 dimensions, "
        f"Discrete, MultiDiscrete or MultiBinary with up to {MAX_ONE_HOT} values, Text, or a Dict or Tuple of these"
    )


def vector_length(space):
    """Length of the vector that values of a space without dimensions become; None if it becomes none."""
    if isinstance(space, spaces.Discrete):
        return int(space.n)
    if isinstance(space, spaces.MultiDiscrete):
        return int(space.nvec.sum())
    if isinstance(space, spaces.MultiBinary):
        return math.prod(space.shape)
    return TEXT_VALUES if is_text(space) else None


def write_one_hot(values, starts, counts, out):
    """Writes numbers, each one of so many from its start on, one-hot and one after the other."""
    out[...], place = 0, 0
    for value, start, count in zip(values, starts, counts, strict=True):
        if not start <= value < start + count:
            raise ValueError(f"the environment returned {value}, expected a number from {start} to {start + count - 1}")
        out[place + value - start] = 1
        place += count


def write_words(text, out):
    """Marks the words of a text and its pairs of neighbours, each at a place that its letters decide."""
    words = text.lower().split()
    out[...] = 0
    for said in [*words, *map(" ".join, itertools.pairwise(words))]:
        out[zlib.crc32(said.encode()) % TEXT_VALUES] = 255


def check(array, space):
    """Raises an error about an array that is not of the space: another shape, or a type that loses values."""
    if array.shape != space.shape:
        raise ValueError(f"the environment returned an observation of shape {array.shape}, expected {space.shape}")
    if array.dtype != space.dtype and (is_bytes(space) or array.dtype.kind != space.dtype.kind):
        raise ValueError(f"the environment returned an observation of {array.dtype}, expected {space.dtype}")


class ActionFormat:
    """The actions of a space, numbered and named."""

    def __init__(self, space, env):
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
        if not counts or math.prod(counts) > MAX_ACTIONS:
            raise Refused(
                f"its action space is {space}; expected Discrete, or MultiDiscrete or MultiBinary with up to "
                f"{MAX_ACTIONS} combinations"
            )
        ranges = [range(first, first + count) for first, count in zip(start, counts)]
        combinations = list(itertools.product(*ranges))
        self.actions = [np.array(action, space.dtype).reshape(space.shape) for action in combinations]
        self.names = [",".join(map(str, action)) for action in combinations]


def meanings(env, count):
    """The names that an environment gives its actions, if there is one for each."""
    found = getattr(env, "get_action_meanings", None)
    if not callable(found):
        return None
    names = [str(name).lower() for name in found()]
    return names if len(names) == count else None
