"""Atari games through ALEInterface."""

import random

import numpy as np
from ale_py import Action, ALEInterface, ALEState, LoggerMode, roms

from .protocol import TERMINATED, TRUNCATED, Foreign, Refused
from .seeding import episode_seed

NOOP = 0
ALL_ACTIONS = [Action(value) for value in range(18)]
# How often to retry, with another number of no-ops, a game that ends during its no-ops.
NOOP_ATTEMPTS = 100
# ALEState is incomplete for these games: ale-py 0.12.1 loses an unfinished picture of the last frame. They are restored
# by replaying the episode's actions.
REPLAYED_GAMES = frozenset({"qbert"})

# The last two frames of the game that is being stepped. One pair for all games stays in the cache, and shared memory,
# which another core reads, is written only once per step.
SCREENS = np.zeros((2, 210, 160), np.uint8)

ALEInterface.setLoggerMode(LoggerMode.Error)


def make_group(settings, run_seed, first_index, count):
    """Makes games that are stepped together."""
    return [AleEnvironment(settings, run_seed, first_index + i) for i in range(count)]


class AleEnvironment:
    """One game. An episode depends only on run seed, index, episode number and the actions."""

    vector = None

    def __init__(self, settings, run_seed, index):
        self.rom = settings["rom"]
        self.action_repeat = settings["action_repeat"]
        self.noop_max = settings["noop_max"]
        self.sticky_probability = settings["sticky_probability"]
        self.frame_cap = settings["frame_cap"]
        self.ram_addresses = np.array(settings["ram"], np.intp)
        self.run_seed, self.index = run_seed, index
        path = roms.get_rom_path(self.rom)
        if path is None:
            raise Refused(f"the installed ale-py has no ROM for {self.rom}")
        self.ale = ALEInterface()
        # ALE's own sticky actions cannot be saved, so they are drawn here.
        self.ale.setFloat("repeat_action_probability", 0.0)
        self.ale.setInt("random_seed", 0)
        self.ale.loadROM(path)
        # In six games the RAM of the last episode affects the next one, so each episode begins from this state.
        self.power_on = self.ale.cloneState(include_rng=True)
        # getLegalActionSet has only 9 actions in skiing, where the others are no-ops.
        actions = ALL_ACTIONS if settings["full_actions"] else self.ale.getMinimalActionSet()
        self.action_names = [action.name.lower() for action in actions]
        self.actions = [action.value for action in actions]
        self.shape = self.ale.getScreenDims()
        if self.shape != SCREENS.shape[1:]:
            raise Refused(f"its screen has size {self.shape}, expected {SCREENS.shape[1:]}")
        self.dtype, self.parts = np.dtype(np.uint8), ()
        self.frames_per_step = self.action_repeat
        self.before_last, self.last = SCREENS
        # Looked up once, for the speed of a step.
        self.act, self.game_over, self.screen = self.ale.act, self.ale.game_over, self.ale.getScreenGrayscale
        self.step_frames, self.before_last_frame = range(self.action_repeat), self.action_repeat - 2
        self.random = random.Random()
        # The agent's actions of the episode, if they are needed to restore it.
        self.history = bytearray() if self.rom in REPLAYED_GAMES else None

    def begin(self, episode, out):
        """Begins an episode and draws its first observation into `out`."""
        ale = self.ale
        self.episode, self.score = episode, 0.0
        self.previous = NOOP
        self.random.seed(episode_seed(self.run_seed, self.index, episode))
        if self.history is not None:
            self.history.clear()
        for _ in range(NOOP_ATTEMPTS):
            ale.restoreState(self.power_on)
            ale.reset_game()
            self.frames = self.random.randint(1, self.noop_max) if self.noop_max else 0
            if self._play_noops(out):
                return
        raise RuntimeError(f"{self.rom} ended during its no-ops {NOOP_ATTEMPTS} times in a row")

    def _play_noops(self, out):
        """Plays `self.frames` no-ops and draws the maximum over the last two frames; False if the game ended."""
        ale = self.ale
        for _ in range(self.frames - 1):
            ale.act(NOOP)
            if ale.game_over():
                return False
        ale.getScreenGrayscale(self.before_last)
        if self.frames:
            ale.act(NOOP)
            if ale.game_over():
                return False
        ale.getScreenGrayscale(self.last)
        np.maximum(self.last, self.before_last, out=out)
        return True

    def step(self, action, out):
        """Holds an action for `action_repeat` frames; returns the reward and the ending, 0 if the episode continues."""
        act, game_over, screen = self.act, self.game_over, self.screen
        sticky, frames, cap, before_last = self.sticky_probability, self.frames, self.frame_cap, self.before_last_frame
        if self.history is not None:
            self.history.append(action)
        wanted = self.actions[action]
        held = self.previous
        reward = 0
        ending = 0
        for frame in self.step_frames:
            if not sticky or self.random.random() >= sticky:
                held = wanted
            reward += act(held)
            frames += 1
            if game_over():
                ending = TERMINATED
                break
            if frames >= cap:
                ending = TRUNCATED
                break
            if frame == before_last:
                screen(self.before_last)
        screen(self.last)
        # An episode that ends before the last frame of a step shows only the frame it ended with.
        if frame > before_last >= 0:
            np.maximum(self.last, self.before_last, out=out)
        else:
            out[...] = self.last
        self.previous = held
        self.frames = frames
        self.score += reward
        return reward, ending

    def read_ram(self, out):
        """Writes the requested bytes of RAM in the requested order."""
        self.ale.getRAM().take(self.ram_addresses, out=out)

    def save(self):
        """Returns everything that `restore` needs, as plain values."""
        origin = (self.run_seed, self.index, self.episode)
        common = {"origin": origin, "options": self._options()}
        if self.history is not None:
            return common | {"actions": bytes(self.history)}
        return common | {
            "emulator": self.ale.cloneState(include_rng=True).serialize(),
            "random": self.random.getstate(),
            "previous": self.previous,
            "frames": self.frames,
            "score": self.score,
        }

    def restore(self, saved, out):
        """Continues from what `save` returned, using `out` as scratch space."""
        if saved["options"] != self._options():
            raise Foreign(f"it was saved with {saved['options']}, but this game is played with {self._options()}")
        # Seed and index are restored too, so that later episodes are the same.
        self.run_seed, self.index, episode = saved["origin"]
        self.begin(episode, out)
        if self.history is not None:
            for action in saved["actions"]:
                self.step(action, out)
            return
        self.ale.restoreState(ALEState(saved["emulator"]))
        self.random.setstate(saved["random"])
        self.previous, self.frames, self.score = saved["previous"], saved["frames"], saved["score"]

    def close(self):
        """Does nothing: there is nothing to close."""

    def _options(self):
        # The names that saved games have.
        options = {
            "repeat": self.action_repeat,
            "sticky": self.sticky_probability,
            "max_frames": self.frame_cap,
            "actions": self.actions,
        }
        # The no-ops matter only if the episode is replayed from its start.
        return options if self.history is None else options | {"noop_max": self.noop_max}
