#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Random traffic while experts move without rest, copies arrive spoilt and late: half an hour of it, or
# WIDEEP_SOAK_SECONDS, under the address sanitizer.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/build.sh asan whole_test
WIDEEP_SOAK_SECONDS=${WIDEEP_SOAK_SECONDS:-1800} build-asan/tests/whole_test --gtest_filter='Soak.*'
