"""Simulates which policies the bandit would have chosen with other discounts.

    .venv/bin/python bench/bandit.py METRICS --scatter 3 [--discounts 0.999 0.997]

Replays the curves of `actor/score_by_policy` in METRICS (metrics.jsonl of a run, or an excerpt in .jsonl.gz) as if
they did not depend on the bandit. Each episode's policy is chosen as in `crates/agent/src/bandit.rs`, with as many
episodes running at once as there are environments; its return is the policy's score at that time plus noise of the
given scatter. Prints for each discount the score of the evaluation policy in the last quarter of the run, the score of
the policies that the actors played over the whole run, and the best policy's score.
"""

import argparse
import gzip
import json
from pathlib import Path

import numpy as np

BONUS, EPSILON = 1.0, 0.5


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("metrics", type=Path)
    parser.add_argument("--scatter", type=float, required=True, help="standard deviation of episode returns, in points")
    parser.add_argument("--discounts", type=float, nargs="+", default=[0.999, 0.998, 0.997, 0.995, 0.99])
    parser.add_argument("--environments", type=int, default=128)
    parser.add_argument("--repetitions", type=int, default=32)
    args = parser.parse_args()
    ended, scores = curves(args.metrics)
    print("| discount | evaluation policy, last quarter | actors' policies | best policy, last quarter |")
    print("|---:|---:|---:|---:|")
    for discount in args.discounts:
        runs = [
            replay(ended, scores, discount, args.scatter, args.environments, np.random.default_rng(seed))
            for seed in range(args.repetitions)
        ]
        evaluated, best, played = np.mean(runs, axis=0)
        late = -(len(best) // 4)
        print(f"| {discount} | {evaluated[late:].mean():.1f} | {played.mean():.1f} | {best[late:].mean():.1f} |")


def curves(path):
    """Numbers of ended episodes, and the score of each policy at those times."""
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as lines:
        rows = [json.loads(line) for line in lines if line.strip()]
    known = [row for row in rows if None not in row.get("actor/score_by_policy", [None])]
    return [row["actor/episodes"] for row in known], np.array([row["actor/score_by_policy"] for row in known])


def replay(ended, scores, discount, scatter, environments, random):
    """For each episode, when it ends: the scores of the evaluation policy, of the best policy and of its own."""
    arms = scores.shape[1]
    episodes, returns, squares = np.zeros(arms), np.zeros(arms), np.zeros(arms)
    running, rows = [], []
    for episode in range(int(ended[-1])):
        now = scores[min(np.searchsorted(ended, episode), len(ended) - 1)]
        if not episodes.all():
            running.append(random.choice(np.flatnonzero(episodes == 0)))
        elif random.random() < EPSILON:
            running.append(random.integers(arms))
        else:
            running.append(np.argmax(upper_bounds(episodes, returns, squares)))
        if len(running) < environments:
            continue
        arm = running.pop(0)
        value = now[arm] + scatter * random.normal()
        for sums, more in [(episodes, 1.0), (returns, value), (squares, value**2)]:
            sums *= discount
            sums[arm] += more
        means = np.divide(returns, episodes, out=np.full(arms, -np.inf), where=episodes > 0)
        rows.append((now[np.argmax(means)], now.max(), now[arm]))
    return np.transpose(rows)


def upper_bounds(episodes, returns, squares):
    """The UCB-Tuned score of each arm."""
    means, n = returns / episodes, episodes.sum()
    scale2 = max(squares.sum() / n - (returns.sum() / n) ** 2, 0.0)
    rate = max(np.log(n), 0.0) / episodes
    variance = np.maximum(squares / episodes - means**2, 0.0)
    return means + BONUS * np.sqrt(rate * (variance + np.sqrt(2 * rate) * scale2))


if __name__ == "__main__":
    main()
