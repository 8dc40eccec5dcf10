"""Scores of an agent in a Gymnasium environment."""

import statistics
from dataclasses import dataclass
from typing import Any

import gymnasium

from .agent import Agent


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


def evaluate(agent: Agent, env: gymnasium.Env[Any, Any], episodes: int = 10, seed: int | None = None) -> Evaluation:
    """Plays greedy episodes; with a seed, always the same ones."""
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
