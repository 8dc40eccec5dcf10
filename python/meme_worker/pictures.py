"""Pictures that Gymnasium environments draw themselves, for videos."""

import gymnasium
import numpy as np

from .protocol import Refused

# The render mode in which an environment's `render` returns a picture.
MODE = "rgb_array"


def make_env(make, is_rendered):
    """Makes an environment, in the render mode for pictures if they are wanted and it has that mode."""
    env = make()
    if is_rendered and MODE in modes(env):
        env.close()
        env = make(render_mode=MODE)
    return env


def modes(env):
    """Returns the render modes that an environment declares."""
    return list(env.metadata.get("render_modes") or [])


def render_picture(env, index=None):
    """Returns what `render` draws as RGB bytes; for a vector environment, the picture of environment `index`."""
    if env.render_mode != MODE:
        raise Refused(f"its render_modes are {modes(env)}, without {MODE}")
    try:
        picture = env.render()
    except gymnasium.error.DependencyNotInstalled as error:
        raise Refused(" ".join(str(error).split())) from error
    if index is not None:
        count = len(picture) if isinstance(picture, (tuple, list, np.ndarray)) else "no"
        if count != env.num_envs:
            raise Refused(f"its render() returned {count} pictures, expected {env.num_envs}, one per environment")
        picture = picture[index]
    picture = np.asarray(picture)
    if picture.dtype != np.uint8 or picture.ndim != 3 or picture.shape[2] != 3:
        raise Refused(
            f"its render() returned {picture.dtype} of shape {picture.shape}, expected uint8 of shape "
            "(height, width, 3)"
        )
    return picture
