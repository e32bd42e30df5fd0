#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Kills, stops or leaves without memory processes of `wideep serve`, under the load of 32 clients, and
# compares every answer with that of an undisturbed server (tests/fault_soak_test.cc,
# tests/fault_soak_nodes_test.cc).
#
#   scripts/soak_faults.sh [kills]
#
# kills: in each layout with wide expert parallelism, two on one node and two over several; two other
# layouts get a quarter of that each. By default 500, so 2250 in all, which take some 25 minutes on
# two cores. Prints a line for each layout; all that the tests print goes to build/soak_faults.log.
set -euo pipefail
cd "$(dirname "$0")/.."

kills=${1:-500}
log=build/soak_faults.log
scripts/build.sh release wideep command_test
status=0
WIDEEP_FAULT_MODEL=$PWD/models/reference WIDEEP_FAULT_KILLS=$kills \
  build/tests/command_test --gtest_filter='*FaultSoak*' >"$log" 2>&1 || status=$?
if ((status != 0)); then
  tail -n 40 "$log"
  echo "failed: see $log" >&2
  exit "$status"
fi
grep ' replies, 0 failed, 0 differing; ' "$log"
