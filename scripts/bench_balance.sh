#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every figure of docs/planner.md, docs/balance.md and docs/online.md on balancing: what was before,
# the goal, and what is reached now. About 40 minutes with the recordings of WIDEEP_DATA_DIR, and
# the optimum of small shapes if highspy can be installed.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/build.sh release wideep planning_goals balance_goals online_goals online_quality online_figures
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

title() { printf '\n== %s\n' "$1"; }

title "Plans for other loads, of few slots, of many ranks, and bounds"
build/bench/planning_goals --instances "$work/instances.jsonl"

title "Optimum of small shapes"
if python3 -m venv "$work/venv" && "$work/venv/bin/pip" install --quiet highspy; then
  "$work/venv/bin/python" scripts/balance_optimum.py "$work/instances.jsonl" --count 5
else
  echo "skipped: highspy cannot be installed"
fi

title "Plans for their own load"
build/bench/balance_goals

title "New text, and planning time"
scripts/bench_online.sh "$work/online"

title "Recorded traces"
build/bench/online_quality

title "Exact load on a node"
scripts/bench_exact_load.py

title "Cost of online balancing"
build/bench/online_goals
