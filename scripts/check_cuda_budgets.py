#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that CUDA kernels need no more than their budgets: registers, spilled bytes, shared memory.

The log is what `nvcc -Xptxas -v` says. A line of the budgets: architecture, kernel, the most registers
of a thread, the most bytes spilled (stores and loads), the most bytes of static shared memory. Every
kernel needs a line, and every line a kernel.

    scripts/check_cuda_budgets.py build/wideep_cuda_gpu.ptxas.txt src/exchange/cuda/budgets.txt
    scripts/check_cuda_budgets.py build/wideep_cuda_gpu.ptxas.txt --print    what the kernels need
"""

import re
import subprocess
import sys

ENTRY = re.compile(r"Compiling entry function '(\w+)' for '(sm_\w+)'")
SPILLS = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")
USED = re.compile(r"Used (\d+) registers")
SHARED = re.compile(r"(\d+) bytes smem")
NAMES = ["kF32", "kBf16", "kFp8", "kNvfp4"]


def short_name(demangled):
    """run<Combine<kBf16>> of what c++filt says."""
    name = re.sub(r"\(wideep::kernels::RowFormat\)(\d)", lambda m: NAMES[int(m.group(1))], demangled)
    name = re.sub(r"wideep::(cuda|kernels)::|\(anonymous namespace\)::|_GLOBAL__N__\w+::", "", name)
    return name.removeprefix("void ").split("(")[0].replace(" ", "")


def read_log(path):
    """{(architecture, kernel): (registers, spilled bytes, shared bytes)}."""
    needs = {}
    kernel = None
    for line in open(path):
        if match := ENTRY.search(line):
            kernel, spilled = match.groups(), 0
        elif match := SPILLS.search(line):
            spilled = sum(map(int, match.groups()))
        elif kernel and (match := USED.search(line)):
            shared = SHARED.search(line)
            needs[kernel] = (int(match.group(1)), spilled, int(shared.group(1)) if shared else 0)
            kernel = None
    mangled = [name for name, _ in needs]
    demangled = subprocess.run(["c++filt"], input="\n".join(mangled), capture_output=True, text=True, check=True)
    names = map(short_name, demangled.stdout.splitlines())
    return {(key[1], name): need for (key, need), name in zip(needs.items(), names)}


def read_budgets(path):
    budgets = {}
    for line in open(path):
        words = line.split("#")[0].split()
        if words:
            budgets[words[0], words[1]] = tuple(map(int, words[2:]))
    return budgets


def problems(needs, budgets):
    for (architecture, kernel), need in sorted(needs.items()):
        budget = budgets.get((architecture, kernel))
        if budget is None:
            yield f"{architecture} {kernel}: no budget; it needs {need}"
            continue
        for what, found, most in zip(["registers", "spilled bytes", "bytes of shared memory"], need, budget):
            if found > most:
                yield f"{architecture} {kernel}: {found} {what}, expected at most {most}"
    architectures = {architecture for architecture, _ in needs}
    for architecture, kernel in sorted(budgets.keys() - needs.keys()):
        if architecture in architectures:
            yield f"{architecture} {kernel}: a budget, but no such kernel"


def main():
    needs = read_log(sys.argv[1])
    if sys.argv[2] == "--print":
        for (architecture, kernel), need in sorted(needs.items()):
            print(architecture, kernel, *need)
        return 0
    found = list(problems(needs, read_budgets(sys.argv[2])))
    if not needs:
        found.append(f"{sys.argv[1]}: no kernels")
    for problem in found:
        print(problem)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
