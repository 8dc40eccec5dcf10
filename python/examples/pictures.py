"""Gymnasium's grid worlds as pictures: an example of your own environments.

    cd python/examples
    meme train gym:pictures:FrozenLakePictures-v0 --preset tiny

All it takes is a module that registers its environments, in the current directory or on Python's path.
docs/environments.md lists the spaces of actions and observations; use a wrapper to convert others.
"""

import gymnasium
import numpy as np

GROUND, GOAL, DANGER, PLAYER = 0, 120, 60, 255


class Pictures(gymnasium.ObservationWrapper):
    """Draws the player on a map instead of returning the number of its cell."""

    def __init__(self, env, background):
        super().__init__(env)
        self.background = background
        self.observation_space = gymnasium.spaces.Box(0, 255, background.shape, np.uint8)

    def observation(self, cell):
        picture = self.background.copy()
        picture[np.unravel_index(int(cell), picture.shape)] = PLAYER
        return picture


def cliff_walking():
    """12 x 4 cells; -1 per step and -100 at the cliff, which leads back to the start. The best score is -13."""
    background = np.full((4, 12), GROUND, np.uint8)
    background[3, 1:11] = DANGER
    background[3, 11] = GOAL
    return Pictures(gymnasium.make("CliffWalking-v1"), background)


def frozen_lake():
    """8 x 8 cells with holes, without slipping; 1 at the goal, which is the best score."""
    env = gymnasium.make("FrozenLake8x8-v1", is_slippery=False)
    colours = {b"S": GROUND, b"F": GROUND, b"H": DANGER, b"G": GOAL}
    background = np.array([[colours[cell] for cell in row] for row in env.unwrapped.desc], np.uint8)
    return Pictures(env, background)


gymnasium.register("CliffWalkingPictures-v0", entry_point=cliff_walking, max_episode_steps=100)
gymnasium.register("FrozenLakePictures-v0", entry_point=frozen_lake)
