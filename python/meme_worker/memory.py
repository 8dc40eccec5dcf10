"""The shared memory: laid out by the Rust side, seen here as numpy arrays and a buffer of records."""

import mmap
import struct

import numpy as np

# Reward, score, frames, ending, episode, frames at the first observation of the next episode.
RECORD = struct.Struct("<ddQQQQ")
LAST = 2


class SharedMemory:
    """Actions and episode numbers to read; records and observations to write."""

    def __init__(self, descriptor, layout, shape, dtype):
        environments, stride = layout["environments"], layout["stride"]
        self.map = mmap.mmap(descriptor, layout["total"])
        self.actions_at = layout["actions"]
        self.episodes_at = layout["episodes"]
        self.records_at = [layout["records"] + i * RECORD.size for i in range(environments)]
        # Bytes of an Atari game's RAM, environment by environment; none unless they were asked for.
        ram = layout["ram_bytes"]
        self.ram = np.frombuffer(self.map, np.uint8, environments * ram, layout["ram"]).reshape(environments, ram)
        size = int(np.prod(shape))
        if size * dtype.itemsize != layout["observation_bytes"] or layout["record_bytes"] != RECORD.size:
            raise ValueError(f"the layout {layout} is not for observations of shape {shape} and type {dtype}")
        # observations[environment][place]: slots 0 and 1, and the one that ended an episode.
        self.observations = [
            [
                np.frombuffer(self.map, dtype, size, layout["observations"] + (i * 3 + place) * stride).reshape(shape)
                for place in range(3)
            ]
            for i in range(environments)
        ]

    def actions(self, first, count):
        """The actions of `count` environments from `first` on."""
        return struct.unpack_from(f"<{count}I", self.map, self.actions_at + 4 * first)

    def episode(self, environment):
        """The number of the episode that a reset is to begin."""
        return struct.unpack_from("<Q", self.map, self.episodes_at + 8 * environment)[0]

    def record(self, environment, reward, score, frames, ending, episode, first_frames):
        """Writes what a request led to in one environment."""
        at = self.records_at[environment]
        RECORD.pack_into(self.map, at, reward, score, frames, ending, episode, first_frames)
