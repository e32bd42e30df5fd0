#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds and runs tests: scripts/test.sh <what>..., one after the other, up to the first that fails.
#
#   release   every unit test and every whole-system test
#   asan      the same under the address and undefined-behaviour sanitizers
#   fuzz      each fuzz target for a few seconds, under these sanitizers
#   tsan      tests whose ranks are threads, under the thread sanitizer
#   gcc       tests of kernels, communication and the model, built with gcc
#   gcc_command  the tests of the command, built with gcc
#   <room>    the tests of one room of src/, or of tests/ ("whole", "command"), in the release
#             build; FILTER='Placement*:Shares*' selects some of them
#
# WIDEEP_TEST_QUARTER=1 (to 4), for asan: only that quarter of the tests, of every program.
#
# <build directory>/test_results.<what> has the results of the last run, as GoogleTest and ctest
# write them (scripts/build_times.py lists the slowest tests).
set -euo pipefail
cd "$(dirname "$0")/.."

# build <title> <preset> [target...]
build() {
  local title=$1 start=$SECONDS
  shift
  printf '\n== %s\n' "$title"
  scripts/build.sh "$@"
  echo "$title: $((SECONDS - start)) s to build"
}

# run <what> <title> <build directory> <pattern of tests> [pattern of tests that are left out]
run() {
  local what=$1 title=$2 directory=$3 pattern=$4 left_out=${5:-^$} start=$SECONDS status=0
  if [[ -n ${WIDEEP_TEST_QUARTER:-} ]]; then
    # Programs of one process are asked for a quarter; of those that ctest divides itself
    # (wideep_test_program), whole in 4 and command in 8, it runs one part in four.
    local part=$WIDEEP_TEST_QUARTER others
    export GTEST_TOTAL_SHARDS=4 GTEST_SHARD_INDEX=$((part - 1))
    others=$(seq 8 | awk -v part="$part" '(NR - part) % 4 != 0' | paste -sd '|')
    left_out+="|^(whole|command)\.($others)$"
    title+=", quarter $part"
  fi
  rm -rf "$directory/test_results" "$directory/test_results.$what"
  # Prints only the tests that did not pass.
  ctest --test-dir "$directory" --tests-regex "$pattern" --exclude-regex "$left_out" \
    --parallel "$(nproc)" --no-tests=error --output-on-failure --output-junit ctest.xml |
    { grep --invert-match --extended-regexp '^ *Start +[0-9]+:|  Passed +[0-9.]+ sec$|^$' ||
      true; } || status=$?
  mkdir -p "$directory/test_results"  # none of them may be a GoogleTest program
  mv "$directory/ctest.xml" "$directory/test_results"
  mv "$directory/test_results" "$directory/test_results.$what"
  echo "$title: $((SECONDS - start)) s to run"
  results+=("$directory/test_results.$what")
  python3 scripts/count_tests.py "$directory/test_results.$what"
  [[ $status -eq 0 ]] || exit "$status"
}

run_release() {
  build "Release build" release
  run release "Release build" build .
}

# run_command <what> <title> <build directory> [suites left out]: the release build's tests of the
# command, with the command of another build.
run_command() {
  local what=$1 title=$2 directory=$3 left_out=${4:-}
  build "Tests of the command" release command_test
  WIDEEP_BINARY=$PWD/$directory/wideep GTEST_FILTER="*${left_out:+-$left_out}" \
    run "${what}_command" "$title, the command" build '^command\.'
}

run_asan() {
  local title="Address and undefined-behaviour sanitizers"
  build "$title" asan
  # Random traffic with rebalancing runs longer here, because the sanitizers find more errors.
  export WIDEEP_SOAK_SECONDS=40
  run asan "$title" build-asan . '^fuzz\.'
  WIDEEP_SANITIZED=1 run_command asan "$title" build-asan
  unset WIDEEP_SOAK_SECONDS
}

run_fuzz() {
  build "Fuzz targets" asan fuzzers
  run fuzz "Fuzz targets" build-asan '^fuzz\.'
}

# The thread sanitizer cannot see races between processes, so only tests with ranks as threads run.
run_tsan() {
  build "Thread sanitizer" tsan {base,transport,group,ep,model,online}_test
  GTEST_FILTER='ThreadPool*:*threads*:*Threads*:*Golden*' \
    run tsan "Thread sanitizer" build-tsan '^(base|transport|group|ep|model)(\.|$)'
  run tsan_online "Thread sanitizer, online" build-tsan '^online(\.|$)'
}

# What other code from the same source could change.
run_gcc() {
  local rooms=(base kernels transport group ep cuda_emulated online model engine)
  build "gcc" gcc "${rooms[@]/%/_test}"
  run gcc "gcc" build-gcc "^($(IFS='|' && echo "${rooms[*]}"))(\.|$)"
}

# Not in test-all: gcc does not precompile headers, and takes twice as long for the command as for
# all rooms above. Dying processes, signals and throughput depend on the operating system.
run_gcc_command() {
  build "gcc, the command" gcc wideep
  run_command gcc "gcc" build-gcc \
    'CommandFaults*:CommandSignals*:CommandBenchThroughput*:*Fault*:*ServiceOverNodes*:Soak*'
}

run_room() {
  local program=build/tests/${1}_test
  scripts/build.sh release "${1}_test"
  # A part of the tests on each core.
  seq 0 $(($(nproc) - 1)) |
    GTEST_TOTAL_SHARDS=$(nproc) xargs --max-procs=0 --replace=@ \
      env GTEST_SHARD_INDEX=@ "$program" --gtest_brief=1 --gtest_filter="${FILTER:-*}"
}

results=()
for what in "$@"; do
  case $what in
    release | asan | fuzz | tsan | gcc | gcc_command)
      scripts/install_packages.sh packages.txt development_packages.txt test_packages.txt
      "run_$what"
      ;;
    *) run_room "$what" ;;
  esac
done
if [[ ${#results[@]} -gt 1 ]]; then
  printf '\nAll builds: '
  python3 scripts/count_tests.py "${results[@]}" | tail -n 1
fi
