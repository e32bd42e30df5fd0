#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The main use of wideep in one minute: serves a MoE model on 8 ranks, measures how unevenly its
# experts are used, plans a placement, serves again, and draws the difference. Files are written to
# demo/out, the picture to demo/report.html.
set -euo pipefail
cd "$(dirname "$0")/.."

wideep=${WIDEEP:-build/wideep}
model=models/reference
out=demo/out
run=("$wideep" generate --model "$model" --prompts demo/prompts.jsonl --max-tokens 48 --logits-digest)
ranks=8
slots=40  # 25 % more than the model's 32 experts

if [[ ! -f $model/model.safetensors ]]; then
  echo "error: $model/model.safetensors: not found; train the model first (models/recipe/README.md)" >&2
  exit 2
fi

step() { printf '\n\033[1m== %s\033[0m\n' "$*"; }

rm -rf "$out"
mkdir -p "$out"

step "1. Generate over $ranks ranks, 4 experts on each, and record which experts the tokens use"
"${run[@]}" --ranks $ranks --routing-log "$out/before.json" \
  --expert-statistic-path "$out/statistics" --expert-statistic-iter-range 0-40 >"$out/before.txt"
sed -n '1,/^--- prompt 1 /p' "$out/before.txt" | sed '$d'
echo "(... the other continuations are in $out/before.txt)"

step "2. How unevenly? (tokens per rank and iteration)"
"$wideep" balance report --stats "$out/statistics" --ep-size $ranks

step "3. Plan a placement with $slots slots: replicate the hot experts, spread the rest (all iterations together)"
"$wideep" balance plan --stats "$out/statistics" --ep-size $ranks --num-slots $slots \
  --output "$out/moe_load_balancer.yaml"

step "4. Generate again with the plan"
"${run[@]}" --ranks $ranks --load-balancer "$out/moe_load_balancer.yaml" \
  --routing-log "$out/after.json" >"$out/after.txt"

step "5. One continuation of every domain (the other 24 prompts are load: German, Python, arithmetic)"
for prompt in 0 1 2 3 4 5 6 7; do
  sed -n "/^--- prompt $prompt ---/,/^--- prompt $((prompt + 1)) ---/p" "$out/after.txt" | sed '$d'
done

step "6. Before and after"
summary() { grep -E '^(imbalance ratio|tokens|wall time|critical path|  of it experts)' "$1"; }
echo "before:"; summary "$out/before.txt"
echo "after:";  summary "$out/after.txt"
if diff <(grep ^digest "$out/before.txt") <(grep ^digest "$out/after.txt") >/dev/null; then
  echo "answers:            $(grep -c ^digest "$out/after.txt") of $(wc -l <demo/prompts.jsonl) prompts have bit-identical logits before and after"
else
  echo "answers differ before and after: this must not happen" >&2
  exit 1
fi

"$wideep" balance picture --before "$out/before.json" --after "$out/after.json" \
  --output demo/report.html --title "wideep demo: $ranks ranks, 32 experts, $slots slots"

step "7. The texts change while it serves: German, then Python, then arithmetic; first without, then with online balancing"
changing=("$wideep" generate --model $model --prompts demo/changing_prompts.jsonl --max-tokens 150 \
  --max-batch-size 3 --temperature 0.9 --seed 1 --ranks $ranks --logits-digest)
echo "num_slots: $slots" >"$out/static.yaml"
printf 'num_slots: %s\nlayer_updates_per_iter: 2\n' $slots >"$out/online.yaml"
"${changing[@]}" --load-balancer "$out/static.yaml" --routing-log "$out/static.json" >"$out/static.txt"
"${changing[@]}" --load-balancer "$out/online.yaml" --routing-log "$out/online.json" >"$out/online.txt"
echo "without:"; summary "$out/static.txt"
echo "with:";    summary "$out/online.txt"; grep '^online balancing' "$out/online.txt"
if ! diff <(grep ^digest "$out/static.txt") <(grep ^digest "$out/online.txt") >/dev/null; then
  echo "answers differ with and without online balancing: this must not happen" >&2
  exit 1
fi
echo "answers:            $(grep -c ^digest "$out/online.txt") of $(wc -l <demo/changing_prompts.jsonl) prompts have bit-identical logits with and without"

"$wideep" balance picture --before "$out/static.json" --after "$out/online.json" \
  --names static,online --output demo/online.html --title "wideep demo: the texts change at iterations 150 and 300; without and with online balancing"
