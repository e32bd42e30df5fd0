# SPDX-License-Identifier: Apache-2.0
"""vLLM's policies for expert parallel load balancing, AbstractEplbPolicy of vLLM 0.33.

    WIDEEP_VLLM_EPLB=repair vllm serve ... --enable-eplb        # or plan; without it: vLLM's own

or, before the engine is made:

    wideep.integrations.vllm.register(RepairEplbPolicy)

vLLM divides an expert's tokens equally among its replicas, so all plans are for equal shares.
"""

from __future__ import annotations

import os
from typing import Any, Optional, Type

import numpy as np

from .. import maps, repair
from .._arrays import matrix
from ..eplb import plan_placement
from . import PolicyError

POLICY_VARIABLE = "WIDEEP_VLLM_EPLB"


class PlanEplbPolicy:
    """Plans from scratch, as vLLM's own policy does, but balanced better; what stays on a rank keeps
    its slot."""

    planner = "wideep"  # or "deepseek", which gives vLLM's own placements

    @classmethod
    def rebalance_experts(
        cls,
        weight: Any,
        num_replicas: int,
        num_groups: int,
        num_nodes: int,
        num_ranks: int,
        old_global_expert_indices: Optional[Any] = None,
    ) -> Any:
        """weight: [L, E] load, a tensor on any device. num_groups: kept on their nodes where
        num_nodes divides them. old_global_expert_indices: [L, num_replicas] the placement so far.

        Returns the new placement, a tensor [L, num_replicas] int64 in host memory."""
        import torch  # vLLM's callers pass tensors

        old = None
        if old_global_expert_indices is not None:
            old = matrix("old_global_expert_indices", old_global_expert_indices, np.int64)
        try:
            new = cls._placement(weight, num_replicas, num_groups, num_nodes, num_ranks, old)
        except ValueError as error:
            raise PolicyError(str(error)) from None
        if old is not None:
            new = cls.preserve_intragpu_slots(new, num_ranks, old)
        return torch.from_numpy(new)

    @classmethod
    def _placement(
        cls,
        weight: Any,
        num_replicas: int,
        num_groups: int,
        num_nodes: int,
        num_ranks: int,
        old: Optional[np.ndarray],
    ) -> np.ndarray:
        return plan_placement(weight, num_replicas, num_groups, num_nodes, num_ranks, cls.planner)

    @classmethod
    def preserve_intragpu_slots(
        cls, phy2log: np.ndarray, num_ranks: int, old_phy2log: np.ndarray
    ) -> np.ndarray:
        """Permutes each rank's slots of phy2log [L, S] so that what stays keeps its slot. A placement
        for another number of slots is returned as it is."""
        if num_ranks <= 0 or phy2log.shape != old_phy2log.shape or phy2log.shape[1] % num_ranks:
            return phy2log
        return maps.keep_slots(old_phy2log, phy2log, num_ranks)


class RepairEplbPolicy(PlanEplbPolicy):
    """Moves only as many experts as it takes to reach the tolerance.

    Plans from scratch where there is no placement to start from (the first time, another number of
    slots, ranks that have just come) and where groups have to stay on their nodes."""

    tolerance = 0.01  # imbalance, max / mean - 1
    max_moves: Optional[int] = None  # of a layer in one rearrangement

    @classmethod
    def _placement(
        cls,
        weight: Any,
        num_replicas: int,
        num_groups: int,
        num_nodes: int,
        num_ranks: int,
        old: Optional[np.ndarray],
    ) -> np.ndarray:
        grouped = num_nodes > 1 and num_groups > 1 and num_groups % num_nodes == 0
        if old is None or grouped or not _is_start(old, np.shape(weight), num_replicas):
            return super()._placement(weight, num_replicas, num_groups, num_nodes, num_ranks, old)
        repaired = repair(old, weight, num_ranks, tolerance=cls.tolerance, max_moves=cls.max_moves)
        return repaired.plan.placement.astype(np.int64)


def register(policy: Type[PlanEplbPolicy] = RepairEplbPolicy) -> None:
    """Makes vLLM use this policy where --eplb-config says policy "default", the only one it has.

    Call it in every process of the engine; the plugin (WIDEEP_VLLM_EPLB) does."""
    from vllm.distributed.eplb import policy as package

    registered = type(policy.__name__, (policy, package.AbstractEplbPolicy), {})
    for name in package.EPLB_POLICIES:
        package.EPLB_POLICIES[name] = registered


def register_from_environment() -> None:
    """vLLM's plugin: registers the policy that WIDEEP_VLLM_EPLB names, "repair" or "plan"."""
    name = os.environ.get(POLICY_VARIABLE)
    policies = {"repair": RepairEplbPolicy, "plan": PlanEplbPolicy}
    if not name:
        return
    if name not in policies:
        raise PolicyError(f"{POLICY_VARIABLE}: expected repair or plan, found {name!r}")
    register(policies[name])


def _is_start(old: np.ndarray, shape: tuple[int, int], num_replicas: int) -> bool:
    """Whether a repair can start there: of the same size, without empty slots, all experts placed."""
    layers, experts = shape
    if old.shape != (layers, num_replicas) or old.min(initial=0) < 0 or old.max(initial=-1) >= experts:
        return False
    return bool(np.all(maps.count(old, experts) > 0))
