# SPDX-License-Identifier: Apache-2.0
"""Tensors that a call writes may not be read-only: neither the program's own (bytes, a frozen array)
nor the system's (a file mapped for reading)."""

import os
import tempfile
import unittest

import numpy as np

from wideep import _tensor_communicator

SLOTS, TOP_K, MAX_TOKENS, HIDDEN = 4, 2, 4, 8


def frozen(array):
    array = array.copy()
    array.flags.writeable = False
    return array


class ReadOnlyTest(unittest.TestCase):
    def setUp(self):
        shape = _tensor_communicator.Shape(1, SLOTS, TOP_K, MAX_TOKENS, HIDDEN, True, 1, SLOTS)
        self.group = _tensor_communicator.create_cpu_group(shape, 10000)
        self.rank = _tensor_communicator.join_cpu(self.group, 0)
        self.rank.set_placement(0, np.arange(SLOTS, dtype=np.int32), np.ones(SLOTS))
        self.experts = np.array([[0, 1], [2, 3]], np.int32)
        self.rows = np.arange(2 * HIDDEN, dtype=np.float32).reshape(2, HIDDEN)
        self.weights = np.ones((2, TOP_K), np.float32)

    def assert_refused(self, name, call):
        with self.assertRaisesRegex(ValueError, name + ": .*may only be read"):
            call()

    def test_slots_of_choose(self):
        secret = bytes(16)
        of_bytes = np.frombuffer(secret, np.int32).reshape(2, TOP_K)
        for slots in (of_bytes, frozen(self.experts)):
            self.assert_refused("slots", lambda: self.rank.choose(self.experts, slots, 0))
        self.assertEqual(secret, bytes(16))
        slots = np.full((2, TOP_K), -1, np.int32)
        self.rank.choose(frozen(self.experts), slots, 0)  # what is only read may be read-only
        np.testing.assert_array_equal(slots, self.experts)

    def test_slots_in_a_mapped_file(self):
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "zeros")
            with open(path, "wb") as file:
                file.write(bytes(4096))
            slots = np.memmap(path, np.int32, "r", shape=(2, TOP_K))
            self.assert_refused("slots", lambda: self.rank.choose(self.experts, slots, 0))

    def test_matrix_of_dispatch(self):
        matrix = np.zeros((MAX_TOKENS * TOP_K, HIDDEN), np.float32)
        rows, slots, weights = frozen(self.rows), frozen(self.experts), frozen(self.weights)
        self.assert_refused(
            "matrix", lambda: self.rank.dispatch(rows, slots, weights, frozen(matrix))
        )
        self.rank.dispatch(rows, slots, weights, matrix)
        np.testing.assert_array_equal(matrix[:4], self.rows[[0, 0, 1, 1]])


if __name__ == "__main__":
    unittest.main()
