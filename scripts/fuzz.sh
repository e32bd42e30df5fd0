#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Lets every fuzz target search for FUZZ_SECONDS (default 60) for an input that breaks it, from its
# seeds in tests/fuzz/ and from what earlier runs found in build-asan/fuzz/.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/build.sh asan fuzzers
cmake -DWIDEEP_FUZZ_SECONDS="${FUZZ_SECONDS:-60}" build-asan >/dev/null
ctest --test-dir build-asan --tests-regex '^fuzz\.' --parallel "$(nproc)" --output-on-failure
