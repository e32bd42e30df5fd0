# SPDX-License-Identifier: Apache-2.0
"""Dispatch and combine of torch tensors on CPUs, and what is told where there is no GPU. Needs torch."""

import unittest

try:
    import torch
except ImportError:
    raise unittest.SkipTest("no torch")

from rank_threads import run_ranks
from wideep.communicator import TensorGroup

RANKS, SLOTS_PER_RANK, TOP_K, HIDDEN, MAX_TOKENS = 3, 2, 2, 16, 6
OPTIONS = dict(
    num_ranks=RANKS,
    slots_per_rank=SLOTS_PER_RANK,
    top_k=TOP_K,
    max_tokens=MAX_TOKENS,
    hidden=HIDDEN,
    device="cpu",
)


def run_all(body, **options):
    """What body(communicator, rank) returns, or raises, on each rank, a thread each."""
    group = TensorGroup(**{**OPTIONS, **options})
    return run_ranks(group, RANKS, body)


def tokens_of(rank, call, dtype):
    """Whole numbers, so that every sum is exact."""
    random = torch.Generator().manual_seed(100 * call + rank)
    n = (rank * 3 + call) % (MAX_TOKENS + 1)  # none at times
    rows = torch.randint(-8, 9, (n, HIDDEN), generator=random).to(dtype)
    slots = torch.stack(
        [torch.randperm(RANKS * SLOTS_PER_RANK, generator=random)[:TOP_K] for _ in range(n)]
        or [torch.zeros(0)]
    ).reshape(n, TOP_K)
    weights = torch.randint(1, 5, (n, TOP_K), generator=random) / 4
    shared = torch.randint(-4, 5, (n, HIDDEN), generator=random).float()
    return rows, slots.int(), weights, shared


class TensorsTest(unittest.TestCase):
    def test_outputs_are_the_weighted_sums(self):
        for dtype in (torch.bfloat16, torch.float32):

            def body(communicator, rank):
                for call in range(5):
                    rows, slots, weights, shared = tokens_of(rank, call, dtype)
                    received = communicator.dispatch(rows, slots, weights)
                    results = torch.full_like(received.rows, torch.nan)  # beyond the last row
                    for slot, (begin, end) in enumerate(received.ranges()):
                        factor = rank * SLOTS_PER_RANK + slot + 1
                        results[begin:end] = received.rows[begin:end] * factor
                    added = shared if call % 2 else None
                    output = communicator.combine(results, shared=added)
                    each = rows.float()[:, None] * (slots[:, :, None] + 1)
                    expected = (each * weights[:, :, None]).sum(1) + (0 if added is None else added)
                    self.assertTrue(torch.equal(output, expected.bfloat16()))
                communicator.status()
                communicator.close()
                return True

            self.assertEqual(run_all(body, dtype=dtype), [True] * RANKS)

    def test_outputs_go_where_they_are_wanted(self):
        def body(communicator, rank):
            rows, slots, weights, _ = tokens_of(1, 0, torch.bfloat16)
            out = torch.empty(rows.shape, dtype=torch.bfloat16)
            received = communicator.dispatch(rows, slots, weights)
            return communicator.combine(received.rows, out=out) is out

        self.assertEqual(run_all(body), [True] * RANKS)

    def test_wrong_tensors_are_explained(self):
        def body(communicator, rank):
            rows, slots, weights, shared = tokens_of(1, 0, torch.bfloat16)
            good = dict(rows=rows, slots=slots, weights=weights)

            def refused(line, **changes):
                with self.assertRaisesRegex(ValueError, line):
                    communicator.dispatch(**{**good, **changes})

            wanted = r"rows: expected a contiguous tensor \[tokens, 16\] of bfloat16 on cpu, found "
            refused(wanted + r"float32 \[3, 16\] on cpu", rows=rows.float())
            refused(wanted + r"bfloat16 \[3, 8\] on cpu with strides \[16, 2\]", rows=rows[:, ::2])
            refused(wanted + r"bfloat16 \[16\] on cpu", rows=rows[0])
            refused(wanted + r".* strides \[1, 3\]", rows=rows.t().contiguous().t())
            refused(wanted + "'list', which does not give", rows=[[0.0] * 16] * 3)
            refused(wanted + "one that requires a gradient", rows=rows.clone().requires_grad_())
            refused("max_tokens = 6 tokens, found 7", rows=torch.zeros(7, 16, dtype=torch.bfloat16))
            refused(r"slots: .*\[3, 2\] of int32 on cpu, found int64", slots=slots.long())
            refused(r"weights: .*\[3, 2\] of float32 .*found float32 \[2, 2\]", weights=weights[:2])

            received = communicator.dispatch(**good)
            max_rows = RANKS * MAX_TOKENS * TOP_K
            with self.assertRaisesRegex(ValueError, rf"results: .*\[{max_rows}, 16\] .*\[1, 16\]"):
                communicator.combine(received.rows[:1])
            with self.assertRaisesRegex(ValueError, r"shared: .*\[3, 16\] of float32.*bfloat16"):
                communicator.combine(received.rows, shared=shared.bfloat16())
            with self.assertRaisesRegex(ValueError, r"out: .*\[3, 16\] of bfloat16.*\[2, 16\]"):
                communicator.combine(received.rows, out=rows[:2].clone())
            communicator.combine(received.rows)
            return True

        self.assertEqual(run_all(body), [True] * RANKS)

    def test_slots_are_chosen_by_placements_and_tokens_counted(self):
        num_experts, layers = 4, 2
        placements = [[0, 1, 2, 3, 0, 1], [3, 0, 2, 1, 0, 0]]
        shares = [[0.75, 0.5, 1, 1, 0.25, 0.5], None]

        def body(communicator, rank):
            random = torch.Generator().manual_seed(rank)
            expected = torch.zeros(layers, num_experts, dtype=torch.int64)
            for layer in range(layers):
                communicator.set_placement(layer, placements[layer], shares[layer])
            per_slot = torch.zeros(layers, RANKS * SLOTS_PER_RANK, dtype=torch.int64)
            for call in range(8):
                for layer in range(layers):
                    rows, _, weights, _ = tokens_of(rank, call, torch.bfloat16)
                    experts = torch.stack(
                        [torch.randperm(num_experts, generator=random)[:TOP_K] for _ in rows]
                        or [torch.zeros(0)]
                    ).reshape(len(rows), TOP_K)
                    slots = communicator.choose(experts.int(), layer)
                    self.assertEqual(slots.dtype, torch.int32)
                    held = torch.tensor(placements[layer])[slots.long()]
                    self.assertTrue(torch.equal(held, experts.long()))
                    expected[layer] += torch.bincount(experts.flatten().long(), minlength=num_experts)
                    per_slot[layer] += torch.bincount(slots.flatten().long(), minlength=6)
                    # What the experts compute does not depend on where.
                    received = communicator.dispatch(rows, slots, weights)
                    for slot, (begin, end) in enumerate(received.ranges()):
                        expert = placements[layer][rank * SLOTS_PER_RANK + slot]
                        received.rows[begin:end] *= expert + 1
                    output = communicator.combine(received.rows)
                    each = rows.float()[:, None] * (experts[:, :, None] + 1)
                    self.assertTrue(
                        torch.equal(output, (each * weights[:, :, None]).sum(1).bfloat16())
                    )
                communicator.end_iteration()
                if call == 3:
                    loads = communicator.take_loads()
                    self.assertEqual((loads.first_iteration, loads.num_iterations), (0, 4))
                    early = loads
            late = communicator.take_loads()
            self.assertEqual((late.first_iteration, late.num_iterations), (4, 4))
            self.assertTrue((early.experts + late.experts == expected.numpy()).all())
            self.assertTrue((early.slots + late.slots == per_slot.numpy()).all())
            self.assertEqual(communicator.take_loads().num_iterations, 0)
            return per_slot

        chosen = sum(run_all(body, num_layers=layers, num_experts=num_experts))
        # Slots 0 and 4 share expert 0 three to one.
        self.assertAlmostEqual(chosen[0, 0].item() / (chosen[0, 0] + chosen[0, 4]).item(), 0.75, 1)

    def test_wrong_placements_are_explained(self):
        def body(communicator, rank):
            def refused(line, call, *arguments):
                with self.assertRaisesRegex(ValueError, line):
                    call(*arguments)

            experts = torch.tensor([[0, 1]], dtype=torch.int32)
            place, choose = communicator.set_placement, communicator.choose
            refused("layer 0 has no placement", choose, experts)
            refused("layer: expected 0 to 0, found 1", place, 1, [0, 1, 2, 3, 0, 1])
            refused("expected 6 slots, found 3", place, 0, [0, 1, 2])
            refused("expert 3", place, 0, [0, 1, 2, 2, 0, 1])
            refused("shares: expected 6, found 2", place, 0, [0, 1, 2, 3, 0, 1], [1, 1])
            place(0, [0, 1, 2, 3, 0, 1])
            refused("experts: .*int32 on cpu, found int64", choose, experts.long())
            refused("experts: expected 0 to 3, found 4", choose, experts + 3)
            refused("max_tokens = 6 tokens, found 7", choose, experts.repeat(7, 1))
            refused("expected other memory than that of experts", choose, experts, 0, experts)
            with self.assertRaisesRegex(RuntimeError, "restart: an error ends a group on CPUs"):
                communicator.restart([1])
            return True

        self.assertEqual(run_all(body, num_layers=1, num_experts=4), [True] * RANKS)
        with self.assertRaisesRegex(ValueError, "num_layers, num_experts: .* found 1 and 7"):
            TensorGroup(**OPTIONS, num_layers=1, num_experts=7)
        without = run_all(lambda communicator, rank: communicator.take_loads())
        self.assertIn("the group has none", str(without[0]))

    def test_wrong_groups_are_explained(self):
        for line, changes in (
            ("top_k: expected 1 to 6, found 7", dict(top_k=7)),
            ("hidden: expected a multiple of 8, found 12", dict(hidden=12)),
            ('dtype: expected "bfloat16" or "float32"', dict(dtype="float16")),
            ('device: expected "cuda" or "cpu"', dict(device="meta")),
            ("name: expected one that all ranks of the group give", dict(device="cuda")),
        ):
            with self.assertRaisesRegex(ValueError, line):
                TensorGroup(**{**OPTIONS, **changes})

    def test_slots_that_do_not_exist_end_the_group(self):
        def body(communicator, rank):
            rows, slots, weights, _ = tokens_of(1, 0, torch.bfloat16)
            communicator.dispatch(rows, slots + 100 * (rank == 1), weights)

        self.assertRegex(str(run_all(body)[1]), "slot")

    def test_a_missing_rank_ends_the_group(self):
        def body(communicator, rank):
            if rank > 0:
                communicator.dispatch(*tokens_of(1, 0, torch.bfloat16)[:3])

        ended = run_all(body, timeout=0.2)
        self.assertIsInstance(ended[1], TimeoutError)
        self.assertIn("from rank 0", str(ended[1]))

    @unittest.skipIf(torch.cuda.is_available(), "there is a GPU")
    def test_without_a_gpu_one_line_says_what_is_missing(self):
        with self.assertRaisesRegex(RuntimeError, "^CUDA: [^\n]*$"):
            TensorGroup(**{**OPTIONS, "device": "cuda", "name": "test"})


if __name__ == "__main__":
    unittest.main()
