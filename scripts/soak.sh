#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Random traffic while experts move all the time and some copies are corrupted or late, under the
# address sanitizer, for half an hour or WIDEEP_SOAK_SECONDS.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/build.sh asan whole_test
WIDEEP_SOAK_SECONDS=${WIDEEP_SOAK_SECONDS:-1800} build-asan/tests/whole_test --gtest_filter='Soak.*'
