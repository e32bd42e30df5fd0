# SPDX-License-Identifier: Apache-2.0
import sys
import unittest

import numpy as np

import wideep

# The example that DeepSeek publishes: 2 layers of 12 experts, 16 replicas, 4 groups, 2 nodes, 8 GPUs.
WEIGHT = np.array(
    [
        [90, 132, 40, 61, 104, 165, 39, 4, 73, 56, 183, 86],
        [20, 107, 104, 64, 19, 197, 187, 157, 172, 86, 16, 27],
    ]
)
PHYSICAL_TO_LOGICAL = [
    [5, 6, 5, 7, 8, 4, 3, 4, 10, 9, 10, 2, 0, 1, 11, 1],
    [7, 10, 6, 8, 6, 11, 8, 9, 2, 4, 5, 1, 5, 0, 3, 1],
]


class RebalanceExpertsTest(unittest.TestCase):
    def check_maps(self, physical_to_logical, logical_to_physical, count):
        layers, replicas = physical_to_logical.shape
        experts = count.shape[1]
        self.assertEqual(logical_to_physical.shape, (layers, experts, count.max()))
        for array in (physical_to_logical, logical_to_physical, count):
            self.assertEqual(array.dtype, np.int64)
        for layer in range(layers):
            for expert in range(experts):
                slots = [s for s in range(replicas) if physical_to_logical[layer, s] == expert]
                padding = [-1] * (count.max() - len(slots))
                self.assertEqual(list(logical_to_physical[layer, expert]), slots + padding)
                self.assertEqual(count[layer, expert], len(slots))
                self.assertGreater(len(slots), 0)

    def test_deepseeks_published_example(self):
        maps = wideep.rebalance_experts(WEIGHT, 16, 4, 2, 8, planner="deepseek")
        np.testing.assert_array_equal(maps[0], PHYSICAL_TO_LOGICAL)
        self.check_maps(*maps)

    def test_wideeps_planner_is_at_least_as_balanced_and_keeps_groups_on_nodes(self):
        maps = wideep.rebalance_experts(WEIGHT, 16, 4, 2, 8)
        self.check_maps(*maps)
        ours = wideep.imbalance(maps[0], WEIGHT, 8)
        theirs = wideep.imbalance(PHYSICAL_TO_LOGICAL, WEIGHT, 8)
        self.assertTrue(np.all(ours <= theirs + 1e-12), (ours, theirs))
        for layer in maps[0]:
            groups = (set(layer[:8] // 3), set(layer[8:] // 3))
            self.assertFalse(groups[0] & groups[1])

    def test_groups_that_nodes_do_not_divide_are_ignored(self):
        for planner in ("wideep", "deepseek"):
            flat = wideep.rebalance_experts(WEIGHT, 16, 1, 1, 8, planner=planner)
            same = wideep.rebalance_experts(WEIGHT, 16, 3, 2, 8, planner=planner)
            np.testing.assert_array_equal(flat[0], same[0])

    def test_bad_input(self):
        with self.assertRaisesRegex(ValueError, "multiple of the 8 ranks, found 15"):
            wideep.rebalance_experts(WEIGHT, 15, 4, 2, 8)

    def test_numpy_alone_needs_no_torch(self):
        if "torch" not in sys.modules:
            wideep.rebalance_experts(WEIGHT, 16, 4, 2, 8)
            self.assertNotIn("torch", sys.modules)

    def test_tensors_in_tensors_out(self):
        try:
            import torch
        except ImportError:
            self.skipTest("torch is not installed")
        weight = torch.tensor(WEIGHT, dtype=torch.float32)
        maps = wideep.rebalance_experts(weight, 16, 4, 2, 8, planner="deepseek")
        self.assertTrue(all(m.dtype == torch.int64 for m in maps))
        self.assertEqual(maps[0].tolist(), PHYSICAL_TO_LOGICAL)


if __name__ == "__main__":
    unittest.main()
