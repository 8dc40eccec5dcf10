"""Plays one environment with plain ale-py; written from docs/environments.md, not from the worker's code.

    python reference_ale.py GAME STEPS SEED INDEX STICKY MAX_FRAMES ACTION_SEED

Every episode gets a newly loaded emulator. Writes to standard output, little-endian: the first observation; then for
each agent step the reward (f64), the ending (u8: 0 none, 1 terminated, 2 truncated), the observation; and after an
ending the score (f64), the frames (u64) and the first observation of the next episode.
"""

import random
import struct
import sys

import numpy as np
from ale_py import ALEInterface, LoggerMode, roms

ALEInterface.setLoggerMode(LoggerMode.Error)
game, steps, seed, index, sticky, max_frames, action_seed = sys.argv[1:]
steps, seed, index, max_frames, action_seed = map(int, (steps, seed, index, max_frames, action_seed))
sticky = float(sticky)
out = sys.stdout.buffer


def splitmix(x):
    x = (x + 0x9E3779B97F4A7C15) % 2**64
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    x = (x ^ x >> 27) * 0x94D049BB133111EB % 2**64
    return x ^ x >> 31


class Episode:
    def __init__(self, number):
        self.ale = ALEInterface()
        self.ale.setFloat("repeat_action_probability", 0.0)
        self.ale.loadROM(roms.get_rom_path(game))
        self.ale.reset_game()
        self.random = random.Random(splitmix(splitmix(splitmix(seed) ^ index) ^ number))
        self.number, self.score, self.executed = number, 0.0, [0]
        screens = [self.ale.getScreenGrayscale()]
        for _ in range(self.random.randint(1, 30)):
            self.ale.act(0)
            screens.append(self.ale.getScreenGrayscale())
        assert not self.ale.game_over()
        self.frames = len(screens) - 1
        out.write(np.maximum(screens[-1], screens[-2]).tobytes())

    def step(self, action):
        screens, reward, ending = [], 0.0, 0
        while len(screens) < 4 and not ending:
            repeats = sticky > 0 and self.random.random() < sticky
            self.executed.append(self.executed[-1] if repeats else action)
            reward += self.ale.act(self.executed[-1])
            screens.append(self.ale.getScreenGrayscale())
            self.frames += 1
            ending = 1 if self.ale.game_over() else 2 if self.frames == max_frames else 0
        self.score += reward
        observation = np.maximum(screens[-1], screens[-2]) if len(screens) == 4 else screens[-1]
        out.write(struct.pack("<dB", reward, ending) + observation.tobytes())
        if not ending:
            return self
        out.write(struct.pack("<dQ", self.score, self.frames))
        return Episode(self.number + 1)


episode = Episode(0)
for step in range(steps):
    episode = episode.step(splitmix(action_seed + step) % 18)
