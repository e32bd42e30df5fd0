# SPDX-License-Identifier: Apache-2.0
"""Runs vLLM's unit tests of its EPLB policy against wideep's policies, and compares the two.

    python vllm_policy.py vllm-0.33.0.tar.gz <work directory>
"""

import inspect
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
# Asserts the placement that DeepSeek's algorithm gives, slot by slot.
EXACT = "test_basic_rebalance"


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
    left_out = f", {len(deselected)} left out ({', '.join(deselected)})" if deselected else ""
    print(
        f"vLLM's tests, {policy.__name__} with planner {getattr(policy, 'planner', 'vllm')}: "
        f"{outcomes.passed} passed, {len(outcomes.failed)} failed, {outcomes.skipped} skipped{left_out}"
    )
    if outcomes.passed == 0:
        raise SystemExit("no test ran")
    return outcomes.failed


def compare(policy, trials=60):
    """wideep's policies beside vLLM's, on random loads: the same maps with planner deepseek, and
    never more imbalance or more moves."""
    from vllm.distributed.eplb.policy.default import DefaultEplbPolicy

    class AsVllm(integration.PlanEplbPolicy):
        planner = "deepseek"

    rng = np.random.default_rng(0)
    sums = np.zeros((3, 2))
    for _ in range(trials):
        groups, nodes = [(1, 1), (4, 2)][rng.integers(2)]
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
        assert torch.equal(theirs, same), "planner deepseek differs from vLLM's policy"
        others = [policy.rebalance_experts(new, *sizes, old) for policy in policy]
        for row, placement in zip(sums, [theirs, *others]):
            assert not wideep.check_maps(placement, num_experts=experts)
            row += [
                wideep.imbalance(placement, new_load, ranks).mean() / trials,
                wideep.count_moves(old, placement, ranks).mean() / trials,
            ]
    names = ["vLLM", *(each.__name__ for each in policy)]
    for name, (imbalance, moves) in zip(names, sums):
        print(f"{trials} random loads, {name}: imbalance {imbalance:.4f}, {moves:.1f} moves per layer")
    assert sums[1, 0] <= sums[0, 0], "plans are less balanced than vLLM's"
    assert sums[2, 1] < sums[0, 1] / 2, "repairs move more than half of what vLLM moves"


def check_registration():
    from vllm.distributed.eplb import policy

    theirs = inspect.signature(policy.AbstractEplbPolicy.rebalance_experts).parameters
    ours = inspect.signature(integration.PlanEplbPolicy.rebalance_experts).parameters
    assert list(theirs) == list(ours), f"expected parameters {list(theirs)}, found {list(ours)}"
    for name, each in theirs.items():
        assert (each.kind, each.default) == (ours[name].kind, ours[name].default), name
    integration.register(integration.RepairEplbPolicy)
    registered = policy.EPLB_POLICIES["default"]
    assert issubclass(registered, (integration.RepairEplbPolicy, policy.AbstractEplbPolicy))
    assert not registered.__abstractmethods__
    registered()
    print("signature and registration as AbstractEplbPolicy: ok")


def main(package, directory):
    tests = load(pathlib.Path(package), directory)
    from vllm.distributed.eplb.policy.default import DefaultEplbPolicy

    class AsVllm(integration.PlanEplbPolicy):
        planner = "deepseek"

    failed = run_tests(tests, DefaultEplbPolicy)  # else the modules around them are wrong
    failed += run_tests(tests, AsVllm)
    for policy in (integration.PlanEplbPolicy, integration.RepairEplbPolicy):
        failed += run_tests(tests, policy, [EXACT])
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")
    compare([integration.PlanEplbPolicy, integration.RepairEplbPolicy])
    check_registration()


if __name__ == "__main__":
    main(*sys.argv[1:])
