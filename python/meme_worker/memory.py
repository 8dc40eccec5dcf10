"""The shared memory as numpy arrays and a buffer of records; the Rust side defines its layout."""

import mmap
import struct

import numpy as np

# Reward, score, frames, ending, episode, frames at the next episode's first observation.
RECORD = struct.Struct("<ddQQQQ")
LAST = 2
# Height and width, in the reply to a render.
PICTURE_SIZE = struct.Struct("<II")


class SharedMemory:
    """Actions and episode numbers to read; records and observations to write."""

    def __init__(self, descriptor, layout, shape, dtype):
        environments, stride = layout["environments"], layout["stride"]
        self.map = mmap.mmap(descriptor, layout["total"])
        self.actions_at = layout["actions"]
        self.episodes_at = layout["episodes"]
        self.records_at = [layout["records"] + i * RECORD.size for i in range(environments)]
        # Requested bytes of an Atari game's RAM, environment by environment.
        ram = layout["ram_bytes"]
        self.ram = np.frombuffer(self.map, np.uint8, environments * ram, layout["ram"]).reshape(environments, ram)
        size = int(np.prod(shape))
        if size * dtype.itemsize != layout["observation_bytes"] or layout["record_bytes"] != RECORD.size:
            raise ValueError(f"the layout {layout} does not fit observations of shape {shape} and type {dtype}")
        # observations[environment][place]: slots 0 and 1, and the observation that ended an episode.
        self.observations = [
            [
                np.frombuffer(self.map, dtype, size, layout["observations"] + (i * 3 + place) * stride).reshape(shape)
                for place in range(3)
            ]
            for i in range(environments)
        ]

    def actions(self, first, count):
        """Returns the actions of `count` environments from `first` on."""
        return struct.unpack_from(f"<{count}I", self.map, self.actions_at + 4 * first)

    def episode(self, environment):
        """Returns the number of the episode to begin at a reset."""
        return struct.unpack_from("<Q", self.map, self.episodes_at + 8 * environment)[0]

    def record(self, environment, reward, score, frames, ending, episode, first_frames):
        """Writes the outcome of a request in one environment."""
        at = self.records_at[environment]
        RECORD.pack_into(self.map, at, reward, score, frames, ending, episode, first_frames)
