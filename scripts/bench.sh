#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs every microbenchmark of the release build, each line for MIN_TIME seconds (default 0.1), then
# the experts' matrix products next to their limits, and what calls cost beside rows;
# scripts/bench_balance.sh has the balancer's figures. Arguments go to the microbenchmarks alone:
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

printf '\n== auxiliary_cost\n'
build/bench/auxiliary_cost
