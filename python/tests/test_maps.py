# SPDX-License-Identifier: Apache-2.0
import unittest

import numpy as np

import wideep
from wideep import maps

PHYSICAL = np.array([[0, 1, 2, 3, 1, 3], [3, 2, 1, 0, 0, 0]])
LOGICAL = np.array([[[0, -1, -1], [1, 4, -1], [2, -1, -1], [3, 5, -1]], [[3, 4, 5], [2, -1, -1], [1, -1, -1], [0, -1, -1]]])
COUNT = np.array([[1, 2, 1, 2], [3, 1, 1, 1]])


class CheckMapsTest(unittest.TestCase):
    def test_good_maps(self):
        self.assertEqual(wideep.check_maps(PHYSICAL, LOGICAL, COUNT), [])
        self.assertEqual(wideep.check_maps(PHYSICAL), [])

    def test_inverse_of_a_random_placement_is_good(self):
        rng = np.random.default_rng(0)
        for _ in range(20):
            placement = rng.permuted(np.tile(np.arange(24) % 16, (3, 1)), axis=1)
            placement[:, rng.integers(24)] = placement[:, 0]
            if (maps.count(placement, 16) == 0).any():
                continue
            count = maps.count(placement, 16)
            self.assertEqual(wideep.check_maps(placement, maps.invert(placement, count), count), [])

    def test_stale_map(self):
        stale = PHYSICAL.copy()
        stale[1, [0, 5]] = stale[1, [5, 0]]
        faults = wideep.check_maps(stale, LOGICAL, COUNT)
        self.assertEqual([(f.layer, f.kind) for f in faults], [(1, "stale"), (1, "missing-replica")])
        self.assertIn("one of the maps is stale", str(faults[0]))
        self.assertIn("(and 1 more like it)", str(faults[0]))

    def test_tokens_dispatched_by_expert_ids(self):
        tokens = np.array([[5, 6, 7, 8], [1, 2, 3, 4]])
        received = np.array([[5, 6, 7, 8, 0, 0], [1, 2, 3, 4, 0, 0]])
        faults = wideep.check_maps(PHYSICAL, physical_tokens=received, logical_tokens=tokens)
        self.assertEqual([(f.layer, f.kind) for f in faults], [(1, "tokens-by-id")])

    def test_notes_are_no_errors(self):
        faults = wideep.check_maps([[0, 0, 1, 2]], ep_size=2)
        self.assertEqual([(f.kind, f.is_error) for f in faults], [("same-rank", False)])

    def test_bad_input(self):
        with self.assertRaisesRegex(ValueError, "count: expected 2 layers"):
            wideep.check_maps(PHYSICAL, count=COUNT[:1])
        with self.assertRaisesRegex(ValueError, "logical_to_physical: expected integers"):
            wideep.check_maps(PHYSICAL, PHYSICAL)
        with self.assertRaisesRegex(ValueError, "physical_to_logical: expected integers"):
            wideep.check_maps(PHYSICAL / 2)


    def test_a_stray_id_asks_for_no_memory(self):
        stray = [[0, 1, 2_000_000_000, 3]]
        with self.assertRaisesRegex(ValueError, "ids from 0 to 1048575, found 2000000000"):
            wideep.check_maps(stray)
        with self.assertRaisesRegex(ValueError, "num_experts: expected 1 to 1048576, found 2000000001"):
            wideep.check_maps(stray, num_experts=2_000_000_001)
        faults = wideep.check_maps(stray, num_experts=4)
        self.assertEqual([f.kind for f in faults], ["no-such-expert", "expert-without-slot"])
        with self.assertRaisesRegex(ValueError, "new: expected expert ids"):
            wideep.count_moves([[0, 1, 2, 3]], stray, 2)
        with self.assertRaisesRegex(ValueError, "placement: expected"):
            maps.count(np.array(stray), 4)


class MovesTest(unittest.TestCase):
    def test_count_moves(self):
        old = [[0, 1, 2, 3, 4, 5]]
        self.assertEqual(wideep.count_moves(old, [[1, 0, 3, 2, 5, 4]], 3).tolist(), [0])
        self.assertEqual(wideep.count_moves(old, [[0, 2, 1, 3, 4, 5]], 3).tolist(), [2])
        self.assertEqual(wideep.count_moves(old, [[0, 1, 2, 3, 4, 0]], 3).tolist(), [1])
        self.assertEqual(wideep.count_moves([[0, 1, 2, -1]], [[0, 1, 2, 0]], 2).tolist(), [1])
        with self.assertRaisesRegex(ValueError, "divisor of 6 slots"):
            wideep.count_moves(old, old, 4)

    def test_keep_slots(self):
        rng = np.random.default_rng(1)
        for _ in range(50):
            old, new = rng.integers(0, 6, (2, 2, 12))
            kept = maps.keep_slots(old, new, 3)
            for layer in range(2):
                for rank in range(3):
                    part = slice(4 * rank, 4 * rank + 4)
                    before, after = old[layer, part], kept[layer, part]
                    self.assertEqual(sorted(after), sorted(new[layer, part]))
                    stay = sum(min((before == e).sum(), (after == e).sum()) for e in range(6))
                    self.assertEqual((before == after).sum(), stay)


if __name__ == "__main__":
    unittest.main()
