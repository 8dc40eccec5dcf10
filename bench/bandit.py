"""What the bandit would have chosen in a run, had it remembered more or fewer episodes.

    .venv/bin/python bench/bandit.py METRICS --scatter 3 [--discounts 0.999 0.997]

goes through the curves of `actor/score_by_policy` in METRICS (metrics.jsonl of a run, or a part of it in .jsonl.gz) as
if they had come about by themselves: the policy of every episode is chosen as `crates/agent/src/bandit.rs` does,
with as many others under way as there are environments, and its return is what the policy scored at the time, give or
take the scatter. For each discount it prints the score of the policy for evaluation in the last quarter of the run, and
that of what actors played in all of it; beside them the best policy's.
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
    parser.add_argument("--scatter", type=float, required=True, help="deviation of an episode's return, in points")
    parser.add_argument("--discounts", type=float, nargs="+", default=[0.999, 0.998, 0.997, 0.995, 0.99])
    parser.add_argument("--environments", type=int, default=128)
    parser.add_argument("--repetitions", type=int, default=32)
    args = parser.parse_args()
    ended, scores = curves(args.metrics)
    print("| discount | policy for evaluation, last quarter | actors' policies | best policy, last quarter |")
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
    """Episodes that had ended, and the score of each policy then."""
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as lines:
        rows = [json.loads(line) for line in lines if line.strip()]
    known = [row for row in rows if None not in row.get("actor/score_by_policy", [None])]
    return [row["actor/episodes"] for row in known], np.array([row["actor/score_by_policy"] for row in known])


def replay(ended, scores, discount, scatter, environments, random):
    """Of every episode, when it ends: the score of the policy for evaluation, the best one's, and its own."""
    arms = scores.shape[1]
    episodes, returns, squares = np.zeros(arms), np.zeros(arms), np.zeros(arms)
    under_way, told = [], []
    for episode in range(int(ended[-1])):
        now = scores[min(np.searchsorted(ended, episode), len(ended) - 1)]
        if not episodes.all():
            under_way.append(random.choice(np.flatnonzero(episodes == 0)))
        elif random.random() < EPSILON:
            under_way.append(random.integers(arms))
        else:
            under_way.append(np.argmax(upper_bounds(episodes, returns, squares)))
        if len(under_way) < environments:
            continue
        arm = under_way.pop(0)
        value = now[arm] + scatter * random.normal()
        for sums, more in [(episodes, 1.0), (returns, value), (squares, value**2)]:
            sums *= discount
            sums[arm] += more
        means = np.divide(returns, episodes, out=np.full(arms, -np.inf), where=episodes > 0)
        told.append((now[np.argmax(means)], now.max(), now[arm]))
    return np.transpose(told)


def upper_bounds(episodes, returns, squares):
    """UCB-Tuned's score of each arm."""
    means, n = returns / episodes, episodes.sum()
    scale2 = max(squares.sum() / n - (returns.sum() / n) ** 2, 0.0)
    rate = max(np.log(n), 0.0) / episodes
    variance = np.maximum(squares / episodes - means**2, 0.0)
    return means + BONUS * np.sqrt(rate * (variance + np.sqrt(2 * rate) * scale2))


if __name__ == "__main__":
    main()
