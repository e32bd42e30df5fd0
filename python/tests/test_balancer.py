# SPDX-License-Identifier: Apache-2.0
import threading
import unittest

import numpy as np

import wideep

LAYERS, EXPERTS, RANKS, SLOTS = 3, 16, 4, 20


def some_load(seed=1):
    return np.random.default_rng(seed).lognormal(5, 0.8, (LAYERS, EXPERTS))


def rank_loads(placement, load, shares):
    """An independent count: [L, R]."""
    tokens = np.take_along_axis(load, placement, axis=1) * shares
    return tokens.reshape(len(load), RANKS, -1).sum(axis=2)


class PlanTest(unittest.TestCase):
    def test_every_planner_places_every_expert(self):
        load = some_load()
        for planner in ("wideep", "trt", "deepseek"):
            plan = wideep.plan(load, SLOTS, RANKS, planner=planner)
            self.assertEqual(plan.placement.shape, (LAYERS, SLOTS))
            self.assertEqual(plan.placement.dtype, np.int32)
            for layer in plan.placement:
                self.assertEqual(set(layer), set(range(EXPERTS)))
            loads = rank_loads(plan.placement, load, plan.shares)
            expected = loads.max(axis=1) / loads.mean(axis=1) - 1
            np.testing.assert_allclose(wideep.imbalance(plan.placement, load, RANKS), expected)
            bound = wideep.lower_bound(load, SLOTS, RANKS)
            self.assertTrue(np.all(bound <= expected + 1e-12))

    def test_weighted_plan_is_perfect_and_its_shares_sum_to_one(self):
        load = some_load()
        plan = wideep.plan(load, SLOTS, RANKS, split="weighted")
        imbalance = wideep.imbalance(plan.placement, load, RANKS, plan.shares)
        np.testing.assert_allclose(imbalance, 0, atol=1e-9)
        for layer in range(LAYERS):
            sums = np.bincount(plan.placement[layer], plan.shares[layer])
            np.testing.assert_allclose(sums, 1)

    def test_experts_chosen_together_share_a_rank(self):
        partner = np.random.default_rng(3).permutation(EXPERTS).reshape(-1, 2)
        counts = np.zeros((LAYERS, EXPERTS, EXPERTS), dtype=np.int64)
        for a, b in partner:
            counts[:, a, b] = counts[:, b, a] = 100
        load = np.full((LAYERS, EXPERTS), 100)
        plan = wideep.plan(load, EXPERTS, RANKS, planner="cooccurrence", pair_counts=counts)
        for layer in plan.placement:
            rank_of = {expert: slot * RANKS // EXPERTS for slot, expert in enumerate(layer)}
            self.assertTrue(all(rank_of[a] == rank_of[b] for a, b in partner))

    def test_pair_counts_are_required_and_checked(self):
        load = some_load()
        with self.assertRaisesRegex(ValueError, "needs pair_counts"):
            wideep.plan(load, SLOTS, RANKS, planner="cooccurrence")
        with self.assertRaisesRegex(ValueError, "pair_counts: expected"):
            wideep.plan(load, SLOTS, RANKS, planner="cooccurrence", pair_counts=load)

    def test_loads_of_any_dtype_and_layout(self):
        load = np.round(some_load()).astype(np.int64)
        expected = wideep.plan(load, SLOTS, RANKS).placement
        for given in (load.tolist(), np.asfortranarray(load), load.astype(np.float32)):
            np.testing.assert_array_equal(wideep.plan(given, SLOTS, RANKS).placement, expected)

    def test_dead_ranks_hold_nothing(self):
        plan = wideep.plan(some_load(), 32, RANKS, rank_slots=[8, 0, 8, 8])
        self.assertTrue(np.all(plan.placement[:, 8:16] == -1))
        self.assertTrue(np.all(plan.placement[:, :8] >= 0))

    def test_threads_plan_at_the_same_time(self):
        load = some_load()
        expected = wideep.plan(load, SLOTS, RANKS).placement
        results = [None] * 4

        def work(i):
            results[i] = wideep.plan(load, SLOTS, RANKS).placement

        threads = [threading.Thread(target=work, args=(i,)) for i in range(len(results))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for result in results:
            np.testing.assert_array_equal(result, expected)


class FollowTest(unittest.TestCase):
    def setUp(self):
        self.plan = wideep.plan(some_load(), SLOTS, RANKS, split="weighted")
        self.later = some_load(seed=2)

    def test_resplit_helps_without_moves(self):
        before = wideep.imbalance(self.plan.placement, self.later, RANKS, self.plan.shares)
        shares = wideep.resplit(self.plan.placement, self.later, RANKS)
        after = wideep.imbalance(self.plan.placement, self.later, RANKS, shares)
        self.assertTrue(np.all(after < before))

    def test_repair_reaches_the_tolerance_and_reports_it(self):
        placement, shares = self.plan
        repair = wideep.repair(
            placement, self.later, RANKS, shares, split="weighted", bytes_per_expert=10
        )
        after = wideep.imbalance(repair.plan.placement, self.later, RANKS, repair.plan.shares)
        np.testing.assert_allclose(repair.imbalance_after, after, atol=1e-9)
        self.assertTrue(np.all(after <= 0.01 + 1e-9))
        self.assertGreater(repair.moves.sum(), 0)
        np.testing.assert_array_equal(repair.bytes, 10 * repair.moves)
        np.testing.assert_allclose(
            repair.imbalance_before, wideep.imbalance(placement, self.later, RANKS, shares)
        )

    def test_max_moves_bounds_every_layer(self):
        repair = wideep.repair(self.plan.placement, self.later, RANKS, max_moves=1)
        self.assertTrue(np.all(repair.moves <= 1))
        none = wideep.repair(self.plan.placement, self.later, RANKS, max_moves=0)
        np.testing.assert_array_equal(none.plan.placement, self.plan.placement)


class BadInputTest(unittest.TestCase):
    def check(self, message, function, *args, **kwargs):
        with self.assertRaisesRegex(ValueError, message):
            function(*args, **kwargs)

    def test_errors_are_one_line(self):
        load = some_load()
        self.check("multiple of the 4 ranks, found 21", wideep.plan, load, 21, RANKS)
        self.check("wideep, trt, deepseek", wideep.plan, load, SLOTS, RANKS, planner="best")
        self.check("split: expected", wideep.plan, load, SLOTS, RANKS, split="fair")
        self.check("load: expected an array", wideep.plan, load[0], SLOTS, RANKS)
        self.check("tolerance", wideep.plan, load, SLOTS, RANKS, tolerance=-1)
        bad = load.copy()
        bad[1, 3] = np.nan
        self.check("layer 1, expert 3", wideep.plan, bad, SLOTS, RANKS)
        self.check("layer 1, expert 3", wideep.lower_bound, bad, SLOTS, RANKS)

    def test_placements_and_shares_must_match(self):
        load = some_load()
        placement, shares = wideep.plan(load, SLOTS, RANKS)
        self.check("3 layers as load, found 2", wideep.resplit, placement[:2], load, RANKS)
        self.check("expected integers", wideep.resplit, shares, load, RANKS)
        self.check("as placement", wideep.imbalance, placement, load, RANKS, shares[:, 1:])
        self.check("layer 0: shares of expert", wideep.repair, placement, load, RANKS, shares / 2)
        placement[2, :] = 0
        self.check("layer 2", wideep.resplit, placement, load, RANKS)


if __name__ == "__main__":
    unittest.main()
