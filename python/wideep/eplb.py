# SPDX-License-Identifier: Apache-2.0
"""rebalance_experts with the signature and results of DeepSeek's EPLB."""

from __future__ import annotations

import sys
from typing import Any, Tuple

import numpy as np


def rebalance_experts(
    weight: Any,
    num_replicas: int,
    num_groups: int,
    num_nodes: int,
    num_gpus: int,
    planner: str = "wideep",
) -> Tuple[Any, Any, Any]:
    """Plans replicas and their GPUs for every layer; call it like DeepSeek's function of this name.

    weight: [L, E] load of each logical expert; a numpy array, or a torch tensor on any device.
    num_replicas: physical experts, a multiple of num_gpus. num_groups: expert groups. Each
        stays on one node if num_nodes divides them; otherwise groups are ignored, as by DeepSeek.
    planner: "wideep", or "deepseek" for DeepSeek's placements.

    Returns int64 arrays, or tensors on weight's device if that was a tensor:
    physical_to_logical_map [L, num_replicas];
    logical_to_physical_map [L, E, X], ascending, then -1, X the most replicas of an expert;
    expert_count [L, E], replicas of each.
    """
    from . import plan  # here, because the package imports this module

    load = _to_numpy(weight)
    hierarchical = num_nodes > 0 and num_groups % num_nodes == 0
    placement = plan(
        load,
        num_replicas,
        num_gpus,
        planner=planner,
        num_nodes=num_nodes if hierarchical else 1,
        num_groups=num_groups if hierarchical else 1,
    ).placement.astype(np.int64)
    count = _count(placement, load.shape[1])
    maps = placement, _invert(placement, count), count
    return tuple(_like(weight, array) for array in maps)  # type: ignore[return-value]


def _is_tensor(value: Any) -> bool:
    torch = sys.modules.get("torch")  # a caller with a tensor has imported it
    return torch is not None and isinstance(value, torch.Tensor)


def _to_numpy(weight: Any) -> np.ndarray:
    if _is_tensor(weight):
        return weight.detach().double().cpu().numpy()
    return np.asarray(weight)


def _like(weight: Any, array: np.ndarray) -> Any:
    if _is_tensor(weight):
        return sys.modules["torch"].from_numpy(array).to(weight.device)
    return array


def _count(placement: np.ndarray, num_experts: int) -> np.ndarray:
    counts = [np.bincount(layer, minlength=num_experts) for layer in placement]
    return np.array(counts, dtype=np.int64).reshape(len(placement), num_experts)


def _invert(placement: np.ndarray, count: np.ndarray) -> np.ndarray:
    """Slot -> expert [L, S] to expert -> slots [L, E, X]."""
    num_layers, num_slots = placement.shape
    slots = np.argsort(placement, axis=1, kind="stable")  # by expert, ascending within one
    experts = np.take_along_axis(placement, slots, axis=1)
    first = np.cumsum(count, axis=1) - count
    replica = np.arange(num_slots) - np.take_along_axis(first, experts, axis=1)
    result = np.full((*count.shape, int(count.max(initial=1))), -1, dtype=np.int64)
    result[np.arange(num_layers)[:, None], experts, replica] = slots
    return result
