#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds and runs tests: scripts/test.sh <what>..., one after the other, up to the first that fails.
#
#   release   every unit test and every whole-system test
#   asan      the same under the address and undefined-behaviour sanitizers
#   fuzz      each fuzz target for a few seconds, under these sanitizers
#   tsan      tests with threads, under the thread sanitizer
#   gcc       tests of kernels, communication and the model, built with gcc
#   prediction  the advisor's predictions beside this machine, which should do nothing else
#   gcc_command  the tests of the command, built with gcc
#   <room>    the tests of one room of src/, or of tests/ ("whole", "command"), in the release
#             build; FILTER='Placement*:Shares*' selects some of them
#
# WIDEEP_TEST_FEW=1: of the sanitizers and gcc only the rooms where they have found most, which is
# what continuous integration has time for.
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

# Nothing here depends on how fast the machine is, or on what else it does.
run_release() {
  build "Release build" release
  run release "Release build" build . '^prediction$'
}

run_prediction() {
  build "Predictions" release prediction_test
  run prediction "Predictions" build '^prediction$'
}

# run_rooms <what> <title> <build directory> <room>...
run_rooms() {
  local what=$1 title=$2 directory=$3
  shift 3
  build "$title" "$what" "${@/%/_test}"
  run "$what" "$title" "$directory" "^($(IFS='|' && echo "$*"))(\.|$)"
}

# run_command <what> <title> <build directory> [suites left out]: the release build's tests of the
# command, with the command of another build.
run_command() {
  local what=$1 title=$2 directory=$3 left_out=${4:-}
  build "Tests of the command" release command_test
  WIDEEP_BINARY=$PWD/$directory/wideep GTEST_FILTER="*${left_out:+-$left_out}" \
    run "${what}_command" "$title, the command" build '^command\.'
}

# Where bytes of others are read, and memory is shared.
rooms_of_readers=(formats tensor_files tokenizer grammar jinja chat answer recordings weights transport group store
  ep command_line traces kv_events client http api server)

run_asan() {
  local title="Address and undefined-behaviour sanitizers"
  if [[ -n $few ]]; then
    run_rooms asan "$title" build-asan "${rooms_of_readers[@]}"
    return
  fi
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

# The thread sanitizer cannot see races between processes, so only tests with ranks as threads run,
# and those of the threads beside them that keep prompts.
run_tsan() {
  local rooms=(base transport group ep store)
  [[ -n $few ]] || rooms+=(model run)
  local all=("${rooms[@]}" online)
  build "Thread sanitizer" tsan "${all[@]/%/_test}"
  GTEST_FILTER='ThreadPool*:*threads*:*Threads*:*Golden*:RedisSlow*:PromptStore*' \
    run tsan "Thread sanitizer" build-tsan "^($(IFS='|' && echo "${rooms[*]}"))(\.|$)"
  run tsan_online "Thread sanitizer, online" build-tsan '^online(\.|$)'
}

# What other code from the same source could change.
run_gcc() {
  local rooms=(kernels ep model)
  [[ -n $few ]] || rooms+=(base transport group cuda_emulated online schedule engine)
  run_rooms gcc "gcc" build-gcc "${rooms[@]}"
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
few=${WIDEEP_TEST_FEW:-}
for what in "$@"; do
  case $what in
    release | asan | fuzz | tsan | gcc | prediction | gcc_command)
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
