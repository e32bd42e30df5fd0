#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Holds the simulation of requests over time against `wideep serve` on this machine: a line for each
# of 12 workloads of the reference model, or of the 1.3 G shape, in 3 rounds (docs/advisor.md).
# Needs a release build of serving_errors and wideep.
#
#   scripts/check_serving_predictions.sh reference|shape [ROUNDS]
set -euo pipefail
cd "$(dirname "$0")/.."

exec "${ERRORS:-build/bench/simulate/serving_errors}" "$@"
