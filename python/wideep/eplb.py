# SPDX-License-Identifier: Apache-2.0
"""rebalance_experts with the signature and results of DeepSeek's EPLB."""

from __future__ import annotations

from typing import Any, Tuple

import numpy as np

from . import maps
from ._arrays import like, to_numpy


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
    placement = plan_placement(weight, num_replicas, num_groups, num_nodes, num_gpus, planner)
    count = maps.count(placement, np.shape(weight)[1])
    arrays = placement, maps.invert(placement, count), count
    return tuple(like(weight, array) for array in arrays)  # type: ignore[return-value]


def plan_placement(
    weight: Any,
    num_replicas: int,
    num_groups: int,
    num_nodes: int,
    num_gpus: int,
    planner: str,
    split: str = "equal",
) -> np.ndarray:
    """[L, num_replicas] int64; arguments as of rebalance_experts."""
    from . import plan  # here, because the package imports this module

    hierarchical = num_nodes > 0 and num_groups % num_nodes == 0
    return plan(
        to_numpy(weight),
        num_replicas,
        num_gpus,
        planner=planner,
        split=split,
        num_nodes=num_nodes if hierarchical else 1,
        num_groups=num_groups if hierarchical else 1,
    ).placement.astype(np.int64)
