#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# All tests, in each build that can find something of its own. Stops at the first build that fails.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/install_packages.sh packages.txt test_packages.txt
passed=0 failed=0 skipped=0

# count <attribute> <JUnit file>: the number that the file's first element gives for it
count() { grep --only-matching --max-count=1 "\b$1=\"[0-9]*\"" "$2" | tr -dc 0-9; }

add_counts() {
  local tests failures skips
  tests=$(count tests "$1") failures=$(count failures "$1") skips=$(count skipped "$1")
  passed=$((passed + tests - failures - skips))
  failed=$((failed + failures))
  skipped=$((skipped + skips))
}

print_counts() { printf '\n%s passed, %s failed, %s skipped\n' $passed $failed $skipped; }

# test_build <title> <preset> <tests to run, as a pattern> [target...]
test_build() {
  local title=$1 preset=$2 pattern=$3 start=$SECONDS built status=0
  local directory=build-$preset
  [[ $preset == release ]] && directory=build
  shift 3

  printf '\n== %s\n' "$title"
  scripts/build.sh "$preset" "$@"
  built=$SECONDS
  # Only what did not pass is worth a line.
  ctest --test-dir "$directory" --tests-regex "$pattern" --parallel "$(nproc)" \
    --no-tests=error --output-on-failure --output-junit test_results.xml |
    { grep --invert-match --extended-regexp '^ *Start +[0-9]+:|  Passed +[0-9.]+ sec$' || true; } ||
    status=$?
  echo "$title: $((built - start)) s to build, $((SECONDS - built)) s to run"

  add_counts "$directory/test_results.xml"
  [[ $status -eq 0 ]] || { print_counts; exit "$status"; }
}

test_build "Release build" release .
# Random traffic with rebalancing runs longest where most is noticed.
WIDEEP_SOAK_SECONDS=40 test_build "Address and undefined-behaviour sanitizers, fuzz targets" asan .
# The thread sanitizer sees no race between processes: only tests whose ranks are threads.
test_build "Thread sanitizer" tsan \
  '^base\.ThreadPool|^transport\..*threads|^ep\..*Threads|^model\..*Golden|^online\.' \
  base_test transport_test ep_test model_test online_test
# Another compiler: all of the command, and the tests of what computes, travels and runs at once.
test_build "gcc" gcc '^(base|kernels|transport|ep|weights|online|model|engine|whole)\.' \
  wideep {base,kernels,transport,ep,weights,online,model,engine,whole}_test
print_counts
