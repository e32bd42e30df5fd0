# SPDX-License-Identifier: Apache-2.0
"""Dispatch and combine between ranks of one machine: threads of this process, or forks of it.

    group = Group(num_ranks=2, slots_per_rank=4, top_k=2, max_tokens=64, hidden=256)
    # ... in a thread or fork of each rank:
    communicator = group.join(rank)
    received = communicator.dispatch(rows, slots)     # an array [n, hidden] per local slot
    results = communicator.combine([expert(slot, r) for slot, r in enumerate(received)])
    output = (results * weights[:, :, None]).sum(axis=1)        # results: [tokens, top_k, hidden]

Slot s of the group is slot s % slots_per_rank of rank s // slots_per_rank. Every rank calls
dispatch and combine equally often, also with no tokens. Python copies rows into arrays; the C++
interface (wideep/communicator.h) does not.

Of torch tensors, on GPUs or CPUs: TensorGroup (wideep/tensors.py).

Wrong arguments raise ValueError; a rank that misses the timeout raises TimeoutError on all ranks.
Other Python threads run while a call waits.
"""

from __future__ import annotations

from typing import Sequence

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from . import _as_integers, _communicator
from .tensors import Received, TensorCommunicator, TensorGroup

__all__ = ["Communicator", "Group", "Received", "TensorCommunicator", "TensorGroup"]


class Group:
    """The group of ranks. Created once, before the ranks start."""

    def __init__(
        self,
        num_ranks: int,
        slots_per_rank: int,
        top_k: int,
        max_tokens: int,
        hidden: int,
        dtype: DTypeLike = np.float32,
        timeout: float = 30.0,
    ) -> None:
        """max_tokens: of a rank in one dispatch. hidden, dtype: of rows and of results.
        timeout: seconds, for each single wait."""
        self.slots_per_rank = slots_per_rank
        self.top_k = top_k
        self.hidden = hidden
        self.dtype = np.dtype(dtype)
        self._row_bytes = hidden * self.dtype.itemsize
        self._group = _communicator.create_group(
            num_ranks,
            slots_per_rank,
            top_k,
            max_tokens,
            self._row_bytes,
            self._row_bytes,
            round(timeout * 1000),
        )

    def join(self, rank: int) -> Communicator:
        """Called by every rank; waits for all others."""
        return Communicator(self, _communicator.join(self._group, rank))


class Communicator:
    """One rank's access to the group, from Group.join. One thread at a time."""

    def __init__(self, group: Group, communicator: _communicator.Communicator) -> None:
        self._group = group
        self._communicator = communicator
        self._rows = np.empty((0, 0), dtype=np.uint8)  # must not change until combine

    def dispatch(self, rows: ArrayLike, slots: ArrayLike) -> list[np.ndarray]:
        """Sends rows [tokens, hidden] to their slots [tokens, top_k].

        Returns copies of the rows received for each of this rank's slots, [n, hidden] each."""
        group = self._group
        values = np.ascontiguousarray(rows, dtype=group.dtype)
        chosen = _as_integers("slots", slots, np.int32)
        if values.ndim != 2 or values.shape[1] != group.hidden:
            raise ValueError(f"rows: expected [tokens, {group.hidden}], found {values.shape}")
        if chosen.shape != (len(values), group.top_k):
            expected = (len(values), group.top_k)
            raise ValueError(f"slots: expected {expected}, found {chosen.shape}")
        sent = self._to_bytes(values)
        _communicator.dispatch(self._communicator, sent, chosen)
        self._rows = sent  # not before: received rows of own tokens lie in the old array
        return [
            self._to_values(_communicator.received(self._communicator, slot, group._row_bytes))
            for slot in range(group.slots_per_rank)
        ]

    def combine(self, results_of_slots: Sequence[ArrayLike]) -> np.ndarray:
        """Returns the results of this rank's tokens, [tokens, top_k, hidden], in slot order.

        results_of_slots: for each of this rank's slots one result per received row, in order."""
        group = self._group
        if len(results_of_slots) != group.slots_per_rank:
            raise ValueError(
                f"results_of_slots: expected {group.slots_per_rank}, found {len(results_of_slots)}"
            )
        for slot, results in enumerate(results_of_slots):
            values = np.ascontiguousarray(results, dtype=group.dtype)
            received = _communicator.received(self._communicator, slot, group._row_bytes)
            expected = (len(received), group.hidden)
            if values.shape != expected:
                raise ValueError(f"results of slot {slot}: expected {expected}, found {values.shape}")
            _communicator.give_results(self._communicator, slot, self._to_bytes(values))
        _communicator.combine(self._communicator)
        mine = _communicator.results(self._communicator, len(self._rows), group._row_bytes)
        return self._to_values(mine).reshape(len(self._rows), group.top_k, group.hidden)

    def fail(self, message: str) -> None:
        """Ends the group: every rank's call raises this message from now on."""
        _communicator.fail(self._communicator, message)

    def close(self) -> None:
        """Leaves the group: no more calls follow."""
        _communicator.close(self._communicator)

    def _to_bytes(self, values: np.ndarray) -> np.ndarray:
        return values.view(np.uint8).reshape(len(values), self._group._row_bytes)

    def _to_values(self, rows: np.ndarray) -> np.ndarray:
        return rows.view(self._group.dtype).reshape(len(rows), self._group.hidden)
