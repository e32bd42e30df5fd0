# SPDX-License-Identifier: Apache-2.0
"""SGLang's EPLB algorithms, sglang.srt.eplb.eplb_algorithms of SGLang 0.5.23.

    wideep.integrations.sglang.register()       # in every process, before the model is loaded

Then every --eplb-algorithm plans with wideep: groups stay on nodes where its name ends in
_hierarchical, ranks that are down stay empty where it begins with elasticity_aware. The classes have
the signatures of SGLang's modules of these names.

SGLang's dispatch divides tokens equally among replicas, but for --ep-dispatch-algorithm lp, which
computes shares from each batch: only that can serve plans for split "weighted".
"""

from __future__ import annotations

from typing import Any, Optional, Tuple

import numpy as np

from .. import maps, plan
from .._arrays import like, to_numpy
from ..eplb import plan_placement
from . import PolicyError

Maps = Tuple[Any, Any, Any]

PLANNER = "wideep"  # or "deepseek", which gives SGLang's own placements (algorithm deepseek)


class DeepSeek:
    """For eplb_algorithms.deepseek."""

    split = "equal"

    @classmethod
    def rebalance_experts(
        cls,
        weight: Any,
        num_replicas: int,
        num_groups: Optional[int],
        num_nodes: int,
        num_gpus: int,
        enable_hierarchical: bool,
    ) -> Maps:
        """weight: [L, E] load. Returns tensors (or arrays, if weight is one), int64: the placement
        [L, num_replicas], its inverse [L, E, X] padded with -1, and the replicas [L, E]."""
        groups, nodes = (num_groups or 1, num_nodes) if enable_hierarchical else (1, 1)
        try:
            placement = plan_placement(
                weight, num_replicas, groups, nodes, num_gpus, PLANNER, cls.split
            )
        except ValueError as error:
            raise PolicyError(str(error)) from None
        return _maps(weight, placement, np.shape(weight)[1])


class DeepSeekVec:
    """For eplb_algorithms.deepseek_vec."""

    @classmethod
    def rebalance_experts(
        cls,
        tokens_per_expert: Any,
        num_physical_experts: int,
        num_local_physical_experts: int,
        num_groups: Optional[int],
        num_nodes: int,
        enable_hierarchical: bool,
    ) -> Maps:
        """tokens_per_expert: [steps, L, E]. Returns int32, but for a hierarchical placement, which is
        int64 as SGLang's; the inverse has room for as many replicas as an expert can have."""
        phy2log, log2phy, count = DeepSeek.rebalance_experts(
            tokens_per_expert.sum(0),
            num_physical_experts,
            num_groups,
            num_nodes,
            _num_gpus(num_physical_experts, num_local_physical_experts),
            enable_hierarchical,
        )
        most = num_physical_experts - np.shape(count)[1] + 1
        placement, replicas = to_numpy(phy2log), to_numpy(count)
        arrays = [maps.invert(placement, replicas, width=most), replicas]
        if not enable_hierarchical:
            phy2log = like(phy2log, placement.astype(np.int32))
        return (phy2log, *(like(phy2log, array.astype(np.int32)) for array in arrays))


class ElasticityAware:
    """For eplb_algorithms.elasticity_aware."""

    @classmethod
    def rebalance_experts(
        cls,
        weight: Any,
        num_replicas: int,
        num_groups: Optional[int],
        num_nodes: int,
        num_gpus: int,
        enable_hierarchical: bool,
        active_ranks: Any,
    ) -> Maps:
        """active_ranks: [num_gpus], 0 for a rank that is down. As SGLang's: its slots hold 0 in the
        placement, and neither the inverse nor the count has them; nodes are then not regarded."""
        active = to_numpy(active_ranks).astype(bool)
        if active.all():
            return DeepSeek.rebalance_experts(
                weight, num_replicas, num_groups, num_nodes, num_gpus, enable_hierarchical
            )
        slots = [num_replicas // num_gpus if alive else 0 for alive in active]
        try:
            placement = plan(
                to_numpy(weight),
                num_replicas,
                num_gpus,
                planner=PLANNER,
                split=DeepSeek.split,
                rank_slots=slots,
            ).placement.astype(np.int64)
        except ValueError as error:
            raise PolicyError(str(error)) from None
        phy2log, log2phy, count = _maps(weight, placement, np.shape(weight)[1])
        return like(weight, np.maximum(placement, 0)), log2phy, count


def rebalance_experts(
    tokens_per_expert: Any,
    num_physical_experts: int,
    num_local_physical_experts: int,
    num_groups: Optional[int],
    num_nodes: int,
    algorithm: Any,
) -> Maps:
    """For eplb_algorithms.rebalance_experts. tokens_per_expert: [steps, L, E]. algorithm: an
    EplbAlgorithm, or its name."""
    name = getattr(algorithm, "name", algorithm)
    hierarchical = name.endswith("_hierarchical")
    kind = name[: -len("_hierarchical")] if hierarchical else name
    _check_split()
    sizes = num_physical_experts, num_local_physical_experts, num_groups, num_nodes
    if kind == "deepseek_vec":
        return DeepSeekVec.rebalance_experts(tokens_per_expert, *sizes, hierarchical)
    num_gpus = _num_gpus(num_physical_experts, num_local_physical_experts)
    load = tokens_per_expert.sum(0)
    shape = num_physical_experts, num_groups, num_nodes, num_gpus, hierarchical
    if kind == "deepseek":
        return DeepSeek.rebalance_experts(load, *shape)
    if kind == "elasticity_aware":
        return ElasticityAware.rebalance_experts(load, *shape, _active_ranks(num_gpus))
    raise PolicyError(
        "algorithm: expected deepseek, deepseek_vec or elasticity_aware (also with _hierarchical), "
        f"found {name}"
    )


def register(split: str = "equal") -> None:
    """Makes SGLang plan with wideep. split: "weighted" for --ep-dispatch-algorithm lp only."""
    from sglang.srt.eplb import eplb_algorithms

    if split not in ("equal", "weighted"):
        raise PolicyError(f'split: expected "equal" or "weighted", found {split!r}')
    DeepSeek.split = split
    eplb_algorithms.rebalance_experts = rebalance_experts


def _check_split() -> None:
    """Refuses plans that are balanced only with shares where nothing computes shares."""
    if DeepSeek.split == "equal":
        return
    from sglang.srt.runtime_context import get_exec

    found = get_exec().moe.ep_dispatch_algorithm
    if found != "lp":
        raise PolicyError(
            f'split "weighted" needs --ep-dispatch-algorithm lp, found {found}: other dispatch '
            'divides tokens equally; register(split="equal")'
        )


def _active_ranks(num_gpus: int) -> Any:
    from sglang.srt.elastic_ep.elastic_ep import ElasticEPStateManager

    state = ElasticEPStateManager.instance()
    return np.ones(num_gpus) if state is None else state.active_ranks


def _num_gpus(num_physical_experts: int, num_local_physical_experts: int) -> int:
    if num_local_physical_experts < 1 or num_physical_experts % num_local_physical_experts:
        raise PolicyError(
            f"num_local_physical_experts: expected a divisor of {num_physical_experts}, found "
            f"{num_local_physical_experts}"
        )
    return num_physical_experts // num_local_physical_experts


def _maps(weight: Any, placement: np.ndarray, num_experts: int) -> Maps:
    count = maps.count(placement, num_experts)
    arrays = placement, maps.invert(placement, count), count
    return tuple(like(weight, array) for array in arrays)  # type: ignore[return-value]
