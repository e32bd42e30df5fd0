# SPDX-License-Identifier: Apache-2.0
"""Without the engines themselves; scripts/test_integrations.sh has their published modules."""
import os
import tempfile
import unittest
from unittest import mock

import numpy as np

import wideep
from wideep.integrations import PolicyError, sglang, tensorrt_llm, vllm

EXPERTS, RANKS, SLOTS = 16, 4, 24


def some_load(seed=1, layers=3):
    return np.random.default_rng(seed).lognormal(5, 0.8, (layers, EXPERTS))


class VllmTest(unittest.TestCase):
    def setUp(self):
        try:
            import torch
        except ImportError:
            self.skipTest("torch is not installed")
        self.torch = torch

    def rebalance(self, policy, load, old=None, groups=1, nodes=1, slots=SLOTS):
        old = None if old is None else self.torch.tensor(old)
        return policy.rebalance_experts(
            self.torch.tensor(load), slots, groups, nodes, RANKS, old
        ).numpy()

    def test_plan(self):
        load = some_load()
        placement = self.rebalance(vllm.PlanEplbPolicy, load)
        self.assertEqual(placement.dtype, np.int64)
        np.testing.assert_array_equal(placement, wideep.plan(load, SLOTS, RANKS).placement)

    def test_what_stays_keeps_its_slot(self):
        old = self.rebalance(vllm.PlanEplbPolicy, some_load())
        load = some_load(2)
        new = self.rebalance(vllm.PlanEplbPolicy, load, old)
        moves = wideep.count_moves(old, new, RANKS)
        np.testing.assert_array_equal((old != new).sum(axis=1), moves)
        fresh = self.rebalance(vllm.PlanEplbPolicy, load)
        np.testing.assert_array_equal(wideep.count_moves(fresh, new, RANKS), 0)

    def test_repair_moves_less_and_reaches_the_tolerance(self):
        old = self.rebalance(vllm.PlanEplbPolicy, some_load())
        load = some_load() * np.random.default_rng(3).lognormal(0, 0.2, (3, EXPERTS))
        repaired = self.rebalance(vllm.RepairEplbPolicy, load, old)
        planned = self.rebalance(vllm.PlanEplbPolicy, load, old)
        moves = [wideep.count_moves(old, new, RANKS).sum() for new in (repaired, planned)]
        self.assertLess(moves[0], moves[1] / 2)
        self.assertLess(wideep.imbalance(repaired, load, RANKS).max(), 0.05)
        np.testing.assert_array_equal(self.rebalance(vllm.RepairEplbPolicy, load, repaired), repaired)

    def test_repair_plans_where_it_cannot_start(self):
        load = some_load()
        old = self.rebalance(vllm.PlanEplbPolicy, load)
        empty = old.copy()
        empty[:, 6:12] = -1  # ranks that have just come
        lost = np.zeros_like(old)
        for start in (None, empty, lost, old[:, :20]):
            new = self.rebalance(vllm.RepairEplbPolicy, load, start)
            fresh = self.rebalance(vllm.PlanEplbPolicy, load)
            np.testing.assert_array_equal(wideep.count_moves(fresh, new, RANKS), 0)

    def test_groups_stay_on_their_nodes(self):
        old = self.rebalance(vllm.RepairEplbPolicy, some_load(), groups=4, nodes=2)
        new = self.rebalance(vllm.RepairEplbPolicy, some_load(2), old, groups=4, nodes=2)
        for layer in new:
            groups = (set(layer[: SLOTS // 2] // 4), set(layer[SLOTS // 2 :] // 4))
            self.assertFalse(groups[0] & groups[1])

    def test_errors_are_assertions_too(self):
        with self.assertRaisesRegex(AssertionError, "multiple of the 4 ranks, found 23"):
            self.rebalance(vllm.PlanEplbPolicy, some_load(), slots=23)
        with self.assertRaises(ValueError):
            self.rebalance(vllm.PlanEplbPolicy, some_load(), slots=23)

    def test_plugin_does_nothing_unless_asked(self):
        with mock.patch.dict(os.environ):
            os.environ.pop(vllm.POLICY_VARIABLE, None)
            vllm.register_from_environment()
            os.environ[vllm.POLICY_VARIABLE] = "best"
            with self.assertRaisesRegex(PolicyError, "expected repair or plan, found 'best'"):
                vllm.register_from_environment()


class SglangTest(unittest.TestCase):
    def rebalance(self, algorithm, load, groups=None, nodes=1):
        return sglang.rebalance_experts(load, SLOTS, SLOTS // RANKS, groups, nodes, algorithm)

    def test_algorithms(self):
        load = np.stack([some_load(1), some_load(2)])
        placement, inverse, count = self.rebalance("deepseek", load)
        np.testing.assert_array_equal(placement, wideep.plan(load.sum(0), SLOTS, RANKS).placement)
        self.assertEqual(wideep.check_maps(placement, inverse, count), [])
        vec = self.rebalance("deepseek_vec", load)
        np.testing.assert_array_equal(vec[0], placement)
        self.assertEqual(vec[1].shape, (3, EXPERTS, SLOTS - EXPERTS + 1))
        self.assertEqual({array.dtype.name for array in vec}, {"int32"})
        self.assertEqual(wideep.check_maps(*vec), [])
        grouped = self.rebalance("deepseek_hierarchical", load, groups=4, nodes=2)[0]
        for layer in grouped:
            self.assertFalse(set(layer[: SLOTS // 2] // 4) & set(layer[SLOTS // 2 :] // 4))
        with self.assertRaisesRegex(PolicyError, "algorithm: expected"):
            self.rebalance("lplb", load)

    def test_ranks_that_are_down(self):
        active = np.array([1, 0, 1, 1])
        placement, inverse, count = sglang.ElasticityAware.rebalance_experts(
            some_load(), 32, None, 1, RANKS, False, active
        )
        self.assertTrue(np.all(placement[:, 8:16] == 0))
        unused = placement.copy()
        unused[:, 8:16] = -1
        self.assertEqual(wideep.check_maps(unused, inverse, count), [])
        self.assertFalse(np.any((inverse >= 8) & (inverse < 16)))
        all_up = sglang.ElasticityAware.rebalance_experts(
            some_load(), 32, None, 1, RANKS, False, np.ones(RANKS)
        )
        for one, other in zip(all_up, self.deepseek(32)):
            np.testing.assert_array_equal(one, other)

    @staticmethod
    def deepseek(slots):
        return sglang.DeepSeek.rebalance_experts(some_load(), slots, None, 1, RANKS, False)

    def test_errors_are_assertions_too(self):
        with self.assertRaisesRegex(AssertionError, "multiple of the 4 ranks, found 23"):
            self.deepseek(23)
        with self.assertRaisesRegex(PolicyError, "divisor of 24, found 7"):
            sglang.rebalance_experts(some_load()[None], SLOTS, 7, None, 1, "deepseek")


class TensorRtLlmTest(unittest.TestCase):
    def test_yaml(self):
        placement = [[0, 1, 2, 0], [2, 1, 0, 1]]
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "balancer.yaml")
            tensorrt_llm.write_load_balancer(path, placement, layers=[5, 3])
            with open(path) as file:
                self.assertEqual(
                    file.read(),
                    "num_slots: 4\ninitial_global_assignments:\n  3: [2, 1, 0, 1]\n"
                    "  5: [0, 1, 2, 0]\nlayer_updates_per_iter: 0\n",
                )
        config = tensorrt_llm.load_balancer_config(placement, layer_updates_per_iter=2)
        self.assertEqual(config["initial_global_assignments"], dict(enumerate(placement)))
        self.assertEqual(config["layer_updates_per_iter"], 2)

    def test_bad_input(self):
        with self.assertRaisesRegex(ValueError, "layers: expected 1 different"):
            tensorrt_llm.load_balancer_config([[0, 1]], layers=[1, 2])
        with self.assertRaisesRegex(ValueError, "layer 4, slot 1: expected an expert, found -1"):
            tensorrt_llm.load_balancer_config([[0, -1]], layers=[4])


if __name__ == "__main__":
    unittest.main()
