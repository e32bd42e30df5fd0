#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tests `wideep bench accuracy` with lm_eval itself, on the tasks of tests/accuracy/: the reference
# model's figures, equal bits over layouts, of random weights too, and that other bits are found.
# Exits with 77 and a line with the reason if lm_eval cannot be installed.
#
#   scripts/test_accuracy.sh <path of wideep> <work directory>
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
wideep=$(realpath "$1")
work=$2
source "$root/scripts/testing.sh"
mkdir -p "$work"
work=$(realpath "$work")

"$root/scripts/install_lm_eval.sh" "$work/lm_eval" 2>"$work/install.log" ||
  skip "$(tail -n 1 "$work/install.log")"
# No task needs more than the files beside it.
export HF_HUB_OFFLINE=1 HF_DATASETS_OFFLINE=1 HF_HOME="$work/cache"

# accuracy <option...>: sets out and err.
accuracy() {
  "$wideep" bench accuracy --model "$root/models/reference" --lm-eval "$work/lm_eval" \
    --include-path "$root/tests/accuracy" "$@" >"$work/out" 2>"$work/err"
}
# figure <task> <metric>: of the JSON in out.
figure() {
  python3 -c 'import json, sys
print(json.load(open(sys.argv[1]))["results"][sys.argv[2]][sys.argv[3] + ",none"])' \
    "$work/out" "$1" "$2"
}
# holds <expression>
holds() { python3 -c "import sys; sys.exit(not ($1))"; }

echo "-- the reference model on one rank, and on two with the online balancer"
accuracy --tasks wideep_endings,wideep_text --json || fail "$(tail -n 3 "$work/err")"
acc=$(figure wideep_endings acc)
perplexity=$(figure wideep_text byte_perplexity)
echo "accuracy $acc, perplexity per byte $perplexity"
holds "$acc >= 0.75" || fail "expected an accuracy of at least 0.75, where 0.25 is chance"
holds "1 < $perplexity < 4" || fail "expected a perplexity per byte below 4, where 256 is chance"
grep -q '"same_bits": true' "$work/out" || fail "no same_bits"

echo "-- figures for people, other layouts, one prompt in a request"
accuracy --tasks wideep_endings --limit 3 --batch-size 1 --layout "--ranks 4" \
  --layout "--ranks 1" --layout "--ranks 2" || fail "$(tail -n 3 "$work/err")"
grep -q '|wideep_endings|' "$work/out" || fail "no table"
grep -q '^same bits 12 requests, .* log-probabilities: equal to the last bit with 3 layouts' \
  "$work/out" || fail "$(tail -n 1 "$work/out")"

echo "-- random weights"
accuracy --tasks wideep_endings --limit 2 --serve-options --random-weights ||
  fail "$(tail -n 3 "$work/err")"

echo "-- other weights have other log-probabilities, which are found"
if accuracy --tasks wideep_endings --limit 1 --layout "--ranks 1" \
  --layout "--ranks 1 --dtype fp8"; then
  fail "8-bit weights were taken for the same"
fi
grep -q 'error: request 0 of 4 .*: token 1.* as with --ranks 1, found .* with --ranks 1 --d' \
  "$work/err" || fail "$(tail -n 1 "$work/err")"

echo "-- a task that is not there"
if accuracy --tasks nothing_of_this_name; then fail "it was found"; fi
grep -q 'error: --ranks 1: lm_eval has ended with exit code 1.*nothing_of_this_name' \
  "$work/err" || fail "$(tail -n 1 "$work/err")"
