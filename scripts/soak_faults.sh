#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Kills, stops or leaves without memory processes of `wideep serve`, while 8 clients ask for answers of
# every kind, and compares each with that of an undisturbed server (tests/fault_soak_test.cc,
# tests/fault_soak_nodes_test.cc; whole servers, too: tests/fault_soak_disaggregated_test.cc).
#
#   scripts/soak_faults.sh [kills [which]]
#
# kills: in each of 17 layouts on one node, two over several and two of disaggregated serving. By
# default 60, so 1260 in all, which take some 15 minutes on two cores.
# which: only tests with this in their names. 2,000 kills of disaggregated serving, half an hour:
# scripts/soak_faults.sh 1000 Disaggregated
# With WIDEEP_FAULT_MODEL=models/reference 32 clients ask that model. Prints a line for each layout;
# all that the tests print goes to build/soak_faults.log.
set -euo pipefail
cd "$(dirname "$0")/.."

kills=${1:-60}
which=${2:-}
log=build/soak_faults.log
scripts/build.sh release wideep command_test
status=0
WIDEEP_FAULT_KILLS=$kills \
  build/tests/command_test --gtest_filter="*FaultSoak*$which*" >"$log" 2>&1 || status=$?
if ((status != 0)); then
  tail -n 40 "$log"
  echo "failed: see $log" >&2
  exit "$status"
fi
grep ' replies, 0 failed, 0 differing; ' "$log"
