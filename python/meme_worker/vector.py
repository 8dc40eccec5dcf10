"""Vector environments of Gymnasium, which step several environments at once, as a group of a worker."""

import numpy as np
from gymnasium.vector import AutoresetMode

from . import pictures
from .protocol import TERMINATED, TRUNCATED, Refused
from .seeding import episode_seed
from .spaces import ActionFormat, ObservationFormat



class VectorGroup:
    """A vector environment and the outcome of its last step."""

    def __init__(self, env, run_seed, first_index=0, frame_cap=None):
        self.env, self.run_seed, self.first_index, self.frame_cap = env, run_seed, first_index, frame_cap
        self.mode = env.metadata.get("autoreset_mode")
        if not isinstance(self.mode, AutoresetMode):
            raise Refused(
                f"the metadata of its vector environment has autoreset_mode {self.mode!r}, expected one of "
                "gymnasium.vector.AutoresetMode: NEXT_STEP, SAME_STEP or DISABLED"
            )
        self.observation_format = ObservationFormat(env.single_observation_space)
        self.action_format = ActionFormat(env.single_action_space, env.unwrapped)

    def members(self):
        """Returns one member per environment of the group."""
        return [VectorMember(self, place) for place in range(self.env.num_envs)]

    def reset(self, episode):
        """Begins the first episode of every environment."""
        self.observations, _ = self.env.reset(seed=self.seed(0, episode))

    def reset_one(self, place, episode):
        """Begins an episode of one environment, in mode DISABLED, and returns its observation."""
        alone = np.arange(self.env.num_envs) == place
        observations, _ = self.env.reset(seed=self.seed(place, episode), options={"reset_mask": alone})
        return row(observations, place)

    def seed(self, place, episode):
        """Returns the seed of an episode; a vector environment takes one and derives the others from it."""
        return episode_seed(self.run_seed, self.first_index + place, episode) >> 33

    def step(self, actions):
        """Takes one action in every environment."""
        chosen = np.array([self.action_format.actions[action] for action in actions], self.env.action_space.dtype)
        self.observations, self.rewards, self.terminated, self.truncated, self.infos = self.env.step(chosen)


class VectorMember:
    """One environment of a vector environment."""

    frames_per_step = 1

    def __init__(self, vector, place):
        self.vector, self.place = vector, place
        self.shape, self.dtype = vector.observation_format.shape, vector.observation_format.dtype
        self.parts = vector.observation_format.parts
        self.action_names = vector.action_format.names
        # In mode NEXT_STEP, the end that the next step reports; in mode DISABLED, whether an episode has ended.
        self.ending = 0
        # The picture that ended an episode is kept once somebody has asked for pictures.
        self.is_rendered, self.last_picture = False, None

    def begin(self, episode, out):
        """Shows the first observation of an episode, which the vector environment has begun unless in mode DISABLED."""
        vector = self.vector
        if self.ending and vector.mode == AutoresetMode.DISABLED:
            observation = vector.reset_one(self.place, episode)
        else:
            observation = row(vector.observations, self.place)
        self.episode, self.score, self.frames, self.ending = episode, 0.0, 0, 0
        vector.observation_format.write(observation, out)

    def step(self, action, out):
        """Shows the outcome of the vector environment's step; returns the reward and the ending, 0 if none."""
        vector, place = self.vector, self.place
        self.frames += 1
        if self.ending:
            # In mode NEXT_STEP, this step has reset the environment instead of taking the action. So the episode ends
            # here, without a reward, and its last observation is seen twice.
            out[...] = self.last_observation
            return 0.0, self.ending
        ending = TERMINATED if vector.terminated[place] else TRUNCATED if vector.truncated[place] else 0
        if ending and vector.mode == AutoresetMode.SAME_STEP:
            observation = row(vector.infos["final_obs"], place)
        else:
            observation = row(vector.observations, place)
            if ending and self.is_rendered:
                self.last_picture = pictures.render_picture(vector.env, place)
        vector.observation_format.write(observation, out)
        reward = float(vector.rewards[place])
        self.score += reward
        if not ending and self.frames == vector.frame_cap:
            if vector.mode != AutoresetMode.DISABLED:
                raise RuntimeError(
                    f"an episode has lasted {self.frames} steps, the limit (evaluation.frame_cap), but a vector "
                    f"environment with autoreset mode {vector.mode.name} cannot be told to end it; give it a time limit"
                )
            ending = TRUNCATED
        if ending and vector.mode == AutoresetMode.NEXT_STEP:
            self.ending, self.last_observation = ending, out.copy()
            return reward, 0
        self.ending = ending
        return reward, ending

    def render(self, last):
        """Returns the picture of the current state, or of the one that ended the last episode.

        In mode SAME_STEP that state is gone, and the picture before it stands for it.
        """
        self.is_rendered = True
        if last:
            return self.last_picture
        self.last_picture = pictures.render_picture(self.vector.env, self.place)
        return self.last_picture

    def save(self):
        """Refuses: a vector environment holds the state of all its environments."""
        raise Refused("it is part of a vector environment, which cannot be saved one environment at a time")

    def restore(self, saved, out):
        """Refuses, as `save` does."""
        self.save()

    def close(self):
        """Closes the vector environment."""
        if self.place == 0:
            self.vector.env.close()


def row(batch, place):
    """Returns one environment's observation from those of all."""
    if isinstance(batch, dict):
        return {name: row(part, place) for name, part in batch.items()}
    if isinstance(batch, tuple):
        return tuple(row(part, place) for part in batch)
    return batch[place]
