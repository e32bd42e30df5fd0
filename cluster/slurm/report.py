#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A table of a sweep: tokens per second, of all, per user and per rank.

    python3 cluster/slurm/report.py results/

Of bench_sweep.sbatch also the share of the machine's limit, of serving_sweep.sbatch and
disaggregated.sbatch the medians of TTFT and TPOT. The row of a point that could not start says why.
"""

import json
import pathlib
import re
import sys

WIDTH = 64  # of a point's name
HEAD = f"{'point':<{WIDTH}}{'test':<16}{'tokens/s':>12}{'per user':>10}{'per rank':>10}"


def row(point, test, speed, users, ranks):
    return f"{point:<{WIDTH}}{test:<16}{speed:>12.1f}{speed / users:>10.2f}{speed / ranks:>10.2f}"


def rows_of_bench(point, run):
    for test in run["tests"]:
        figures = row(point, test["name"], test["tokens_per_second"]["median"], test["sequences"], run["ranks"])
        yield f"{figures}  {test['share']['median']:.2f} of limit"


def ranks_of(point):
    """As its name says: ep-4.…, or CTX=1xTEP-4|GEN=2xDEP-8.…; None: it does not."""
    if named := re.match(r"ep-(\d+)\.", point):
        return int(named[1])
    if named := re.match(r"CTX=(\d+)x[A-Z]+-(\d+)[^|]*\|GEN=(\d+)x[A-Z]+-(\d+)", point):
        prompts, of_prompts, answers, of_answers = map(int, named.groups())
        return prompts * of_prompts + answers * of_answers
    return None


def rows_of_serving(point, run):
    ranks = ranks_of(point)
    if ranks is None:
        yield f"{point:<{WIDTH}}left out: a point has its ranks in its name, as ep-4.… or CTX=1xTEP-4|GEN=2xDEP-8.…"
        return
    speed = run["output_tokens_per_second"]
    users = speed / run["output_tokens_per_second_per_user"]
    yield (f"{row(point, 'serving', speed, users, ranks)}  TTFT {1e3 * run['ttft_seconds']['median']:.1f} ms,"
           f" TPOT {1e3 * run['tpot_seconds']['median']:.2f} ms")


def order(path):
    """Numbers in names are numbers."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", path.name)]


def rows(directory):
    files = [path for path in pathlib.Path(directory).iterdir() if path.suffix in (".json", ".failed")]
    for path in sorted(files, key=order):
        if path.suffix == ".failed":
            yield f"{path.stem:<{WIDTH}}failed: {path.read_text().strip()}"
            continue
        run = json.loads(path.read_text())
        if "tests" in run:
            yield from rows_of_bench(path.stem, run)
        elif "ttft_seconds" in run:
            yield from rows_of_serving(path.stem, run)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__.strip())
    found = list(rows(sys.argv[1]))
    if not found:
        sys.exit(f"{sys.argv[1]}: no *.json of a sweep in it")
    print("\n".join([HEAD] + found))


if __name__ == "__main__":
    main()
