# SPDX-License-Identifier: Apache-2.0
"""Maps between experts and slots: inverted, compared, and checked.

    faults = wideep.check_maps(physical_to_logical, logical_to_physical, count)
    assert not faults, faults[0]
"""

from __future__ import annotations

from typing import NamedTuple, Optional

import numpy as np
from numpy.typing import ArrayLike

from . import _expert_maps
from ._arrays import matrix, to_numpy, token_counts


# As in map files: more is a stray id.
_MOST_EXPERTS = 1 << 20


class MapFault(NamedTuple):
    layer: int
    kind: str  # "stale", "missing-replica", "count", ...; docs/balance.md lists them
    text: str  # of the first one of this kind
    number: int  # of this kind in the layer
    is_error: bool  # False: an engine can serve with it

    def __str__(self) -> str:
        more = f" (and {self.number - 1} more like it)" if self.number > 1 else ""
        return f"layer {self.layer}: {self.kind}: {self.text}{more}"


def check_maps(
    physical_to_logical: ArrayLike,
    logical_to_physical: Optional[ArrayLike] = None,
    count: Optional[ArrayLike] = None,
    num_experts: Optional[int] = None,
    ep_size: int = 0,
    physical_tokens: Optional[ArrayLike] = None,
    logical_tokens: Optional[ArrayLike] = None,
) -> list[MapFault]:
    """What is wrong with an engine's maps, as `wideep balance check` finds it; [] for good maps.

    physical_to_logical: [L, S] slot -> expert, -1: not in use.
    logical_to_physical: [L, E, X] expert -> slots, padded with -1. count: [L, E] replicas.
    num_experts: E; None: from the arrays [L, E]; without any, the largest id + 1.
    ep_size: R, to find replicas that share a rank; 0: not looked for.
    physical_tokens, logical_tokens: [L, S] tokens that slots received, [L, E] that the router chose.
    """
    slots = matrix("physical_to_logical", physical_to_logical, np.int64)
    lists = None if logical_to_physical is None else to_numpy(logical_to_physical)
    if lists is not None and (lists.ndim != 3 or not np.issubdtype(lists.dtype, np.integer)):
        raise ValueError(
            f"logical_to_physical: expected integers [layers, experts, n], found {lists.dtype} "
            f"{lists.shape}"
        )
    rows = {
        "count": None if count is None else matrix("count", count, np.int64),
        "physical_tokens": (
            None if physical_tokens is None else token_counts("physical_tokens", physical_tokens)
        ),
        "logical_tokens": (
            None if logical_tokens is None else token_counts("logical_tokens", logical_tokens)
        ),
    }
    for name, array in {"logical_to_physical": lists, **rows}.items():
        if array is not None and len(array) != len(slots):
            raise ValueError(
                f"{name}: expected {len(slots)} layers as physical_to_logical, found {len(array)}"
            )
    known = [array.shape[1] for array in (lists, rows["count"], rows["logical_tokens"]) if array is not None]
    if num_experts is not None and not 1 <= num_experts <= _MOST_EXPERTS:
        raise ValueError(f"num_experts: expected 1 to {_MOST_EXPERTS}, found {num_experts}")
    experts = num_experts or max(known, default=0) or _num_experts("physical_to_logical", slots)
    if experts < 1:
        raise ValueError("num_experts: expected at least 1, found no expert in physical_to_logical")
    if experts > _MOST_EXPERTS:
        raise ValueError(f"expected maps of at most {_MOST_EXPERTS} experts, found {experts}")

    def row(array: Optional[np.ndarray], layer: int) -> list:
        return [] if array is None else array[layer].tolist()

    return [
        MapFault(layer, kind, text, number, is_error)
        for layer in range(len(slots))
        for kind, number, text, is_error in _expert_maps.check(
            experts,
            ep_size,
            row(slots, layer),
            row(lists, layer),
            *(row(rows[name], layer) for name in ("count", "physical_tokens", "logical_tokens")),
        )
    ]


def count_moves(old: ArrayLike, new: ArrayLike, ep_size: int) -> np.ndarray:
    """[L] experts that ranks must copy to get from a placement [L, S] to another one.

    An expert that a rank holds in both is no move, in whatever slot; -1 is no expert."""
    before, after = matrix("old", old, np.int64), matrix("new", new, np.int64)
    _check_same(before, after, ep_size)
    experts = max(_num_experts("old", before), _num_experts("new", after), 1)
    return np.maximum(_holdings(after, ep_size, experts) - _holdings(before, ep_size, experts), 0).sum(
        axis=(1, 2)
    )


def keep_slots(old: np.ndarray, new: np.ndarray, ep_size: int) -> np.ndarray:
    """`new` [L, S] with each rank's slots permuted so that experts that stay keep their slots.

    The others follow in their order."""
    _check_same(old, new, ep_size)
    result = new.copy()
    shape = (-1, new.shape[1] // ep_size)
    for before, after in zip(old.reshape(shape), result.reshape(shape)):
        if np.array_equal(before, after):
            continue
        left = after.tolist()
        free = []
        for slot, expert in enumerate(before.tolist()):
            if expert in left:
                left.remove(expert)
                after[slot] = expert
            else:
                free.append(slot)
        after[free] = left
    return result


def count(placement: np.ndarray, num_experts: int) -> np.ndarray:
    """[L, S] to the replicas [L, E]; unused slots do not count."""
    if _num_experts("placement", placement) > num_experts:
        raise ValueError(f"placement: expected ids below {num_experts}, found {placement.max()}")
    counts = [np.bincount(layer[layer >= 0], minlength=num_experts) for layer in placement]
    return np.array(counts, dtype=np.int64).reshape(len(placement), num_experts)


def invert(placement: np.ndarray, count: np.ndarray, width: Optional[int] = None) -> np.ndarray:
    """Slot -> expert [L, S] to expert -> slots [L, E, X], ascending, then -1.

    X is the most replicas of an expert, or width."""
    result = np.full((*count.shape, width or int(count.max(initial=1))), -1, dtype=np.int64)
    for layer, experts in enumerate(placement):
        used = np.flatnonzero(experts >= 0)
        slots = used[np.argsort(experts[used], kind="stable")]  # by expert, ascending within one
        first = np.cumsum(count[layer]) - count[layer]
        replica = np.arange(len(slots)) - first[experts[slots]]
        result[layer, experts[slots], replica] = slots
    return result


def _num_experts(name: str, placement: np.ndarray) -> int:
    """The largest id + 1."""
    largest = int(placement.max(initial=-1))
    if largest >= _MOST_EXPERTS:
        raise ValueError(f"{name}: expected expert ids from 0 to {_MOST_EXPERTS - 1}, found {largest}")
    return largest + 1


def _check_same(old: np.ndarray, new: np.ndarray, ep_size: int) -> None:
    if old.shape != new.shape:
        raise ValueError(f"new: expected {old.shape} as old, found {new.shape}")
    if ep_size < 1 or new.shape[1] % ep_size:
        raise ValueError(f"ep_size: expected a divisor of {new.shape[1]} slots, found {ep_size}")


def _holdings(placement: np.ndarray, ep_size: int, num_experts: int) -> np.ndarray:
    """[L, R, E] how often a rank holds an expert."""
    layers, slots = placement.shape
    ranks = layers * ep_size
    rank = np.repeat(np.arange(ranks), slots // ep_size)
    flat, used = placement.ravel(), placement.ravel() >= 0
    held = np.bincount(rank[used] * num_experts + flat[used], minlength=ranks * num_experts)
    return held.reshape(layers, ep_size, num_experts)
