"""A world without rewards, to see which values an agent learns there.

    cd python/examples
    meme train gym:skulls:Skulls-v0 --preset tiny --set agent.policies.gamma_max=0.9997

There are many ways to die and a long life is possible, but every score is 0. Policy 0, which has no intrinsic reward,
should therefore learn values of 0 (`policy/q_mean`, `meme plot`). docs/experiments/2026-11-16-target-period.md shows what
it does learn.
"""

import gymnasium
import numpy as np

SIZE, SCALE, LIVES, PAUSE = 12, 2, 4, 5
START, SKULL = (2, 1), (5, 8)
HOLES = [(2, 6), (3, 9), (5, 5), (6, 2), (8, 8), (9, 3), (9, 6)]
# Stay, down, up, right, left, stay, each under three names: many of Atari's 18 actions are equivalent, too.
MOVES = [(0, 0), (1, 0), (-1, 0), (0, 1), (0, -1), (0, 0)]


def walls():
    """Returns True where the way is blocked."""
    walls = np.zeros((SIZE, SIZE), bool)
    walls[[0, -1]] = walls[:, [0, -1]] = True
    walls[4, 2:8] = walls[7, 4:10] = True
    return walls


class Skulls(gymnasium.Env):
    """Holes and a rolling skull; each costs one of four lives, and after a pause the player returns."""

    observation_space = gymnasium.spaces.Box(0, 255, (SIZE * SCALE, SIZE * SCALE), np.uint8)
    action_space = gymnasium.spaces.Discrete(3 * len(MOVES))

    def __init__(self):
        self.walls = walls()

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.player, self.skull, self.rolls, self.lives, self.pause = START, SKULL, -1, LIVES, 0
        return self.picture(), {}

    def step(self, action):
        over = False
        if self.pause:
            self.pause -= 1
            if not self.pause:
                self.player = START
        else:
            self.player = self.beside(self.player, MOVES[action % len(MOVES)])
            rolled = self.beside(self.skull, (0, self.rolls))
            if rolled == self.skull:
                self.rolls = -self.rolls
                rolled = self.beside(self.skull, (0, self.rolls))
            self.skull = rolled
            if self.player == self.skull or self.player in HOLES:
                self.lives, self.pause = self.lives - 1, PAUSE
                over = not self.lives
        return self.picture(), 0.0, over, False, {}

    def beside(self, place, move):
        """Returns where a move leads."""
        there = (place[0] + move[0], place[1] + move[1])
        return place if self.walls[there] else there

    def picture(self):
        """Draws the world, with the remaining lives in the upper wall."""
        picture = np.where(self.walls, 60, 0).astype(np.uint8)
        for hole in HOLES:
            picture[hole] = 110
        picture[0, : self.lives] = 200
        picture[self.skull] = 160
        picture[self.player] = 255
        return picture.repeat(SCALE, 0).repeat(SCALE, 1)


gymnasium.register("Skulls-v0", entry_point=Skulls)
