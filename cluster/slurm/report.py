#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A table of a sweep: tokens per second by ranks and test, and the share of the machine's limit.

    python3 cluster/slurm/report.py results/
"""

import json
import pathlib
import sys


def rows(directory):
    """(ranks, test, tokens per second, share of the limit) of every test of every file."""
    for path in sorted(pathlib.Path(directory).glob("*.json")):
        run = json.loads(path.read_text())
        for test in run["tests"]:
            yield run["ranks"], test["name"], test["tokens_per_second"]["median"], test["share"]["median"]


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__.strip())
    found = sorted(rows(sys.argv[1]), key=lambda row: (row[1], row[0]))
    if not found:
        sys.exit(f"{sys.argv[1]}: no *.json of a sweep in it")
    print(f"{'test':<28}{'ranks':>6}{'tokens/s':>12}{'of limit':>10}")
    for ranks, test, speed, share in found:
        print(f"{test:<28}{ranks:>6}{speed:>12.1f}{share:>10.2f}")


if __name__ == "__main__":
    main()
