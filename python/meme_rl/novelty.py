"""The intrinsic reward of an observation, which is an input of the networks at the next step."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

#: Maximum number of distances that the running mean covers, unless its span is longer.
MAX_MEAN_LENGTH = 100_000


@dataclass
class DistanceMean:
    """d²_m, the running mean of squared neighbour distances."""

    mean: float = 0.0
    count: int = 0

    def update(self, distances: list[float], span: int) -> None:
        """Adds distances: over all of them at first, later over about the last quarter."""
        for distance in distances:
            self.count += 1
            n = min(self.count, max(span, min(self.count // 4, max(MAX_MEAN_LENGTH, span))))
            self.mean += (distance - self.mean) / n


@dataclass
class EpisodicNovelty:
    """How unusual an embedding is within its episode: a memory of the episode's embeddings, and d²_m."""

    #: The section `intrinsic.kernel` of a run's config.
    kernel: Mapping[str, Any]
    capacity: int
    distances: DistanceMean = field(default_factory=DistanceMean)
    _memory: Tensor = field(default_factory=lambda: torch.empty(0, 0))
    _inserted: int = 0

    def start_episode(self) -> None:
        """Forgets the episode; d²_m stays."""
        self._inserted = 0

    def observe(self, embedding: Tensor) -> float:
        """Returns r_episodic of f(x_t) [E] in f32 on the CPU, and adds it to the memory."""
        length = min(self._inserted, self.capacity)
        reward = 0.0
        if length > 0:
            squares = (self._memory[:length] - embedding).square().sum(dim=1)
            nearest = squares.topk(min(self.kernel["neighbours"], length), largest=False).values.tolist()
            self.distances.update(nearest, self.kernel["mean_span"])
            similarity = self._similarity(nearest)
            reward = 0.0 if similarity > self.kernel["max_similarity"] else 1 / similarity
        if self._inserted >= len(self._memory) and len(self._memory) < self.capacity:
            room = torch.empty(min(self.capacity, max(256, 2 * length)), len(embedding))
            if length > 0:
                room[:length] = self._memory[:length]
            self._memory = room
        self._memory[self._inserted % self.capacity] = embedding
        self._inserted += 1
        return reward

    def _similarity(self, nearest: list[float]) -> float:
        """s = √(Σ_i K_i) + c, K_i = ε / (max(d²_i/d²_m − ξ, 0) + ε); k times the mean with fewer than k neighbours."""
        epsilon, mean = self.kernel["epsilon"], self.distances.mean
        total = 0.0
        for distance in nearest:
            normalised = distance / mean if mean > 0 else 0.0
            total += epsilon / (max(normalised - self.kernel["cluster_distance"], 0.0) + epsilon)
        return math.sqrt(total * self.kernel["neighbours"] / len(nearest)) + float(self.kernel["pseudo_count"])


@dataclass(frozen=True)
class LifelongNovelty:
    """The factor of the episodic reward: how unusual an RND error is over all of training, clamped to 1..L."""

    mean: float
    std: float
    scale: float
    limit: float

    @classmethod
    def from_moments(cls, errors: Mapping[str, Any], intrinsic: Mapping[str, Any]) -> "LifelongNovelty":
        """From `rnd_errors` of `agent.json` and the section `intrinsic` of a run's config."""
        mean, variance = 0.0, 0.0
        if errors["updates"] > 0:
            mean = errors["first"] / errors["weight"]
            variance = max(errors["second"] / errors["weight"] - mean * mean, 0.0)
        return cls(mean, math.sqrt(variance), intrinsic["rnd_scale"], intrinsic["rnd_clip"])

    def multiplier(self, error: float) -> float:
        """min{max{1 + s (err − μ_e)/σ_e, 1}, L}."""
        novelty = 1 + self.scale * (error - self.mean) / self.std if self.std > 0 else 1.0
        return min(max(novelty, 1.0), self.limit)
