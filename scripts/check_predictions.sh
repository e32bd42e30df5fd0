#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Holds the advisor's predictions against this machine, a line for each cell, in 8 rounds: four
# minutes. Fails as the test `prediction` does (docs/advisor.md). Needs a release build of
# prediction_errors.
#
#   scripts/check_predictions.sh [ROUNDS]
set -euo pipefail
cd "$(dirname "$0")/.."

exec "${ERRORS:-build/bench/simulate/prediction_errors}" "${1:-8}"
