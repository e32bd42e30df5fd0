#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints which parts of a build and of its tests took how much time.

Reads what ninja writes of each command (.ninja_log: when it began and ended) and what GoogleTest and
ctest write of each test (test_results.*, of scripts/test.sh). Seconds of building are of a command's
run: on a machine that does nothing else, with as many commands at once as cores, they are about its
CPU-seconds, and their sum divided by the cores is about the time of the build.

    python3 scripts/build_times.py [--slowest N] [build directory]...

Without a directory: all of build and build-* that something was built in.
"""

import argparse
import collections
import pathlib
import re
import sys

import count_tests

ROOT = pathlib.Path(__file__).resolve().parent.parent
NUM_TARGETS = 15
OBJECT = re.compile(r"CMakeFiles/([^/]+)\.dir/(.*)")


def read_commands(directory):
    """{output: seconds} of the last time that each was made."""
    seconds = {}
    for line in (directory / ".ninja_log").read_text().splitlines()[1:]:
        start, end, _, output, _ = line.split("\t")
        if not output.endswith("verify_globs"):
            seconds[output] = (int(end) - int(start)) / 1000
    return seconds


def target_of(output):
    """The target that an output is compiled for; linking and what writes files is "link"."""
    match = OBJECT.search(output)
    return match.group(1) if match else "link"


def part_of(output):
    """What is built for the command, for the tests, for the benchmarks."""
    target = target_of(output) if "CMakeFiles" in output else pathlib.Path(output).name
    if target.endswith(("_test", "_fuzz")) or target in ("nvtx_log", "delay_relay"):
        return "tests"
    if target.endswith("_bench") and not target.startswith("wideep_") or output.startswith("bench/"):
        return "benchmarks"
    return "examples" if output.startswith("examples/") else "command and libraries"


def print_table(title, rows, total):
    """Rows (name, seconds, note), each with its share of the total."""
    print(f"\n{title}")
    for name, seconds, note in rows:
        share = 100 * seconds / total if total else 0
        print(f"{seconds:8.1f} s {share:5.1f} %  {name:<40}{note}".rstrip())


def summed(seconds, key):
    """Rows of print_table, the largest sum first."""
    sums, counts = collections.Counter(), collections.Counter()
    for output, each in seconds.items():
        sums[key(output)] += each
        counts[key(output)] += 1
    return [(name, total, f"{counts[name]} commands") for name, total in sums.most_common()]


def largest(seconds, count):
    return [(name, each, "") for name, each in sorted(seconds.items(), key=lambda item: -item[1])[:count]]


def print_build(directory, slowest):
    seconds = read_commands(directory)
    total = sum(seconds.values())
    parts = summed(seconds, part_of)
    print_table(f"{directory}: commands by part", parts + [("together", total, "")], total)
    print_table("By target", summed(seconds, target_of)[:NUM_TARGETS], total)
    files = {OBJECT.sub(r"\2", name): each for name, each in seconds.items()}
    print_table("Slowest files", largest(files, slowest), total)


def print_tests(results, slowest):
    tests = count_tests.read_tests(results)
    total = sum(test.seconds for test in tests)
    programs = collections.Counter()
    for test in tests:
        programs[test.name.split(".")[0]] += test.seconds
    rows = [(name, seconds, "") for name, seconds in programs.most_common(NUM_TARGETS)]
    print_table(f"{results}: {len(tests)} tests by program", rows + [("together", total, "")], total)
    print_table("Slowest tests", largest({test.name: test.seconds for test in tests}, slowest), total)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--slowest", type=int, default=12, metavar="N", help="files and tests to list")
    parser.add_argument("directory", nargs="*", type=pathlib.Path, help="build directories")
    options = parser.parse_args()
    directories = options.directory or [path.parent for path in sorted(ROOT.glob("build*/.ninja_log"))]
    if not directories:
        print(f"{ROOT}: expected a build directory of ninja (make build), found none", file=sys.stderr)
        return 2
    for directory in directories:
        if not (directory / ".ninja_log").is_file():
            print(f"{directory}: expected a build directory of ninja (make build)", file=sys.stderr)
            return 2
        print_build(directory, options.slowest)
        for results in sorted(directory.glob("test_results.*")):
            print_tests(results, options.slowest)
    return 0


if __name__ == "__main__":
    sys.exit(main())
