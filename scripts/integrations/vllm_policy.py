# SPDX-License-Identifier: Apache-2.0
"""Runs vLLM's unit tests of its EPLB policy against wideep's policies, and compares the two.

    python vllm_policy.py vllm-0.33.0.tar.gz <work directory>
"""

import importlib.metadata
import inspect
import os
import pathlib
import shutil
import sys
import typing

import numpy as np
import pytest
import torch

import published
import wideep
from wideep.integrations import vllm as integration

EPLB = "vllm/distributed/eplb"
TESTS = "tests/distributed/test_eplb_algo.py"
# What planner wideep is not meant to pass, and why; planner deepseek passes all of them.
LEFT_OUT = {
    "test_basic_rebalance": "asserts DeepSeek's placement, slot by slot",
    "test_extreme_weight_imbalance": "asserts more replicas of the hot expert than of expert 1, "
    "which takes two on one rank where both of its ranks have one",
}


class AsVllm(integration.PlanEplbPolicy):
    planner = "deepseek"


def load(package, directory):
    """Makes vllm.distributed.eplb.policy importable, and what its tests import besides."""
    files = [f"{EPLB}/policy/*.py", f"{EPLB}/eplb_state.py", "vllm/config/parallel.py", TESTS]
    root = published.extract(package, files, directory)
    published.empty_packages(root, "vllm", "vllm.config", "vllm.distributed", "vllm.distributed.eplb")
    published.part_of_module(
        "vllm.config.parallel",
        root / "vllm/config/parallel.py",
        ["EPLBPolicyOption"],
        Literal=typing.Literal,
    )
    published.part_of_module(
        "vllm.distributed.eplb.eplb_state",
        root / EPLB / "eplb_state.py",
        ["_compute_eplb_load_stats", "compute_logical_maps"],
        torch=torch,
    )
    platform = type("Platform", (), {"is_xpu": staticmethod(lambda: False)})
    published.module("vllm.platforms", current_platform=platform)
    tests = root / "test_eplb_algo.py"
    shutil.copy(root / TESTS, tests)
    return tests


class Outcomes:
    """A plugin of pytest that counts."""

    def __init__(self):
        self.passed, self.failed, self.skipped = 0, [], 0

    def pytest_runtest_logreport(self, report):
        if report.failed:
            self.failed.append(report.nodeid.rpartition("::")[2])
        elif report.skipped:
            self.skipped += 1
        elif report.when == "call":
            self.passed += 1


def run_tests(tests, policy, deselected=()):
    """Their tests, with `policy` where they import vLLM's. Returns the names of those that fail."""
    from vllm.distributed.eplb.policy import default

    original = default.DefaultEplbPolicy
    default.DefaultEplbPolicy = policy
    sys.modules.pop("test_eplb_algo", None)
    outcomes = Outcomes()
    try:
        arguments = [f"--deselect={tests.name}::{name}" for name in deselected]
        options = ["-q", "--no-header", "--no-summary", "-p", "no:cacheprovider", "--rootdir"]
        pytest.main([str(tests), *options, str(tests.parent), *arguments], plugins=[outcomes])
    finally:
        default.DefaultEplbPolicy = original
    left_out = f", {len(deselected)} left out" if deselected else ""
    print(
        f"vLLM's tests, {policy.__name__} with planner {getattr(policy, 'planner', 'vllm')}: "
        f"{outcomes.passed} passed, {len(outcomes.failed)} failed, {outcomes.skipped} skipped{left_out}"
    )
    if outcomes.passed == 0:
        raise SystemExit("no test ran")
    return outcomes.failed


def compare(policies, groups, nodes, trials=60):
    """wideep's policies beside vLLM's, on random loads that drift: the same maps with planner
    deepseek, never more imbalance, and of repairs far fewer moves."""
    from vllm.distributed.eplb.policy.default import DefaultEplbPolicy

    rng = np.random.default_rng(0)
    equal = 0
    sums = np.zeros((1 + len(policies), 2))
    for _ in range(trials):
        ranks = int(rng.choice([4, 8]))
        experts = int(rng.choice([32, 64]))
        slots = experts + ranks * int(rng.integers(1, 3))
        sizes = slots, groups, nodes, ranks
        old_load = rng.lognormal(5, 0.8, (4, experts))
        old = DefaultEplbPolicy.rebalance_experts(torch.tensor(old_load), *sizes)
        new_load = old_load * rng.lognormal(0, 0.15, old_load.shape)
        new = torch.tensor(new_load)
        theirs = DefaultEplbPolicy.rebalance_experts(new, *sizes, old)
        same = AsVllm.rebalance_experts(new, *sizes, old)
        assert theirs.dtype == same.dtype and theirs.device == same.device
        # vLLM computes in float32, so near ties may be broken otherwise, with the same balance.
        equal += (theirs == same).all(dim=1).sum().item()
        np.testing.assert_allclose(
            wideep.imbalance(same, new_load, ranks),
            wideep.imbalance(theirs, new_load, ranks),
            atol=1e-5,
        )
        others = [policy.rebalance_experts(new, *sizes, old) for policy in policies]
        for row, placement in zip(sums, [theirs, *others]):
            assert not wideep.check_maps(placement, num_experts=experts)
            row += [
                wideep.imbalance(placement, new_load, ranks).mean() / trials,
                wideep.count_moves(old, placement, ranks).mean() / trials,
            ]
    print(
        f"{trials} random loads of 4 layers, {groups} groups, {nodes} nodes; planner deepseek: "
        f"vLLM's maps in {equal} of {4 * trials} layers, its balance in all"
    )
    assert equal > 0.97 * 4 * trials, "planner deepseek differs from vLLM's policy"
    names = ["vLLM", *(each.__name__ for each in policies)]
    for name, (imbalance, moves) in zip(names, sums):
        print(f"  {name}: imbalance {imbalance:.4f}, {moves:.1f} moves per layer")
    assert np.all(sums[:, 0] <= sums[0, 0]), "less balanced than vLLM's plans"
    return sums[:, 1]


def check_registration():
    from vllm.distributed.eplb import policy

    theirs = inspect.signature(policy.AbstractEplbPolicy.rebalance_experts).parameters
    ours = inspect.signature(integration.PlanEplbPolicy.rebalance_experts).parameters
    assert list(theirs) == list(ours), f"expected parameters {list(theirs)}, found {list(ours)}"
    for name, each in theirs.items():
        assert (each.kind, each.default) == (ours[name].kind, ours[name].default), name
    # As vLLM's plugins are called.
    (plugin,) = [
        each
        for each in importlib.metadata.entry_points(group="vllm.general_plugins")
        if each.name == "wideep"
    ]
    os.environ[integration.POLICY_VARIABLE] = "repair"
    plugin.load()()
    registered = policy.EPLB_POLICIES["default"]
    assert issubclass(registered, (integration.RepairEplbPolicy, policy.AbstractEplbPolicy))
    assert not registered.__abstractmethods__
    registered()
    print("signature and registration as AbstractEplbPolicy: ok")


def main(package, directory):
    tests = load(pathlib.Path(package), directory)
    from vllm.distributed.eplb.policy.default import DefaultEplbPolicy

    failed = run_tests(tests, DefaultEplbPolicy)  # else the modules around them are wrong
    failed += run_tests(tests, AsVllm)
    for policy in (integration.PlanEplbPolicy, integration.RepairEplbPolicy):
        failed += run_tests(tests, policy, LEFT_OUT)
    for name, reason in LEFT_OUT.items():
        print(f"left out for planner wideep: {name} {reason}")
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")
    policies = [integration.PlanEplbPolicy, integration.RepairEplbPolicy]
    theirs, _, repaired = compare(policies, groups=1, nodes=1)
    assert repaired < theirs / 2, "repairs move more than half of what vLLM moves"
    compare(policies, groups=4, nodes=2)  # a repair plans there
    check_registration()


if __name__ == "__main__":
    main(*sys.argv[1:])
