#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The main use of wideep in one minute: serves a MoE model on 8 ranks, measures how unevenly its
# experts are used, plans a placement, serves again, and draws the difference. Then the texts change
# while it serves, and at last every rank has a core of its own. Files are written to demo/out, the
# pictures to demo/report.html and demo/online.html, the figures of README.md to demo/out/figures.txt.
#
#   DEMO_OUT=FOLDER   everything goes there instead
set -euo pipefail
cd "$(dirname "$0")/.."

wideep=${WIDEEP:-build/wideep}
model=models/reference
out=${DEMO_OUT:-demo/out}
pictures=${DEMO_OUT:-demo}
run=("$wideep" generate --model "$model" --prompts demo/prompts.jsonl --max-tokens 48 --logits-digest)
ranks=8
slots=40  # 25 % more than the model's 32 experts

if [[ ! -f $model/model.safetensors ]]; then
  echo "error: $model/model.safetensors: not found; train the model first (models/recipe/README.md)" >&2
  exit 2
fi

step() { printf '\n\033[1m== %s\033[0m\n' "$*"; }

[[ -n ${DEMO_OUT:-} ]] || rm -rf "$out"
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
  --output "$pictures/report.html" --title "wideep demo: $ranks ranks, 32 experts, $slots slots" |
  tee "$out/plan.picture"

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
  --names static,online --output "$pictures/online.html" --title "wideep demo: the texts change at iterations 150 and 300; without and with online balancing" |
  tee "$out/online.picture"

cores=$(nproc)
few=2
few_slots=$((32 + few))  # one more on each: replicas of small experts cost as much as they save
step "8. $few ranks, so that each may have a core: the first texts without and with a plan, three times in turns"
paired=("$wideep" generate --model $model --prompts demo/prompts.jsonl --max-tokens 48 \
  --ranks $few --logits-digest)
"${paired[@]}" --expert-statistic-path "$out/few_statistics" \
  --expert-statistic-iter-range 0-100 >"$out/few.txt" 2>"$out/few.log"
"$wideep" balance plan --stats "$out/few_statistics" --ep-size $few --num-slots $few_slots \
  --output "$out/few.yaml" >/dev/null
for round in 1 2 3; do
  "${paired[@]}" --routing-log "$out/few_without.json" >"$out/few_without.$round.txt" 2>>"$out/few.log"
  "${paired[@]}" --load-balancer "$out/few.yaml" --routing-log "$out/few_with.json" \
    >"$out/few_with.$round.txt" 2>>"$out/few.log"
  for which in without with; do
    echo "$which: $(grep '^wall time' "$out/few_$which.$round.txt")"
  done
done
"$wideep" balance picture --before "$out/few_without.json" --after "$out/few_with.json" \
  --output "$out/few.html" --title "wideep demo: $few ranks" >"$out/few.picture"

# figure <pattern> <column> <file>...: the median over the files.
figure() {
  local pattern=$1 column=$2
  shift 2
  grep -h "$pattern" "$@" | awk -v column="$column" '{print $column}' | sort -n |
    awk '{all[NR] = $1} END {print all[int((NR + 1) / 2)]}'
}
row() { printf '  %-42s %9s %9s\n' "$@"; }
# rows <picture> <without...> -- <with...>
rows() {
  local picture=$1 without=() with=()
  shift
  while [[ $1 != -- ]]; do without+=("$1") && shift; done
  shift
  with=("$@")
  row "imbalance ratio, by tokens" "$(figure 'by tokens' 5 "$picture")" \
    "$(figure 'by tokens' 6 "$picture")"
  row "critical path, all of it, ms" "$(figure '^critical path' 3 "${without[@]}")" \
    "$(figure '^critical path' 3 "${with[@]}")"
  row "critical path of the experts, ms" "$(figure 'of it experts' 4 "${without[@]}")" \
    "$(figure 'of it experts' 4 "${with[@]}")"
  row "wall time, s" "$(figure '^wall time' 3 "${without[@]}")" \
    "$(figure '^wall time' 3 "${with[@]}")"
}

step "9. What it brings"
{
  printf '%-44s %9s %9s\n' "" without with
  echo "$ranks ranks, a plan (steps 1 to 4)"
  rows "$out/plan.picture" "$out/before.txt" -- "$out/after.txt"
  echo "$ranks ranks, online while the texts change (7)"
  rows "$out/online.picture" "$out/static.txt" -- "$out/online.txt"
  echo "$few ranks, a plan (8; medians of 3)"
  rows "$out/few.picture" "$out"/few_without.?.txt -- "$out"/few_with.?.txt
} | tee "$out/figures.txt"
cat <<END

The critical path adds up the slowest rank of every iteration: how long it takes where each rank has
a core. Here $ranks ranks share $cores cores: those that wait leave their core to the others, wall
time is the work of all ranks together, and balancing, which moves work but does not lessen it,
cannot shorten it; moving experts costs a little. With a core for each rank ($few ranks) the wall
waits for the slowest one, as it does on a cluster.
END
