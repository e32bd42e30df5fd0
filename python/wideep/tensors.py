# SPDX-License-Identifier: Apache-2.0
"""Dispatch and combine of torch tensors between the ranks of one machine, on GPUs or CPUs.

    group = TensorGroup(num_ranks=2, slots_per_rank=4, top_k=2, max_tokens=64, hidden=256,
                        device="cuda", name="job 17")
    communicator = group.join(rank)                             # in a process or thread of each rank
    received = communicator.dispatch(rows, slots, weights)      # rows by slot
    for slot, (begin, end) in enumerate(received.ranges()):
        results[begin:end] = expert(slot, received.rows[begin:end])
    output = communicator.combine(results)                      # [tokens, hidden] bfloat16

Slot s of the group is slot s % slots_per_rank of rank s // slots_per_rank. Every rank calls dispatch
and combine equally often, also with no tokens. Tensors are taken by DLPack without a copy; what does
not fit (dtype, device, shape, strides) raises ValueError with one line that tells both.

The output of a token has the same bits on GPUs and on CPUs, for every number of ranks and placement,
if the experts' results have.

With num_layers and num_experts the group also chooses slots, and counts tokens for the balancer:

    communicator.set_placement(layer, slot_to_expert, shares)   # as wideep.plan returns them
    slots = communicator.choose(experts, layer)                 # [tokens, top_k], before dispatch
    communicator.end_iteration()
    loads = communicator.take_loads()                           # now and then, for the next plan

device="cuda": ranks are processes that agree on a name, or threads. Nothing waits for the GPU: calls
go to torch's current stream, and can be captured in a CUDA graph (but for ranges()). What kernels
find later (a slot that does not exist, a rank that does not come) is raised by status().

device="cpu": ranks are threads, or forks of the process that made the group, which needs no name.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Optional, Sequence

import numpy as np
from numpy.typing import ArrayLike

from . import _tensor_communicator
from ._arrays import as_integers, to_numpy


def _import_torch() -> Any:
    """Only tensors need it: the rest of the package does without."""
    try:
        import torch
    except ImportError as error:
        raise ImportError(
            "TensorGroup needs PyTorch, which cannot be imported: pip install torch (for numpy arrays "
            "there is wideep.communicator.Group)"
        ) from error
    return torch


class Received(NamedTuple):
    """Valid until the next dispatch."""

    rows: Any  # [max_rows, hidden] tensor: those of slot 0, of slot 1, ...; then undefined ones
    starts: Any  # [slots_per_rank + 1] int32 tensor: where each slot's rows begin; last, their end

    def ranges(self) -> list[tuple[int, int]]:
        """(begin, end) of each slot's rows, on the host: waits for the GPU."""
        starts = self.starts.tolist()
        return list(zip(starts[:-1], starts[1:]))


class Loads(NamedTuple):
    """Tokens of a rank, summed over iterations."""

    first_iteration: int  # counted from 0
    num_iterations: int  # 0: none has ended since the last time
    experts: np.ndarray  # [num_layers, num_experts] int64
    slots: np.ndarray  # [num_layers, slots of the group] int64


class TensorGroup:
    """What all ranks have equal. Of device "cpu" one for all ranks, created before they start; of
    "cuda" each process has its own."""

    def __init__(
        self,
        num_ranks: int,
        slots_per_rank: int,
        top_k: int,
        max_tokens: int,
        hidden: int,
        dtype: str = "bfloat16",
        device: str = "cuda",
        name: str = "",
        timeout: float = 10.0,
        join_timeout: float = 30.0,
        num_layers: int = 0,
        num_experts: int = 0,
    ) -> None:
        """max_tokens: of a rank in one call. hidden: a multiple of 8. dtype: of rows and results,
        "bfloat16" or "float32"; outputs are bfloat16. device: "cuda", "cuda:1" or "cpu". name: that
        the ranks on GPUs have agreed on. timeout: seconds, for each single wait. num_layers,
        num_experts: for set_placement, choose and take_loads."""
        torch = _import_torch()

        self.device = torch.device(device)
        if self.device.type not in ("cpu", "cuda"):
            raise ValueError(f'device: expected "cuda" or "cpu", found {device!r}')
        if str(dtype) not in ("bfloat16", "float32", "torch.bfloat16", "torch.float32"):
            raise ValueError(f'dtype: expected "bfloat16" or "float32", found {str(dtype)!r}')
        if hidden < 8 or hidden % 8:
            raise ValueError(f"hidden: expected a multiple of 8, found {hidden}")
        most = num_ranks * slots_per_rank
        if (num_layers, num_experts) != (0, 0) and (num_layers < 1 or not 1 <= num_experts <= most):
            raise ValueError(
                f"num_layers, num_experts: expected at least 1, and 1 to {most}, as there are slots, "
                f"or 0 and 0, found {num_layers} and {num_experts}"
            )
        self.num_layers = num_layers
        self.num_experts = num_experts
        self.dtype = torch.float32 if "float32" in str(dtype) else torch.bfloat16
        self.slots_per_rank = slots_per_rank
        self.num_slots = most
        self.hidden = hidden
        self._name = name
        self._timeouts = (round(timeout * 1000), round(join_timeout * 1000))
        self._shape = _tensor_communicator.Shape(
            num_ranks,
            slots_per_rank,
            top_k,
            max_tokens,
            hidden,
            self.dtype == torch.float32,
            num_layers,
            num_experts,
        )
        self._cpu_group = None
        if self.device.type == "cpu":
            self._cpu_group = _tensor_communicator.create_cpu_group(self._shape, self._timeouts[0])
        elif not name:
            raise ValueError("name: expected one that all ranks of the group give, found none")
        else:
            _tensor_communicator.available()

    def join(self, rank: int, num_blocks: int = 0) -> TensorCommunicator:
        """Called by every rank; waits for all others. What one of them lacks (a GPU, peer access,
        memory, equal options) is raised by all.

        num_blocks: of the kernels; 0: as many as the GPU holds beside those of its other ranks."""
        if self._cpu_group is not None:
            return TensorCommunicator(self, _tensor_communicator.join_cpu(self._cpu_group, rank))
        torch = _import_torch()

        index = torch.cuda.current_device() if self.device.index is None else self.device.index
        joined = _tensor_communicator.join_gpu(
            self._shape, self._name, rank, index, num_blocks, *self._timeouts
        )
        return TensorCommunicator(self, joined)


class TensorCommunicator:
    """One rank's access to the group, from TensorGroup.join. One thread at a time."""

    def __init__(self, group: TensorGroup, rank: Any) -> None:
        torch = _import_torch()

        self._torch = torch
        self._group = group
        self._rank = rank
        self.is_gpu = group.device.type == "cuda"
        self.device = torch.device("cuda", rank.device) if self.is_gpu else group.device
        self._matrix = torch.empty(
            (group._shape.max_rows, group.hidden), dtype=group.dtype, device=self.device
        )
        self._starts = torch.from_dlpack(rank.starts())
        self._num_slots = group.num_slots
        self._call: tuple = ()  # tensors that kernels read until combine has run
        self._num_tokens = 0

    def set_placement(
        self, layer: int, slot_to_expert: ArrayLike, shares: Optional[ArrayLike] = None
    ) -> None:
        """Which expert each slot of a layer holds, -1 for none, from the next choose on: [slots of the
        group] integers. shares: the part of its expert's tokens that each slot gets; None: equal
        parts. Every rank gets the same. Under the stream of the layer's calls, for which it waits;
        graphs with a choose go on with the new placement."""
        self._check_layers()
        experts = as_integers("slot_to_expert", slot_to_expert, np.int32)
        parts = np.ascontiguousarray([] if shares is None else to_numpy(shares), dtype=np.float64)
        if experts.ndim != 1 or parts.ndim != 1:
            raise ValueError("slot_to_expert, shares: expected one number for each slot")
        if shares is not None and parts.size != experts.size:
            raise ValueError(f"shares: expected {experts.size}, found {parts.size}")
        self._rank.set_placement(layer, experts, parts, *self._stream())

    def choose(self, experts: Any, layer: int = 0, out: Any = None) -> Any:
        """The slots of tokens for dispatch, [tokens, top_k] int32, in out if given: all ranks together
        meet the shares, if they have equally many tokens of an expert, and as many as possible stay
        on their rank. Counts the tokens. experts: [tokens, top_k] int32, distinct within a token."""
        self._check_layers()
        slots = self._torch.empty_like(experts) if out is None else out
        if not self.is_gpu:
            self._rank.choose(experts, slots, layer)
            return slots
        with self._torch.cuda.device(self.device):
            count = self._count_of(len(experts))
            self._rank.choose(experts, slots, count, layer, *self._stream())
        return slots

    def end_iteration(self) -> None:
        """After the last call of an iteration: hands what choose has counted to take_loads."""
        self._check_layers()
        self._rank.end_iteration(*self._stream())

    def take_loads(self) -> Loads:
        """What end_iteration has handed over since the last time; on GPUs iterations after the first
        follow together, with the next take. There, under a stream of its own (torch.cuda.stream), for
        which it waits, while the calls go on; by the thread of the calls, or between two of them."""
        self._check_layers()
        first, number, experts, slots = self._rank.take_loads(*self._stream())
        if number == 0:
            experts, slots = [0] * self._group.num_experts, [0] * self._num_slots
            experts, slots = experts * self._group.num_layers, slots * self._group.num_layers
        shape = (self._group.num_layers, -1)
        return Loads(
            first,
            number,
            np.array(experts, dtype=np.int64).reshape(shape),
            np.array(slots, dtype=np.int64).reshape(shape),
        )

    def restart(self, inactive_ranks: Sequence[int]) -> None:
        """After an error of status() on GPUs: goes on without these ranks, all that are lost. Every
        other rank calls it, with the same list; the rows of the call that failed are lost. Layers with
        an expert on one of them need a new placement."""
        if not self.is_gpu:
            raise RuntimeError("restart: an error ends a group on CPUs; expected device 'cuda'")
        self._rank.restart(list(inactive_ranks))
        self._call = ()

    def _check_layers(self) -> None:
        if not self._group.num_layers:
            raise ValueError("num_layers, num_experts: expected by this call, the group has none")

    def _stream(self) -> tuple:
        """An argument of the rank's methods on GPUs."""
        if not self.is_gpu:
            return ()
        return (self._torch.cuda.current_stream(self.device).cuda_stream,)

    def _count_of(self, tokens: int) -> Any:
        return self._torch.full((1,), tokens, dtype=self._torch.int32, device=self.device)

    def dispatch(self, rows: Any, slots: Any, weights: Any, layer: int = 0) -> Received:
        """Sends rows [tokens, hidden] to their slots [tokens, top_k] int32, which are distinct within
        a token, and receives those for this rank's slots. weights: [tokens, top_k] float32, for
        combine. layer: for messages."""
        if not self.is_gpu:
            self._rank.dispatch(rows, slots, weights, self._matrix)
        else:
            with self._torch.cuda.device(self.device):
                count = self._count_of(len(rows))
                self._rank.dispatch(
                    rows, slots, weights, self._matrix, count, layer, *self._stream()
                )
                self._call = (rows, slots, weights, count)
        self._num_tokens = len(rows)
        return Received(self._matrix, self._starts)

    def combine(self, results: Any, shared: Any = None, out: Any = None) -> Any:
        """The sum over k of weight * result of each token, in top-k order in float32, plus shared,
        rounded once: [tokens, hidden] bfloat16, in out if given.

        results: [max_rows, hidden], one for each received row, at its place; may be received.rows.
        shared: [tokens, hidden] float32, as of a shared expert."""
        if out is None:
            shape = (self._num_tokens, self._group.hidden)
            out = self._torch.empty(shape, dtype=self._torch.bfloat16, device=self.device)
        if not self.is_gpu:
            self._rank.combine(results, shared, out)
        else:
            self._rank.combine(results, shared, out, *self._stream())
        self._call = ()  # what is freed now is used again only behind the kernels of this stream
        return out

    def status(self) -> None:
        """Raises the first error that this rank's kernels have found; waits for the GPU."""
        if self.is_gpu:
            self._rank.status()

    def close(self) -> None:
        """Leaves the group: no more calls follow."""
        self._rank.close()
