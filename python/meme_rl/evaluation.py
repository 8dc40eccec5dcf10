"""Scores of an agent in a Gymnasium environment."""

import secrets
import statistics
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from meme_worker.vector import VectorGroup

from .agent import Agent, PlayState


@dataclass(frozen=True)
class Evaluation:
    """Scores of greedy episodes."""

    #: Sum of rewards of each episode.
    scores: list[float]
    #: Steps of each episode.
    steps: list[int]

    @property
    def mean(self) -> float:
        """Mean score."""
        return statistics.fmean(self.scores)

    @property
    def std(self) -> float | None:
        """Standard deviation with n - 1 in the denominator; None for a single episode."""
        return statistics.stdev(self.scores) if len(self.scores) > 1 else None


def evaluate(
    agent: Agent,
    env: gymnasium.Env[Any, Any] | gymnasium.vector.VectorEnv[Any, Any, Any],
    episodes: int = 10,
    seed: int | None = None,
) -> Evaluation:
    """Plays greedy episodes; with a seed, always the same ones.

    A vector environment, in any autoreset mode, plays several at once, an equal share in each of its environments.
    """
    if isinstance(env, gymnasium.vector.VectorEnv):
        return _evaluate_together(agent, env, episodes, seed)
    scores: list[float] = []
    steps: list[int] = []
    state = None
    for episode in range(episodes):
        observation, _ = env.reset(seed=seed if episode == 0 else None)
        score, length, ended, reward = 0.0, 0, False, 0.0
        while not ended:
            # The state passes on to the next episode: the usual distance between neighbours is learned over all.
            action, state = agent.act(observation, state, reward=reward, first=[length == 0])
            observation, earned, terminated, truncated, _ = env.step(action)
            reward = float(earned)
            score, length, ended = score + reward, length + 1, terminated or truncated
        scores.append(score)
        steps.append(length)
    return Evaluation(scores, steps)


def _evaluate_together(
    agent: Agent, env: gymnasium.vector.VectorEnv[Any, Any, Any], episodes: int, seed: int | None
) -> Evaluation:
    count = env.num_envs
    group = VectorGroup(env, secrets.randbits(64) if seed is None else seed)
    members = group.members()
    observations = np.empty((count, *members[0].shape), members[0].dtype)
    group.reset(0)
    for member, observation in zip(members, observations, strict=True):
        member.begin(0, observation)
    rewards, first = [0.0] * count, [True] * count
    played: dict[int, tuple[float, int]] = {}
    state: PlayState | None = None
    while len(played) < episodes:
        actions, state = agent.act(observations, state, reward=rewards, first=first)
        group.step(actions.tolist())
        for i, (member, observation) in enumerate(zip(members, observations, strict=True)):
            rewards[i], ending = member.step(actions[i], observation)
            first[i] = bool(ending)
            if ending:
                # The first to end are the short ones, so each environment plays its share.
                number = member.episode * count + i
                if number < episodes:
                    played[number] = (member.score, member.frames)
                member.begin(member.episode + 1, observation)
    scores, steps = zip(*(played[number] for number in range(episodes)), strict=True)
    return Evaluation(list(scores), list(steps))
