"""MinAtar's games (Young and Tian, 2019): five Atari games on a 10 x 10 grid, for experiments in minutes on two cores.

    .venv/bin/python -m pip install --no-deps minatar==1.0.15
    cd python/examples
    meme train gym:minatar_games:SpaceInvaders-v0 --preset tiny

Each object of a game has a channel of its own. `SpaceInvaders18-v0` and so on have 18 actions, most of which do the same
as another, as in most Atari games. `minatar_proxy.py` beside this file compares settings on one of them.
"""

import logging

import gymnasium
import numpy as np

logging.disable(logging.WARNING)  # MinAtar warns about a missing, unneeded display
import minatar  # noqa: E402

logging.disable(logging.NOTSET)


class MinAtar(gymnasium.Env):
    """A game with its minimal action set, no sticky actions and no rising difficulty."""

    def __init__(self, game, actions=None):
        self.game = minatar.Environment(game, sticky_action_prob=0.0, difficulty_ramping=False)
        self.actions = self.game.minimal_action_set()
        self.action_space = gymnasium.spaces.Discrete(actions or len(self.actions))
        self.observation_space = gymnasium.spaces.Box(0, 1, tuple(self.game.state_shape()), np.bool_)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self.game.seed(seed)
        self.game.reset()
        return self.game.state(), {}

    def step(self, action):
        reward, over = self.game.act(self.actions[action % len(self.actions)])
        return self.game.state(), float(reward), bool(over), False, {}


for name in ("asterix", "breakout", "freeway", "seaquest", "space_invaders"):
    for suffix, actions in (("", None), ("18", 18)):
        gymnasium.register(
            f"{name.title().replace('_', '')}{suffix}-v0",
            entry_point=MinAtar,
            kwargs={"game": name, "actions": actions},
            max_episode_steps=2500,  # a good player of breakout or freeway would never stop
        )
