"""Tests of `bandit.py` on made-up curves: `python -m unittest discover -s bench`."""

import json
import tempfile
import unittest
from pathlib import Path

import numpy as np

import bandit


class Bandit(unittest.TestCase):
    def test_smaller_discount_finds_a_new_best_policy_sooner(self):
        # Policy 0 scores 5 throughout; policy 1 scores 0 until half-time, then 10.
        ended, scores = [500, 501, 1000], np.array([[5.0, 0.0], [5.0, 10.0], [5.0, 10.0]])
        late = {}
        for discount in (0.999, 0.98):
            evaluated, best, played = bandit.replay(ended, scores, discount, 0.1, 4, np.random.default_rng(1))
            self.assertTrue((evaluated <= best).all() and (played <= best).all())
            self.assertEqual(len(played), 1000 - 3)
            late[discount] = evaluated[500:].mean()
        self.assertGreater(late[0.98], late[0.999] + 1.0)

    def test_upper_bounds_follow_the_formula(self):
        # All 4 returns: mean 2, variance 1.5. First arm: mean 1, variance 0. Second arm: mean 3, variance 1.
        found = bandit.upper_bounds(np.array([2.0, 2.0]), np.array([2.0, 6.0]), np.array([2.0, 20.0]))
        rate = np.log(4.0) / 2.0
        wanted = [1 + np.sqrt(rate * np.sqrt(2 * rate) * 1.5), 3 + np.sqrt(rate * (1 + np.sqrt(2 * rate) * 1.5))]
        np.testing.assert_allclose(found, wanted)

    def test_skips_rows_without_a_score_for_every_policy(self):
        rows = [{}, {"actor/score_by_policy": [1, None]}, {"actor/score_by_policy": [1, 2], "actor/episodes": 9}]
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / "metrics.jsonl"
            path.write_text("\n".join(json.dumps(row) for row in rows))
            ended, scores = bandit.curves(path)
        self.assertEqual((ended, scores.tolist()), ([9], [[1, 2]]))


if __name__ == "__main__":
    unittest.main()
