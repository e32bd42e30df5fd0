#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs every microbenchmark of the release build, each line for MIN_TIME seconds (default 0.1), then
# the experts' matrix products next to their limits, and the tables of the balancer's goals. Arguments go to the
# microbenchmarks alone:
# scripts/bench.sh --benchmark_filter=MatMul
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/build.sh release
for program in $(find build -name '*_bench' -type f -executable | sort); do
  printf '\n== %s\n' "$(basename "$program")"
  "$program" --benchmark_min_time="${MIN_TIME:-0.1}" "$@"
done
printf '\n== grouped_gemm\n'
build/bench/grouped_gemm

printf '\n== balance_goals\n'
build/bench/balance_goals

printf '\n== planning_goals\n'
build/bench/planning_goals

printf '\n== online_goals\n'
build/bench/online_goals

printf '\n== online_quality\n'
build/bench/online_quality

printf '\n== online_figures\n'
scripts/bench_online.sh
