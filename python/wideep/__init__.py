# SPDX-License-Identifier: Apache-2.0
"""Places and replicates the experts of Mixture-of-Experts models so that no rank is the hot one.

    plan = wideep.plan(load, num_slots=288, ep_size=32, split="weighted")
    shares = wideep.resplit(plan.placement, new_load, ep_size=32)           # no weights move
    repair = wideep.repair(plan.placement, newer_load, ep_size=32, split="weighted")  # a few do

or while an engine serves, from windows of load:

    repairer = wideep.Repairer(plan.placement, num_experts=256, ep_size=32, top_k=8)
    updates = repairer.step(window)                                         # few moves

or, as a replacement for DeepSeek's EPLB (for vLLM, SGLang and TensorRT-LLM: wideep.integrations):

    phy2log, log2phy, expert_count = wideep.rebalance_experts(
        weight, num_replicas, num_groups, num_nodes, num_gpus)

Shapes are in brackets: L layers, E experts, S slots (physical experts) on R ranks. Every rank has
S / R slots; slot s is on rank s // (S / R). A load is any array of tokens per expert, finite and not
negative. Imbalance is max / mean - 1 over ranks: 0 is perfect.

Wrong arguments raise ValueError. Other Python threads run while a call plans.
"""

from __future__ import annotations

import sys
from typing import NamedTuple, Optional, Sequence

import numpy as np
from numpy.typing import ArrayLike

try:
    from . import _balancer
except ImportError as error:
    raise ImportError(
        f"wideep has no compiled modules for this Python ({sys.implementation.cache_tag}): the "
        "wheel has them for CPython from 3.9 on with a global interpreter lock; pip install from "
        f"the sources builds them for any, and the command wideep needs none ({error})"
    ) from error
from ._arrays import as_integers as _as_integers
from ._arrays import matrix as _matrix
from .eplb import rebalance_experts
from .maps import MapFault, check_maps, count_moves
from .repairer import Repairer, Update

__all__ = [
    "MapFault",
    "Plan",
    "Repair",
    "Repairer",
    "Update",
    "check_maps",
    "count_moves",
    "imbalance",
    "lower_bound",
    "plan",
    "rebalance_experts",
    "repair",
    "resplit",
]

_INT_MAX = 2**31 - 1


class Plan(NamedTuple):
    placement: np.ndarray  # [L, S] int32: slot -> expert; -1 for a slot that is not in use
    shares: np.ndarray  # [L, S] float64: the part of its expert's tokens that a slot receives


class Repair(NamedTuple):
    plan: Plan
    imbalance_before: np.ndarray  # [L] float64: the old placement with its old shares
    imbalance_resplit: np.ndarray  # [L] float64: with the best shares; equal split: equal ones
    imbalance_after: np.ndarray  # [L] float64
    moves: np.ndarray  # [L] int64: experts copied to a rank that did not hold them
    forced_moves: np.ndarray  # [L] int64: moves of experts that lost their last usable slot
    bytes: np.ndarray  # [L] int64: moves * bytes_per_expert


def plan(
    load: ArrayLike,
    num_slots: int,
    ep_size: int,
    planner: str = "wideep",
    split: str = "equal",
    num_nodes: int = 1,
    num_groups: int = 1,
    tolerance: float = 1e-3,
    rank_slots: Optional[Sequence[int]] = None,
    pair_counts: Optional[ArrayLike] = None,
) -> Plan:
    """Plans which experts each rank holds.

    load: [L, E].
    planner: "wideep", "trt" (TensorRT-LLM's), "deepseek" or "cooccurrence" (experts that tokens
        choose together share ranks).
    split: how the engine divides an expert's tokens among its replicas: "equal" or "weighted" (by
        the shares of the plan).
    num_nodes, num_groups: with both above 1 the experts of a group stay on one node. With nodes
        alone planner "cooccurrence" saves messages between nodes first.
    tolerance: the imbalance at which planner wideep stops its search.
    rank_slots: [R] usable slots of each rank, 0 for a dead one; None: all.
    pair_counts: [L, E, E] tokens that chose both experts; planner "cooccurrence" needs them.
    """
    loads = _matrix("load", load, np.float64)
    shape = _balancer.make_shape(
        loads.shape[1], ep_size, num_slots, num_nodes, num_groups, list(rank_slots or [])
    )
    result = _empty_plan(len(loads), num_slots)
    pairs = _pair_counts(pair_counts, loads.shape)
    _balancer.plan(shape, planner, _is_weighted(split), tolerance, loads, pairs, *result)
    return result


def resplit(placement: ArrayLike, load: ArrayLike, ep_size: int) -> np.ndarray:
    """The best shares [L, S] for a fixed placement [L, S] under load [L, E]; no weights move."""
    loads = _matrix("load", load, np.float64)
    placements = _placements(placement, loads)
    shape = _shape_of(placements, loads, ep_size)
    shares = np.empty(placements.shape)
    _balancer.resplit(shape, placements, loads, shares)
    return shares


def repair(
    placement: ArrayLike,
    load: ArrayLike,
    ep_size: int,
    shares: Optional[ArrayLike] = None,
    split: str = "equal",
    tolerance: float = 0.01,
    max_moves: Optional[int] = None,
    bytes_per_expert: int = 0,
    rank_slots: Optional[Sequence[int]] = None,
) -> Repair:
    """Brings a placement [L, S] to the tolerance under load [L, E], with few moves of experts.

    shares: [L, S] of the placement; None: equal. A repair for an "equal" split ignores them.
    split: "weighted" changes the shares first; "equal" can only move experts.
    max_moves: per layer; None: no limit. Forced moves are made even beyond it.
    rank_slots: [R] slots usable from now on. Experts that lose their last slot move first.
    """
    loads = _matrix("load", load, np.float64)
    placements = _placements(placement, loads)
    shape = _shape_of(placements, loads, ep_size, rank_slots)
    to = _empty_plan(*placements.shape)
    figures = np.empty((len(loads), 3))
    counts = np.empty((len(loads), 3), dtype=np.int64)
    _balancer.repair(
        shape,
        _is_weighted(split),
        tolerance,
        _INT_MAX if max_moves is None else max_moves,
        bytes_per_expert,
        loads,
        placements,
        _shares(shares, placements, loads, ep_size),
        *to,
        figures,
        counts,
    )
    return Repair(to, *figures.T, *counts.T)


def imbalance(
    placement: ArrayLike, load: ArrayLike, ep_size: int, shares: Optional[ArrayLike] = None
) -> np.ndarray:
    """max / mean - 1 of rank loads, [L]; placement [L, S], load [L, E], shares [L, S] (None: equal).

    Ranks without an expert do not count."""
    loads = _matrix("load", load, np.float64)
    placements = _placements(placement, loads)
    result = np.empty(len(loads))
    given = _shares(shares, placements, loads, ep_size)
    _balancer.imbalance(_shape_of(placements, loads, ep_size), placements, loads, given, result)
    return result


def lower_bound(
    load: ArrayLike,
    num_slots: int,
    ep_size: int,
    split: str = "equal",
    num_nodes: int = 1,
    num_groups: int = 1,
    rank_slots: Optional[Sequence[int]] = None,
) -> np.ndarray:
    """The imbalance [L] that no placement can get below under load [L, E]; arguments as plan's."""
    loads = _matrix("load", load, np.float64)
    shape = _balancer.make_shape(
        loads.shape[1], ep_size, num_slots, num_nodes, num_groups, list(rank_slots or [])
    )
    result = np.empty(len(loads))
    _balancer.lower_bound(shape, _is_weighted(split), loads, result)
    return result


def _pair_counts(pair_counts: Optional[ArrayLike], shape: tuple[int, int]) -> np.ndarray:
    if pair_counts is None:
        return np.empty((0, 0), dtype=np.int64)
    counts = np.asarray(pair_counts)
    expected = (shape[0], shape[1], shape[1])
    if counts.shape != expected:
        raise ValueError(f"pair_counts: expected {expected}, found {counts.shape}")
    counts = _matrix("pair_counts", counts.reshape(shape[0], -1), np.int64)
    if counts.size and counts.min() < 0:
        raise ValueError(f"pair_counts: expected 0 or more, found {counts.min()}")
    return counts


def _placements(placement: ArrayLike, loads: np.ndarray) -> np.ndarray:
    placements = _matrix("placement", placement, np.int32)
    if len(placements) != len(loads):
        raise ValueError(f"placement: expected {len(loads)} layers as load, found {len(placements)}")
    return placements


def _shape_of(
    placements: np.ndarray,
    loads: np.ndarray,
    ep_size: int,
    rank_slots: Optional[Sequence[int]] = None,
) -> _balancer.PlanShape:
    return _balancer.make_shape(
        loads.shape[1], ep_size, placements.shape[1], 1, 1, list(rank_slots or [])
    )


def _shares(
    shares: Optional[ArrayLike], placements: np.ndarray, loads: np.ndarray, ep_size: int
) -> np.ndarray:
    if shares is None:
        equal = np.empty(placements.shape)
        _balancer.equal_shares(_shape_of(placements, loads, ep_size), placements, equal)
        return equal
    given = _matrix("shares", shares, np.float64)
    if given.shape != placements.shape:
        raise ValueError(f"shares: expected {placements.shape} as placement, found {given.shape}")
    return given


def _empty_plan(num_layers: int, num_slots: int) -> Plan:
    return Plan(
        np.empty((num_layers, num_slots), dtype=np.int32), np.empty((num_layers, num_slots))
    )


def _is_weighted(split: str) -> bool:
    if split not in ("equal", "weighted"):
        raise ValueError(f'split: expected "equal" or "weighted", found {split!r}')
    return split == "weighted"
