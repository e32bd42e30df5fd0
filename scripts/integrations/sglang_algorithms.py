# SPDX-License-Identifier: Apache-2.0
"""Compares SGLang's EPLB algorithms with wideep's: signatures, shapes, dtypes, maps, imbalance.

    python sglang_algorithms.py sglang-0.5.23-*.whl <work directory>
"""

import inspect
import sys
import types

import numpy as np
import torch

import published
import wideep
from wideep.integrations import sglang as integration

ALGORITHMS = "sglang/srt/eplb/eplb_algorithms"


class State:
    """Stands for ElasticEPStateManager, with the ranks that are alive."""

    active_ranks = None

    @classmethod
    def instance(cls):
        return None if cls.active_ranks is None else cls

    @staticmethod
    def healthy_rank_state():
        return torch.ones(4, dtype=torch.int32)


DISPATCH = types.SimpleNamespace(ep_dispatch_algorithm="static")


def load(package, directory):
    root = published.extract(package, [f"{ALGORITHMS}/*.py"], directory)
    published.empty_packages(root, "sglang", "sglang.srt", "sglang.srt.eplb", "sglang.srt.elastic_ep")
    published.module("sglang.srt.elastic_ep.elastic_ep", ElasticEPStateManager=State)
    published.module(
        "sglang.srt.runtime_context", get_exec=lambda: types.SimpleNamespace(moe=DISPATCH)
    )
    from sglang.srt.eplb import eplb_algorithms

    return eplb_algorithms


def check_signatures(algorithms):
    pairs = [
        (algorithms.rebalance_experts, integration.rebalance_experts),
        (algorithms.deepseek.rebalance_experts, integration.DeepSeek.rebalance_experts),
        (algorithms.deepseek_vec.rebalance_experts, integration.DeepSeekVec.rebalance_experts),
        (
            algorithms.elasticity_aware.rebalance_experts,
            integration.ElasticityAware.rebalance_experts,
        ),
    ]
    for theirs, ours in pairs:
        expected, found = (list(inspect.signature(each).parameters) for each in (theirs, ours))
        assert expected == found, f"{theirs.__module__}: expected {expected}, found {found}"
    print(f"{len(pairs)} signatures: ok")


def compare(algorithms, algorithm, active=None, trials=20):
    """Their function and wideep's on the same random loads."""
    State.active_ranks = None if active is None else torch.tensor(active, dtype=torch.int32)
    rng = np.random.default_rng(1)
    ranks, experts = 4, 32
    sums = np.zeros(2)
    for _ in range(trials):
        local = int(rng.choice([12, 16]))
        slots = ranks * local
        load = torch.tensor(rng.lognormal(5, 0.8, (3, 2, experts)))  # [steps, L, E]
        sizes = load, slots, local, 8, 2
        theirs = algorithms.rebalance_experts(*sizes, algorithm)
        ours = integration.rebalance_experts(*sizes, algorithm)
        total = load.sum(0).numpy()
        for i, (names, maps) in enumerate({"theirs": theirs, "ours": ours}.items()):
            placement = maps[0].clone().numpy()
            if active is not None:  # its slots hold 0, and are not in the other maps
                placement.reshape(2, ranks, local)[:, np.array(active) == 0] = -1
            faults = wideep.check_maps(placement, maps[1], maps[2])
            assert not faults, f"{names}: {faults[0]}"
            sums[i] += wideep.imbalance(placement, total, ranks).mean() / trials
        for one, other in zip(theirs, ours):
            assert one.device == other.device
            # The width of the inverse is the most replicas of an expert, which may differ.
            assert one.dtype == other.dtype and one.shape[:2] == other.shape[:2]
        integration.PLANNER = "deepseek"
        if algorithm.name.startswith("deepseek_vec"):
            integration.PLANNER = "wideep"
            assert theirs[1].shape == ours[1].shape
        else:
            for one, other in zip(theirs, integration.rebalance_experts(*sizes, algorithm)):
                # Replicas may be listed in another order.
                assert torch.equal(one.sort().values, other.sort().values) or active is not None
            integration.PLANNER = "wideep"
    down = "" if active is None else ", a rank down"
    print(f"{algorithm.name}{down}: imbalance {sums[0]:.4f} SGLang, {sums[1]:.4f} wideep")
    assert sums[1] <= sums[0] + 1e-9, "plans are less balanced than SGLang's"


def check_registration(algorithms):
    integration.register()
    assert algorithms.rebalance_experts is integration.rebalance_experts
    load = torch.ones((1, 1, 8))
    integration.register(split="weighted")
    try:
        algorithms.rebalance_experts(load, 12, 3, None, 1, algorithms.EplbAlgorithm.deepseek)
    except ValueError as error:
        assert "needs --ep-dispatch-algorithm lp, found static" in str(error)
    else:
        raise SystemExit("a plan by shares is given to a dispatch without shares")
    DISPATCH.ep_dispatch_algorithm = "lp"
    algorithms.rebalance_experts(load, 12, 3, None, 1, algorithms.EplbAlgorithm.deepseek)
    print("registration, and shares only for dispatch lp: ok")


def main(package, directory):
    algorithms = load(package, directory)
    check_signatures(algorithms)
    for algorithm in algorithms.EplbAlgorithm:
        compare(algorithms, algorithm)
        if algorithm.name.startswith("elasticity_aware"):
            compare(algorithms, algorithm, active=[1, 0, 1, 1])
    check_registration(algorithms)


if __name__ == "__main__":
    main(*sys.argv[1:])
