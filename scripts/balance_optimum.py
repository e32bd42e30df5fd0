#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The best possible placements of small shapes, by integer programs.

    build/bench/planning_goals --part small --instances instances.jsonl
    pip install highspy
    scripts/balance_optimum.py instances.jsonl [--seconds 60] [--count 20]

For each shape and split of the file: imbalance in per cent of EPLB, of planner wideep, the optimum,
and the proven lower bound of wideep, means over instances. Where the solver ran out of time, the
optimum is between what it found and what it proved; both are printed. Exit code 1 if a lower bound
of wideep is above an optimum, which would be an error in its proofs.
"""

import argparse
import collections
import json
import sys

import highspy


def add_loads(model, loads, most):
    """Makes `most` the largest of the ranks' loads; equal ranks are told apart by their load."""
    for rank, load in enumerate(loads):
        model.addConstr(load <= most)
        if rank > 0:
            model.addConstr(load <= loads[rank - 1])
    model.addConstr(loads[0] == most)


def add_equal_split(model, case, load):
    """Variables for the number of replicas c of each expert, and for where they are."""
    ranks = case["ranks"]
    counts = range(1, ranks + 1)
    chosen = [{c: model.addBinary() for c in counts} for _ in load]
    at = [{c: [model.addBinary() for _ in range(ranks)] for c in counts} for _ in load]
    for expert in range(len(load)):
        model.addConstr(sum(chosen[expert].values()) == 1)
        for c in counts:
            model.addConstr(sum(at[expert][c]) == c * chosen[expert][c])
            for rank in range(ranks):
                model.addConstr(at[expert][c][rank] <= chosen[expert][c])
    loads = []
    for rank in range(ranks):
        here = [(w / c, at[e][c][rank]) for e, w in enumerate(load) for c in counts]
        model.addConstr(sum(x for _, x in here) == case["slots"] // ranks)
        loads.append(sum(w * x for w, x in here))
    return loads


def add_weighted_split(model, case, load):
    """Variables for where an expert is, and for the load that it gives to the rank."""
    ranks = case["ranks"]
    at = [[model.addBinary() for _ in range(ranks)] for _ in load]
    part = [[model.addVariable(lb=0, ub=w) for _ in range(ranks)] for w in load]
    for expert, w in enumerate(load):
        model.addConstr(sum(part[expert]) == w)
        model.addConstr(sum(at[expert]) >= 1)
        for rank in range(ranks):
            model.addConstr(part[expert][rank] <= w * at[expert][rank])
    loads = []
    for rank in range(ranks):
        model.addConstr(sum(at[e][rank] for e in range(len(load))) == case["slots"] // ranks)
        loads.append(sum(part[e][rank] for e in range(len(load))))
    return loads


def solve(case, seconds):
    """Returns the imbalance found and the least that is proved possible, in per cent."""
    mean = sum(case["load"]) / case["ranks"]
    load = [w / mean for w in case["load"]]
    model = highspy.Highs()
    model.silent()
    model.setOptionValue("time_limit", float(seconds))
    model.setOptionValue("mip_rel_gap", 1e-5)
    model.setOptionValue("threads", 1)
    known = 1 + min(case["wideep"], case["eplb"]) / 100
    most = model.addVariable(lb=1, ub=known + 1e-6)
    add = add_equal_split if case["split"] == "equal" else add_weighted_split
    add_loads(model, add(model, case, load), most)
    model.minimize(most)
    info = model.getInfo()
    found = info.objective_function_value
    # No better solution than the known one was found.
    if info.primal_solution_status != 2:
        found = known
    return 100 * (min(found, known) - 1), 100 * (max(info.mip_dual_bound, 1.0) - 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("instances")
    parser.add_argument("--seconds", type=float, default=60, help="limit for each instance")
    parser.add_argument("--count", type=int, default=20, help="instances of each shape")
    options = parser.parse_args()

    shapes = collections.defaultdict(list)
    with open(options.instances, encoding="utf-8") as lines:
        for line in lines:
            case = json.loads(line)
            key = f'{case["experts"]}/{case["ranks"]}/{case["slots"]} {case["split"]}'
            shapes[key].append(case)

    wrong = 0
    print(f'{"shape":20}{"EPLB":>9}{"wideep":>9}{"found":>9}{"proved":>9}{"bound":>9}{"solved":>9}')
    for name, cases in shapes.items():
        cases = cases[: options.count]
        sums = collections.Counter()
        for case in cases:
            found, proved = solve(case, options.seconds)
            wrong += case["bound"] > found + 1e-3
            for key, value in (("found", found), ("proved", proved), ("solved", found < proved + 0.01)):
                sums[key] += value
            for key in ("eplb", "wideep", "bound"):
                sums[key] += case[key]
        means = [sums[key] / len(cases) for key in ("eplb", "wideep", "found", "proved", "bound")]
        print(f"{name:20}" + "".join(f"{mean:9.2f}" for mean in means)
              + f'{sums["solved"]:>5} of {len(cases)}', flush=True)
    if wrong:
        sys.exit(f"{wrong} lower bounds are above what the solver found")


if __name__ == "__main__":
    main()
