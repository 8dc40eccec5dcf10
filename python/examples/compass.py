"""A dictionary of a picture and vectors: find the goal on a small field, with a compass that points the way.

    cd python/examples
    meme train gym:compass:Compass-v0 --preset tiny

Only the picture shows the agent (red) and the walls (green), and only the compass shows the direction, so a good agent
needs both.
"""

import gymnasium
import numpy as np
from gymnasium import spaces

SIDE = 7
MOVES = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}
STEPS = 40


class Compass(gymnasium.Env):
    """Reward 1 at the goal; an episode is cut off after 40 steps."""

    observation_space = spaces.Dict(
        {
            "field": spaces.Box(0, 1, (SIDE, SIDE, 3), np.bool_),
            "compass": spaces.Box(-1, 1, (2,), np.float32),
            "near": spaces.Discrete(2),
        }
    )
    action_space = spaces.Discrete(len(MOVES))

    def get_action_meanings(self):
        return list(MOVES)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        cells = self.np_random.permutation(SIDE * SIDE)
        self.walls = {divmod(int(cell), SIDE) for cell in cells[2:8]}
        self.agent, self.goal = (np.array(divmod(int(cell), SIDE)) for cell in cells[:2])
        self.steps = 0
        return self._observe(), {}

    def step(self, action):
        there = np.clip(self.agent + list(MOVES.values())[action], 0, SIDE - 1)
        if tuple(map(int, there)) not in self.walls:
            self.agent = there
        self.steps += 1
        found = bool((self.agent == self.goal).all())
        return self._observe(), float(found), found, self.steps == STEPS, {}

    def _observe(self):
        field = np.zeros((SIDE, SIDE, 3), np.bool_)
        field[tuple(self.agent)][0] = True
        for wall in self.walls:
            field[wall][1] = True
        way = self.goal - self.agent
        compass = (way / max(1, np.abs(way).max())).astype(np.float32)
        return {"field": field, "compass": compass, "near": int(np.abs(way).sum() == 1)}


gymnasium.register("Compass-v0", entry_point=Compass)
