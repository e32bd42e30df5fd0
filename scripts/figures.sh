#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes the figures of docs/seeds.md again: those of the texts that wideep grew from, with numbers of
# this program on this machine. Minutes on two cores. Prints each command as it runs it, and where
# its page and its numbers are; index.html lists them all.
#
#   scripts/figures.sh [folder]         default: build/figures
#   FIGURES="offline kernels" ...       only these, and the runs that they draw
#
# Figures of DeepSeek's recorded load and configuration read the folder WIDEEP_DATA_DIR, and are
# skipped without it. Each figure has NAME.html and NAME.json; what a command has no page for,
# figures_index.py makes one of. To add one: a line `figure` below, and its row in docs/seeds.md.
set -euo pipefail
out=build/figures
[[ $# -eq 0 ]] || out=$(realpath -m "$1")
cd "$(dirname "$0")/.."

wideep=${WIDEEP:-build/wideep}
runs=$out/runs
r1=${WIDEEP_DATA_DIR:-}/model_configs/deepseek-ai--DeepSeek-R1_config.json
load=${WIDEEP_DATA_DIR:-}/expert_load_deepseek_v3/decode_in1000out1000.json
later=${WIDEEP_DATA_DIR:-}/expert_load_deepseek_v3/decode_in2000out100.json
made=() failed=() known=" "
current=runs  # whose commands are noted: a figure's, or of runs that several draw
exec 3>&1  # for commands whose output goes to a file
rm -rf "$runs"
mkdir -p "$runs"

# show <word...>: prints a command as one can type it, notes it for the index, and runs it.
show() {
  local text="" word
  for word in "$@"; do
    [[ $word =~ ^[A-Za-z0-9_./:,=+%-]+$ ]] || word="'$word'"
    text+=" $word"
  done
  echo "\$$text" | tee -a "$runs/$current.commands" >&3
  "$@"
}

# chosen <figure...>: whether one of them is to be made.
chosen() {
  local name
  for name in "$@"; do
    [[ -z ${FIGURES:-} || " $FIGURES " == *" $name "* ]] && return 0
  done
  return 1
}

# figure <name> <which of the seeds> <what it shows> <command...>: what the command prints goes to
# NAME.json if it has --json, else to NAME.txt. In its words, @ is the path of NAME. `wideep figures`
# itself names its files, after the figure.
figure() {
  local name=$1 seed=$2 what=$3 begin=$SECONDS ending=txt current=$1
  shift 3
  known+="$name "
  chosen "$name" || return 0
  printf '\n== %s: %s (%s)\n' "$name" "$what" "$seed"
  if [[ -z ${WIDEEP_DATA_DIR:-} && " $* " =~ \ ($r1|$load|$later)\  ]]; then
    echo "skipped: no recorded loads and configurations; set WIDEEP_DATA_DIR"
    return 0
  fi
  rm -f "$out/$name".{html,json,txt}
  [[ " $* " == *" --json "* ]] && ending=json
  # A function shows its commands itself.
  [[ $(type -t "$1") == function ]] || set -- show "$@"
  if ! "${@//@/$out/$name}" >"$out/$name.$ending" 2>"$runs/$name.log"; then
    echo "failed: $(tail -n 1 "$runs/$name.log")"
    failed+=("$name")
    return 0
  fi
  if [[ -f $out/$name.html && ! -f $out/$name.json ]]; then  # the numbers that the page has in it
    sed -n 's/^<script id="data" type="application\/json">\(.*\)<\/script>$/\1/p' \
      "$out/$name.html" >"$out/$name.json"
  fi
  made+=("$name"$'\t'"$seed"$'\t'"$what"$'\t'"$((SECONDS - begin))")
  for ending in html json txt; do
    [[ ! -s $out/$name.$ending ]] || echo "  $out/$name.$ending"
  done
}

# run <name> <option...>: a run of the reference model that figures draw; its log is runs/NAME.json.
run() {
  local name=$1
  shift
  show "$wideep" generate --model models/reference --logits-digest "$@" \
    --routing-log "$runs/$name.json" >"$runs/$name.txt" 2>"$runs/$name.log" ||
    { tail -n 1 "$runs/$name.log"; exit 1; }
}

# plan <name> <stats> <ranks> <slots>: a placement by recorded counts, runs/NAME.yaml.
plan() {
  show "$wideep" balance plan --stats "$2" --ep-size "$3" --num-slots "$4" \
    --output "$runs/$1.yaml" >"$runs/$1.plan.txt"
}

# balance_table <output> <stats> <ranks> <slots> <more ranks>: mean, standard deviation and imbalance
# ratio by rank and by slot: as recorded, with more slots on each rank, with more ranks of as many
# slots. Also writes them as JSON to <output>.json.
balance_table() {
  local output=$1 stats=$2 ranks=$3 slots=$4 more=$5 name by mean std ratio rows=()
  plan table-slots "$stats" "$ranks" "$slots" || return
  plan table-ranks "$stats" "$more" "$slots" || return
  printf '%-34s %-9s %14s %14s %16s\n' "" by mean std imbalance-ratio
  for name in "as recorded, EP $ranks" "$slots slots, EP $ranks" "$slots slots, EP $more"; do
    for by in rank slot; do
      local command=("$wideep" balance report --stats "$stats" --ep-size "${name##* }")
      [[ $name == "$slots slots, EP $ranks" ]] && command+=(--project "$runs/table-slots.yaml")
      [[ $name == "$slots slots, EP $more" ]] && command+=(--project "$runs/table-ranks.yaml")
      [[ $by == slot ]] && command+=(--per-expert)
      read -r _ mean std ratio < <(show "${command[@]}" | grep ^average) || return
      printf '%-34s %-9s %14s %14s %16s\n' "$name" $by "$mean" "$std" "$ratio"
      rows+=("${rows[0]+,}{\"placement\": \"$name\", \"by\": \"$by\", \"mean\": $mean, \"std\": $std, \"imbalance_ratio\": $ratio}")
    done
  done
  printf '%s\n' "[" "${rows[@]}" "]" >"$output.json"
}

# throughput <dataset>: the report of trtllm-bench's guide, of 200 requests of 128 tokens.
throughput() {
  show "$wideep" bench prepare-dataset --output "$1" --tokenizer models/reference token-norm-dist \
    --num-requests 200 --input-mean 128 --input-stdev 0 --output-mean 128 --output-stdev 0 >/dev/null || return
  show "$wideep" bench throughput --model models/reference --dataset "$1" --ranks 2 --streaming \
    --report-json "${1%.dataset}.json" || return
  rm "$1"
}

# named <figure> <output> <option...>: `wideep figures` with files of another name.
named() {
  local folder=$runs/$1.files
  show "$wideep" figures "$1" "${@:3}" --output "$folder" | sed '/^wrote /d' || return
  mv "$folder/$1.html" "$2.html"
  mv "$folder/$1.json" "$2.json"
}

# Expert parallelism, part 1: 8 ranks of 32 experts, then 40 slots on 8 and on 10 ranks. Each text is
# there four times with another answer, since little is seen of few tokens in an iteration.
if chosen sent-tokens offline ranks table; then
  texts=(--prompts "$runs/prompts.jsonl" --max-tokens 48 --temperature 0.9 --seed 1)
  for _ in 1 2 3 4; do cat demo/prompts.jsonl; done >"$runs/prompts.jsonl"
  run off "${texts[@]}" --ranks 8 \
    --expert-statistic-path "$runs/statistics" --expert-statistic-iter-range 0-40
  plan slots "$runs/statistics" 8 40
  plan ranks "$runs/statistics" 10 40
  chosen sent-tokens offline && run slots "${texts[@]}" --ranks 8 --load-balancer "$runs/slots.yaml"
  chosen ranks && run ranks "${texts[@]}" --ranks 10 --load-balancer "$runs/ranks.yaml"
fi
if chosen sent-tokens; then
  for _ in 1 2 3 4; do grep python demo/changing_prompts.jsonl; done >"$runs/python.jsonl"
  run python --prompts "$runs/python.jsonl" --max-tokens 48 --temperature 0.9 --seed 1 --ranks 8
fi
if chosen online online-slots; then
  changing=(--prompts demo/changing_prompts.jsonl --max-tokens 150 --max-batch-size 3
    --temperature 0.9 --seed 1 --ranks 8)
  printf 'num_slots: 32\nlayer_updates_per_iter: 2\n' >"$runs/online-32.yaml"
  printf 'num_slots: 40\nlayer_updates_per_iter: 2\n' >"$runs/online-40.yaml"
  run static "${changing[@]}"
  chosen online && run online-32 "${changing[@]}" --load-balancer "$runs/online-32.yaml"
  chosen online-slots && run online-40 "${changing[@]}" --load-balancer "$runs/online-40.yaml"
fi
figure sent-tokens "part 1, figures 1 to 4, 6 to 9, 16 to 19, table 1" \
  "Tokens of ranks, experts and slots" "$wideep" figures sent-tokens --output "$out" \
  --routing-log "$runs/off.json" --routing-log "$runs/python.json" --routing-log "$runs/slots.json" \
  --placement - --placement - --placement "$runs/slots.yaml" --names "no balancing,Python only,40 slots"
figure offline "part 1, figures 4, 5, 7 to 11, 16 to 18" "The whole runs; one request alone" \
  "$wideep" balance picture --before "$runs/off.json" --after "$runs/slots.json" --output @.html \
  --names "no balancing,40 slots" --title "8 ranks: no balancing, and 40 slots"
figure ranks "part 1, figures 20 and 21" "Tokens of 10 ranks with 4 slots each" \
  named sent-tokens @ --routing-log "$runs/ranks.json" --placement "$runs/ranks.yaml" \
  --names "40 slots on 10 ranks"
figure table "part 1, table 1" "Deviation and imbalance, by rank and by slot" \
  balance_table @ "$runs/statistics" 8 40 10
figure table-recorded "part 1, table 1" "The same of DeepSeek-V3's recorded load" \
  balance_table @ "$load" 32 288 36
figure planners "part 1, table 1" "What each planner makes of it, and of later load" \
  "$wideep" balance compare --stats "$load" --ep-size 32 --num-slots 288 --holdout "$later" \
  --html @.html --json
figure online "part 1, figures 13 and 22" "Experts move while the texts change, 32 slots" \
  "$wideep" balance picture --before "$runs/static.json" --after "$runs/online-32.json" \
  --output @.html --names "no balancing,online" --title "32 slots: without and with online balancing"
figure online-slots "part 1, figure 23" "The same with 40 slots" \
  "$wideep" balance picture --before "$runs/static.json" --after "$runs/online-40.json" \
  --output @.html --names "no balancing,online" --title "Online balancing with 40 slots"
figure movable-experts "part 1, figure 15" "Experts that can move between two tokens" \
  "$wideep" figures movable-experts --model "$r1" --hardware gb200 --dtype nvfp4 --output "$out"
figure expert-time "part 1, figures 24 and 25" "Time of experts and of communication by EP size" \
  "$wideep" figures expert-time --model "$r1" --hardware gb200 --dtype nvfp4 --stats "$load" \
  --holdout "$later" --ranks 4,8,18,36,72 --measured-ranks 2,4,8 --output "$out"
figure imbalance "part 1, figure 25" "Imbalance by the number of ranks, and what replicas give back" \
  "$wideep" simulate imbalance --stats "$load" --ranks 8,16,32,64 --holdout "$later" --html @.html --json

# Part 2: an iteration of 1, 2 and 4 ranks with 8 requests and a thread each; groups of ranks that
# only exchange rows; predictions.
if chosen kernels; then
  for ranks in 1 2 4; do
    for ((i = 0; i < ranks; ++i)); do head -n 8 demo/prompts.jsonl; done >"$runs/ep$ranks.jsonl"
    show "$wideep" generate --model models/reference --prompts "$runs/ep$ranks.jsonl" \
      --max-tokens 48 --ranks $ranks --threads-per-rank 1 \
      --profile-range 5-45 --profile-output "$runs/ep$ranks.json" \
      >"$runs/ep$ranks.txt" 2>"$runs/ep$ranks.log" || { tail -n 1 "$runs/ep$ranks.log"; exit 1; }
  done
fi
figure kernels "part 2, figures 1, 3 and 4" "Where the time of an iteration goes" \
  "$wideep" figures kernels "$runs/ep1.json" "$runs/ep2.json" "$runs/ep4.json" --output "$out"
figure exchange "part 2, figure 4" "Processor time of dispatch and combine in growing groups" \
  "$wideep" bench ep --sweep-ranks 2,4,8,16,32,64 --tokens 16 --routing spread --json
figure pareto "part 2, figures 5 to 7" "Throughput of a rank over the speed of a user" \
  "$wideep" figures pareto --model "$r1" --hardware gb200 --dtype nvfp4 --stats "$load" --output "$out"
figure pareto-drafts "part 2, figure 8" "The same with drafts" \
  named pareto @ --model "$r1" --hardware gb200 --dtype nvfp4 --stats "$load" \
  --lengths 8192/1024 --acceptance 0.8 --by ep

# Part 3.
figure optimizations "part 3, figure 8 and text" "Each optimisation without and with it" \
  "$wideep" figures optimizations --config bench/configs/qwen3-moe-1.3b.json \
  --latent-config bench/configs/deepseek-0.9b.json --rounds 3 --output "$out"
figure rows "part 3, low-precision all-to-all" "Rows in bf16, FP8 and NVFP4" \
  "$wideep" bench ep --ranks 2 --tokens 64,256 --dtype bf16,fp8,fp8 --combine-dtype bf16,fp8,nvfp4 \
  --sum residual --json
figure profile "part 3, figures 4 and 5" "A profile of some iterations, for ui.perfetto.dev" \
  "$wideep" generate --model models/reference --ranks 2 --prompts demo/prompts.jsonl --max-tokens 24 \
  --profile-range 8-12 --profile-output @.json

# N-grams.
figure ngram "n-grams, figures 3 to 7 and both tables" "What n-grams accept and bring" \
  "$wideep" figures ngram --model models/reference --output "$out"

# The guide to benchmarks.
figure throughput "perf-benchmarking, the report of throughput" "200 requests of 128 and 128 tokens" \
  throughput @.dataset

for name in ${FIGURES:-}; do
  [[ $known == *" $name "* ]] || { echo "FIGURES: no figure '$name'; there are:$known" >&2; exit 2; }
done
python3 scripts/figures_index.py "$out" "${made[@]}"
if ((${#failed[@]})); then
  echo "failed: ${failed[*]}" >&2
  exit 1
fi
