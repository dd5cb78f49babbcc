# SPDX-License-Identifier: Apache-2.0
"""The arithmetic of the model of time: pairs against a count one by one, shares of all ranks, and costs that are found again
in times made of them; and that docs/cluster.md has what the stored run gives."""

import random
import subprocess
import sys
import unittest
from pathlib import Path

import model as ring


def count(queries, keys, causal, window):
    return sum((not causal or k <= q) and (not window or k >= q - window)
               for q in range(*queries) for k in range(*keys))


def call_of(**changed):
    return {"ranks": 2, "tokens": 4096, "heads": 4, "kv_heads": 2, "channels": 64, "causal": 1, "window": 0,
            "placement": 1, "wire": 0, "head_ranks": 1, **changed}


class Model(unittest.TestCase):
    def test_pairs(self):
        r = random.Random(1)
        for _ in range(300):
            queries, keys = (sorted(r.sample(range(60), 2)) for _ in range(2))
            causal, window = r.random() < 0.7, r.choice((0, 0, 1, 5, 20))
            self.assertEqual(ring.pairs_of(queries, keys, causal, window), count(queries, keys, causal, window))

    def test_shares(self):
        for placement in (0, 1, 2):
            for ranks in (1, 2, 3, 8):
                tokens = sorted(t for rank in range(ranks) for r in ring.ranges_of(placement, 1000, ranks, rank, 7)
                                for t in range(*r))
                self.assertEqual(tokens, list(range(1000)))
        self.assertEqual([ring.ranges_of(0, 11, 3, rank) for rank in range(3)], [[(0, 4)], [(4, 8)], [(8, 11)]])
        self.assertEqual(ring.ranges_of(1, 11, 2, 0), [(0, 3), (9, 11)])

    def test_all_pairs_are_somebodys(self):
        for changed in ({}, {"ranks": 8, "placement": 0, "window": 100}, {"head_ranks": 2}, {"causal": 0, "ranks": 4}):
            call = call_of(**changed)
            pairs = sum(s.pairs for rank in range(call["ranks"]) for s in ring.steps_of(call, rank))
            whole = (0, call["tokens"])
            self.assertEqual(pairs, ring.pairs_of(whole, whole, call["causal"], call["window"]) * 4 * 2 * 64)

    def test_windows_send_to_neighbours_alone(self):
        steps = ring.steps_of(call_of(ranks=8, placement=0, window=100), 5)
        self.assertEqual(len(steps), 2)
        self.assertEqual(steps[1].size, 512 * 2 * 2 * 64 * 4)

    def test_costs_are_found(self):
        messages = [{"message": 8, "seconds": 1e-6}, {"message": 1 << 24, "seconds": 1e-6 + (1 << 24) / 5e9}]
        true = {"start": 1e-4, "pair": 3e-11, "row": 2e-9, "latency": 1e-6, "bandwidth": 5e9}
        calls = [call_of(ranks=ranks, tokens=tokens) for ranks in (1, 2) for tokens in (1024, 2048, 4096, 6144)]
        for call in calls:
            call["best"] = ring.time_of(call, true)
        found = ring.fit(calls, messages)
        for name, value in true.items():
            self.assertAlmostEqual(found[name] / value, 1, delta=0.02, msg=name)

    def test_slow_networks_are_waited_for(self):
        slow = {"start": 0, "pair": 1e-15, "row": 0, "latency": 1.0, "bandwidth": 1e6}
        call = call_of(ranks=4)
        expected = 3 * (1 + 1024 * 2 * 2 * 64 * 4 / 1e6) + 2 * 2 * 1.0
        self.assertAlmostEqual(ring.time_of(call, slow), expected, places=3)


class Document(unittest.TestCase):
    def test_figures_are_those_of_the_run(self):
        here = Path(__file__).resolve().parent
        document = (here.parent.parent / "docs/cluster.md").read_text(encoding="utf-8")
        for command in ("check", "extrapolate"):
            shown = subprocess.run([sys.executable, "-B", here / "model", command, here / "zen3.json"],
                                   stdout=subprocess.PIPE, text=True, check=True).stdout
            for line in filter(None, shown.splitlines()):
                self.assertIn(line, document)


if __name__ == "__main__":
    unittest.main()
