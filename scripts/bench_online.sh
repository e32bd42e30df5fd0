#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# How fast the online balancer adapts to new text, what it remembers, and how long it plans: the last
# step of the demo with 40 and 64 slots (static, online, and with exact_load: node), its prefill
# whole and in iterations of at most 512 tokens;
# then build/bench/online_figures on the same counts, on traces and on a large model (with
# WIDEEP_DATA_DIR). Needs a release build of wideep and online_figures. About 5 minutes.
#
#   scripts/bench_online.sh [OUTPUT_FOLDER]
set -euo pipefail
cd "$(dirname "$0")/.."

wideep=${WIDEEP:-build/wideep}
figures=${FIGURES:-build/bench/online_figures}
out=${1:-$(mktemp -d)}
mkdir -p "$out"

# Of a routing log: sum over iterations and layers of the fullest rank's tokens / of the mean's - 1.
by_tokens() {
  python3 - "$1" <<'EOF'
import json
import sys

with open(sys.argv[1]) as file:
    log = json.load(file)
most = mean = 0
for iteration in log["iterations"]:
    for sent in iteration["sent"]:
        received = [sum(column) for column in zip(*sent)]
        most += max(received)
        mean += sum(received) / len(received)
print(f"{most / mean - 1:.3f}")
EOF
}

# What it was with whole samples of 2,048 tokens, and the goal.
earlier() {
  case $1 in
    online-40-whole) echo "before 0.756" ;;
    online-40-512) echo "before 0.654, goal 0.15" ;;
    exact-40-512) echo "goal 0.15" ;;
    exact-64-512) echo "goal 0.06" ;;
    online-64-whole) echo "before 0.253" ;;
    online-64-512) echo "before 0.197, goal 0.06" ;;
  esac
}

logs=()
for slots in 40 64; do
  for prefill in whole 512; do
    tokens=()
    if [[ $prefill == 512 ]]; then tokens=(--max-num-tokens 64); fi  # of each of 8 ranks
    for mode in static online exact; do
      name=$mode-$slots-$prefill
      printf 'num_slots: %s\nlayer_updates_per_iter: %s\nexact_load: %s\n' "$slots" \
        "$([[ $mode == static ]] && echo 0 || echo 2)" \
        "$([[ $mode == exact ]] && echo node || echo off)" >"$out/$name.yaml"
      "$wideep" generate --model models/reference --prompts demo/changing_prompts.jsonl \
        --max-tokens 150 --max-batch-size 3 --temperature 0.9 --seed 1 --ranks 8 --logits-digest \
        --load-balancer "$out/$name.yaml" "${tokens[@]}" --routing-log "$out/$name.json" \
        >"$out/$name.txt" 2>"$out/$name.err"
      printf 'demo, %s slots, prefill %-6s %-7s by tokens %s  %-20s%s\n' "$slots" "$prefill," "$mode" \
        "$(by_tokens "$out/$name.json")" "$(grep -o '[0-9]* experts moved' "$out/$name.txt" || true)" \
        "$(earlier "$name")"
    done
    for mode in online exact; do
      if ! diff <(grep ^digest "$out/static-$slots-$prefill.txt") \
        <(grep ^digest "$out/$mode-$slots-$prefill.txt") >/dev/null; then
        echo "answers differ with and without online balancing: this must not happen" >&2
        exit 1
      fi
    done
    logs+=("demo, $slots slots, prefill $prefill, replayed:2=$out/online-$slots-$prefill.json")
  done
done
"$figures" "${logs[@]}"
