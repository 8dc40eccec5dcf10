"""MiniGrid's DoorKey as colour pictures, with MiniGrid's own wrapper.

    .venv/bin/python -m pip install minigrid==3.2.0
    cd python/examples
    meme train gym:minigrid_pictures:DoorKeyPictures-5x5-v0 --preset tiny --set env.max_side=14

Without the wrapper, `gym:minigrid:MiniGrid-DoorKey-5x5-v0`, the agent sees the codes of the cells.
"""

import gymnasium
from minigrid.wrappers import RGBImgPartialObsWrapper


def door_key(side):
    """The 7 x 7 cells in front of the player, each a picture of 8 x 8 pixels."""
    return RGBImgPartialObsWrapper(gymnasium.make(f"MiniGrid-DoorKey-{side}x{side}-v0"))


for side in (5, 6, 8, 16):
    gymnasium.register(f"DoorKeyPictures-{side}x{side}-v0", entry_point=door_key, kwargs={"side": side})
