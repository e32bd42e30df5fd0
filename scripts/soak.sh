#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Under the address sanitizer, for half an hour or WIDEEP_SOAK_SECONDS, while experts move all the
# time: half of it random traffic on ranks, some of whose copies are corrupted or late, then half of
# it clients of every kind, well-behaved or not, at two servers and a router before them.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/build.sh asan wideep whole_test
scripts/build.sh release command_test
export WIDEEP_SOAK_SECONDS=$((${WIDEEP_SOAK_SECONDS:-1800} / 2))
build-asan/tests/whole_test --gtest_filter='Soak.*'
WIDEEP_BINARY=$PWD/build-asan/wideep WIDEEP_SANITIZED=1 \
  build/tests/command_test --gtest_filter='Soak.*'
