#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs every fuzz target for FUZZ_SECONDS (default 60), starting from its seeds in tests/fuzz/ and
# from the inputs that earlier runs kept in build-asan/fuzz/.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/build.sh asan fuzzers
cmake -DWIDEEP_FUZZ_SECONDS="${FUZZ_SECONDS:-60}" build-asan >/dev/null
ctest --test-dir build-asan --tests-regex '^fuzz\.' --parallel "$(nproc)" --output-on-failure
