#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tests and measures dispatch, combine and copies of experts on a machine with a GPU, in at most
# nine minutes:
#
#   OUT=logs bench/cuda/run_on_device.sh [folder that stage.sh has filled]
#
# Every part has a limit of its own, and none keeps the others from running. Logs go to $OUT, the
# most valuable first; summary.log has one line for each part.
set -uo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
programs=${1:-$here}
OUT=${OUT:-$here/logs}
total=${TOTAL_SECONDS:-520}
mkdir -p "$OUT"
PATH=$PATH:/usr/local/cuda/bin
test=$programs/cuda_gpu_test
bench=$programs/cuda_exchange_bench
# A C++ library of ours only where there is none: tools of the machine may need theirs.
if ldd "$test" 2>&1 | grep --quiet -e 'not found'; then
  export LD_LIBRARY_PATH=$programs/lib/fallback${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
fi

# part <log> <seconds> <title> <command...>: appends to the log, keeps to what is left of the time.
part() {
  local log=$OUT/$1 limit=$2 title=$3 left=$((total - SECONDS)) start=$SECONDS status=0
  shift 3
  ((left < limit)) && limit=$left
  if ((limit < 5)); then
    echo "skipped, no time left: $title" | tee -a "$OUT/summary.log"
    return
  fi
  printf '\n== %s\n' "$title" >>"$log"
  timeout --kill-after=5 "$limit" "$@" 2>&1 | head -c 400000 >>"$log"
  status=${PIPESTATUS[0]}
  echo "$title: exit $status, $((SECONDS - start)) s" | tee -a "$OUT/summary.log"
}

# sanitize <tool> <seconds> <rounds> [tests]: few and small cases, ranks in one launch.
sanitize() {
  part sanitizer.log "$2" "compute-sanitizer $1, $3 rounds" \
    env WIDEEP_CUDA_ROUNDS="$3" WIDEEP_CUDA_RANKS=4 WIDEEP_CUDA_SEED=3 \
    compute-sanitizer --tool "$1" --error-exitcode 9 --print-limit 20 \
    "$test" --gtest_filter="${4:-*RandomCases/OneLaunch:*ByCounts*/OneLaunch}" --gtest_brief=1
}

date -u >"$OUT/summary.log"
part device.log 10 'device' nvidia-smi
part test.log 60 'equals the CPU path, ranks in one launch' \
  env WIDEEP_CUDA_ROUNDS=200 "$test" --gtest_filter='*/OneLaunch:*Graph*'
part test.log 60 'equals the CPU path, ranks in streams; deadlines' \
  env WIDEEP_CUDA_ROUNDS=200 WIDEEP_CUDA_SEED=2 "$test" \
  --gtest_filter='*/Streams:*DeadRank*:*ChoosesTheSlots*:*Statistics*:*TimeOf*'
part test.log 60 'equals the CPU path, dependent launches' \
  env WIDEEP_CUDA_ROUNDS=200 WIDEEP_CUDA_SEED=5 "$test" --gtest_filter='*/Dependent*'
part latency.log 60 'latency' "$bench" latency
part test.log 40 'copies of experts' "$test" --gtest_filter='*Experts*'
part copies.log 40 'copies of experts' "$bench" copies
part bandwidth.log 60 'bandwidth' "$bench" bandwidth
part test.log 60 'ranks are processes; the public communicator' \
  "$test" --gtest_filter='*Processes*:*SymmetricMemory*:*Public*'
sanitize memcheck 40 6
sanitize racecheck 40 4
sanitize synccheck 30 6
sanitize initcheck 30 4
sanitize memcheck 30 4 '*RandomCases/DependentOneLaunch'
sanitize memcheck 30 4 '*CopiesOfExperts*'
sanitize initcheck 30 4 '*CopiesOfExperts*'
part bandwidth.log 30 'bandwidth of coded rows' "$bench" formats
part bandwidth.log 30 'numbers of blocks and threads' "$bench" blocks
part test.log 60 'equals the CPU path, more rounds' \
  env WIDEEP_CUDA_ROUNDS=2000 WIDEEP_CUDA_SEED=4 "$test" --gtest_filter='*RandomCases*' \
  --gtest_brief=1
cat "$OUT/summary.log"
tail -n 45 "$OUT/bandwidth.log" "$OUT/latency.log" "$OUT/copies.log" 2>/dev/null
exit 0
