# SPDX-License-Identifier: Apache-2.0
import sys
import unittest
from unittest import mock

import numpy as np

from rank_threads import run_ranks
from wideep.communicator import Group, TensorGroup

RANKS, SLOTS_PER_RANK, TOP_K, HIDDEN = 3, 2, 2, 5


def run_all(body, **options):
    """What body(communicator, rank) returns, or raises, on each rank, a thread each."""
    settings = dict(num_ranks=RANKS, slots_per_rank=SLOTS_PER_RANK, top_k=TOP_K, max_tokens=8)
    group = Group(hidden=HIDDEN, **{**settings, **options})
    return run_ranks(group, RANKS, body)


class CommunicatorTest(unittest.TestCase):
    def test_tensors_say_what_they_need(self):
        with mock.patch.dict(sys.modules, {"torch": None}):  # as if it were not installed
            with self.assertRaisesRegex(ImportError, "pip install torch"):
                TensorGroup(2, 2, 2, 8, 16, device="cpu")

    def test_every_row_comes_back_from_its_experts(self):
        for dtype in (np.float32, np.float64, np.int16):

            def body(communicator, rank):
                rng = np.random.default_rng(rank)
                for call in range(4):
                    tokens = (rank * 3 + call) % 5  # none at times
                    rows = rng.integers(-50, 50, (tokens, HIDDEN)).astype(dtype)
                    slots = np.array(
                        [rng.permutation(RANKS * SLOTS_PER_RANK)[:TOP_K] for _ in range(tokens)]
                    ).reshape(tokens, TOP_K)
                    received = communicator.dispatch(rows, slots)
                    experts = [rank * SLOTS_PER_RANK + slot for slot in range(SLOTS_PER_RANK)]
                    results = communicator.combine(
                        [each * 2 + expert for each, expert in zip(received, experts)]
                    )
                    np.testing.assert_array_equal(results, rows[:, None] * 2 + slots[:, :, None])
                    self.assertEqual(results.dtype, dtype)
                communicator.close()
                return True

            self.assertEqual(run_all(body, dtype=dtype), [True] * RANKS)

    def test_wrong_arguments_are_explained(self):
        with self.assertRaisesRegex(ValueError, "top_k: expected 1 to 6, found 7"):
            Group(RANKS, SLOTS_PER_RANK, 7, 8, HIDDEN)

        def body(communicator, rank):
            rows = np.zeros((1, HIDDEN))
            with self.assertRaisesRegex(ValueError, r"rows: expected \[tokens, 5\], found \(1, 4\)"):
                communicator.dispatch(rows[:, 1:], [[0, 1]])
            with self.assertRaisesRegex(ValueError, r"slots: expected \(1, 2\), found \(1, 1\)"):
                communicator.dispatch(rows, [[0]])
            with self.assertRaisesRegex(ValueError, "slots: expected -2147483648 to 2147483647"):
                communicator.dispatch(rows, [[2**32 + 1, 0]])
            with self.assertRaisesRegex(ValueError, "slots: expected integers, found float64"):
                communicator.dispatch(rows, [[0.7, 1.2]])
            received = communicator.dispatch(rows, [[0, 1]])
            with self.assertRaisesRegex(ValueError, "results_of_slots: expected 2, found 0"):
                communicator.combine([])
            with self.assertRaisesRegex(ValueError, "results of slot 0: expected"):
                communicator.combine([np.zeros((7, HIDDEN))] * 2)
            communicator.combine(received)
            return True

        self.assertEqual(run_all(body), [True] * RANKS)

    def test_a_missing_rank_ends_the_group(self):
        def body(communicator, rank):
            if rank > 0:
                communicator.dispatch(np.zeros((0, HIDDEN)), np.zeros((0, TOP_K)))

        ended = run_all(body, timeout=0.2)
        self.assertIsInstance(ended[1], TimeoutError)
        self.assertIn("from rank 0", str(ended[1]))


if __name__ == "__main__":
    unittest.main()
