# SPDX-License-Identifier: Apache-2.0
import unittest

import numpy as np

import wideep

LAYERS, EXPERTS, RANKS, SLOTS, TOP_K = 3, 16, 4, 20, 2


def window(kind, seed, tokens=4096):
    """[L, E] tokens; other experts are hot in each kind of text."""
    rng = np.random.default_rng(seed)
    weight = np.ones((LAYERS, EXPERTS))
    for layer in range(LAYERS):
        weight[layer, [(7 * kind + layer + 2 * i) % EXPERTS for i in range(3)]] = 4
    return np.array([rng.multinomial(tokens * TOP_K, row / row.sum()) for row in weight])


def repairer(**options):
    placement = np.tile(np.arange(SLOTS) % EXPERTS, (LAYERS, 1))
    return wideep.Repairer(placement, EXPERTS, RANKS, TOP_K, **options)


class RepairerTest(unittest.TestCase):
    def test_balances_with_few_moves_and_then_stops(self):
        each = repairer(bytes_per_expert=10)
        before = each.placement
        load = window(0, seed=1)
        updates = each.step(load)
        moves = sum(len(update.moves) for update in updates)
        self.assertGreater(moves, 0)
        self.assertEqual(wideep.count_moves(before, each.placement, RANKS).sum(), moves)
        placement = before.copy()
        for update in updates:
            placement[update.layer, update.moves[:, 0]] = update.moves[:, 1]
            self.assertEqual(update.bytes, 10 * len(update.moves))
            self.assertTrue(update.urgent)
            self.assertLess(update.imbalance_after, update.imbalance_before)
        np.testing.assert_array_equal(placement, each.placement)
        later = window(0, seed=2)
        self.assertLess(wideep.imbalance(placement, later, RANKS).max(), 0.08)
        self.assertGreater(wideep.imbalance(before, later, RANKS).mean(), 0.15)
        more = sum(len(update.moves) for seed in range(3, 9) for update in each.step(window(0, seed)))
        self.assertLessEqual(more, 2 * LAYERS)

    def test_weighted_split_needs_fewer_moves(self):
        equal, weighted = repairer(tolerance=0.003), repairer(split="weighted")
        counts = []
        for each in (equal, weighted):
            counts.append(sum(len(u.moves) for seed in range(6) for u in each.step(window(0, seed))))
        self.assertLess(counts[1], counts[0])
        shares = wideep.resplit(weighted.placement, window(0, 99), RANKS)
        self.assertLess(
            wideep.imbalance(weighted.placement, window(0, 99), RANKS, shares).max(), 0.01
        )

    def test_busy_layers_and_max_moves(self):
        each = repairer(max_moves=1)
        updates = each.step(window(0, 1), busy=[True, False, True])
        self.assertEqual([update.layer for update in updates], [1])
        self.assertEqual(len(updates[0].moves), 1)

    def test_counts_in_floating_point_and_equal_calls(self):
        one, other = repairer(), repairer()
        for seed in range(4):
            one.step(window(seed % 2, seed))
            other.step(window(seed % 2, seed).astype(np.float32))
        np.testing.assert_array_equal(one.placement, other.placement)

    def test_follows_the_placement_that_is_served(self):
        each = repairer()
        before = each.placement
        each.step(window(0, 1))
        each.set_placement(1, before[1])
        np.testing.assert_array_equal(each.placement[1], before[1])

    def test_bad_input(self):
        def check(message, function, *args, **kwargs):
            with self.assertRaisesRegex(ValueError, message):
                function(*args, **kwargs)

        check("split: expected", repairer, split="fair")
        check("share_update: expected", repairer, share_update="never")
        check("max_moves", repairer, max_moves=0)
        check("tolerance", repairer, tolerance=-0.1)
        each = repairer()
        check(r"load: expected \(3, 16\)", each.step, np.zeros((3, 5), dtype=int))
        check("whole numbers", each.step, np.full((LAYERS, EXPERTS), 0.5))
        check("layer 0, expert 0: expected 0 to", each.step, np.full((LAYERS, EXPERTS), -1))
        check("busy", each.step, window(0, 1), busy=[True])
        check("expected 0 to 2, found 7", each.set_placement, 7, each.placement[0])
        check(r"expected \(20,\)", each.set_placement, 0, [1, 2])


if __name__ == "__main__":
    unittest.main()
