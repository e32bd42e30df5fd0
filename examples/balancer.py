# SPDX-License-Identifier: Apache-2.0
"""Plans the placement of two layers' experts, then adapts it to new load: with new shares, and when
those are not enough with a few moves.

    pip install . && python examples/balancer.py
"""

import numpy as np

import wideep

EXPERTS, RANKS, SLOTS = 16, 4, 20

load = np.array([100 / (1 + np.arange(EXPERTS)), 100 / (1 + np.arange(EXPERTS)[::-1])])
plan = wideep.plan(load, SLOTS, RANKS, split="weighted")
bound = wideep.lower_bound(load, SLOTS, RANKS, split="weighted")
print("planned:    ", wideep.imbalance(plan.placement, load, RANKS, plan.shares), "bound", bound)

load[:, 9] *= 4  # the load drifts, and then some more
shares = wideep.resplit(plan.placement, load, RANKS)
print("new shares: ", wideep.imbalance(plan.placement, load, RANKS, shares))

load[:, 9] *= 4
repair = wideep.repair(plan.placement, load, RANKS, shares, split="weighted")
print("moves:      ", repair.moves, "from", repair.imbalance_resplit.round(4))
print("repaired:   ", repair.imbalance_after.round(4))

# A drop-in replacement for DeepSeek's EPLB.
physical_to_logical, logical_to_physical, count = wideep.rebalance_experts(
    load, num_replicas=SLOTS, num_groups=4, num_nodes=2, num_gpus=RANKS
)
print("replicas:   ", count[0], "of expert 0:", logical_to_physical[0, 0])
