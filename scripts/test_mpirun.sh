#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tests ranks that mpirun starts on this machine, as two or four nodes with WIDEEP_NODE: the same
# texts as on one rank, also while experts move; different settings or programs; a rank that dies;
# servers of two kinds as ranks of one launch; Ctrl-C.
#
#   scripts/test_mpirun.sh [path of wideep]
#
# Exits with 77 and a line with the reason if MPI is missing.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
wideep=$(realpath "${1:-$root/build/wideep}")
model=$root/models/reference
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

source "$root/scripts/testing.sh"

command -v mpirun >/dev/null || skip "no mpirun"
[[ -e $(dirname "$wideep")/libwideep_mpi.so ]] || skip "this wideep is built without MPI"

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
arguments=(generate --model "$model" --prompt "Once upon a time" --prompt "The sea" --prompt "Third")
texts() { grep -E '"(text|logits_digest)"' "$1"; }

# on_nodes <what each process runs, with $rank> [arguments...]: 4 ranks on $nodes nodes
nodes=2
on_nodes() {
  local command=$1
  shift
  timeout --kill-after=5 60 mpirun --oversubscribe --bind-to none -np 4 \
    sh -c 'rank=$OMPI_COMM_WORLD_RANK; export WIDEEP_NODE=$((rank * '$nodes' / 4)); '"$command" \
    "$wideep" "$@"
}

"$wideep" "${arguments[@]}" --max-tokens 16 --logits-digest --json >"$work/one" 2>/dev/null
cat >"$work/stages.yaml" <<YAML
tensor_parallel_size: 2
pipeline_parallel_size: 2
enable_attention_dp: true
moe_expert_parallel_size: 2
YAML
for config in "" "--config=$work/stages.yaml"; do
  on_nodes 'exec "$0" "$@"' "${arguments[@]}" --max-tokens 16 --logits-digest --json \
    ${config:+"$config"} >"$work/four" 2>"$work/four.err" || fail "$(cat "$work/four.err")"
  cmp -s <(texts "$work/one") <(texts "$work/four") || fail "other texts ${config:+of stages}"
done
echo "2 nodes, 4 ranks, also as 2 stages: the texts and digests of one rank"

# One process writes the packed file, all others wait or take the checkpoint; then all have it.
for start in first second; do
  on_nodes 'exec "$0" "$@"' "${arguments[@]}" --max-tokens 16 --logits-digest --json \
    --packed-cache="$work/packed" >"$work/four" 2>"$work/four.err" || fail "$(cat "$work/four.err")"
  cmp -s <(texts "$work/one") <(texts "$work/four") || fail "other texts at the $start packed start"
done
grep -q "packing" "$work/four.err" && fail "the second start has packed, too"
echo "2 nodes, 4 ranks, packed weights: the texts and digests of one rank"

# Policy trt moves most. The moves of a stage whose balancer is not on rank 0's node count, too.
printf 'num_slots: 40\nlayer_updates_per_iter: 2\nupdate_policy: trt\n' >"$work/online.yaml"
printf 'moe_config:\n  load_balancer: %s\n' "$work/online.yaml" | cat "$work/stages.yaml" - >"$work/both.yaml"
"$wideep" "${arguments[@]}" --max-tokens 48 --logits-digest --json >"$work/one" 2>/dev/null
for case in "2 --load-balancer=$work/online.yaml" "4 --load-balancer=$work/online.yaml" \
  "4 --config=$work/both.yaml"; do
  read -r nodes config <<<"$case"
  on_nodes 'exec "$0" "$@"' "${arguments[@]}" --max-tokens 48 --logits-digest --json "$config" \
    >"$work/four" 2>"$work/four.err" || fail "$(cat "$work/four.err")"
  cmp -s <(texts "$work/one") <(texts "$work/four") || fail "other texts while experts move: $case"
  moves=$(sed -n 's/^    "moves": \([0-9]*\),/\1/p' "$work/four" | head -n 1)
  [[ $moves -ge 100 ]] || fail "only $moves experts have moved: $case"
  echo "$nodes nodes, ${config##*/}: $moves experts moved, the texts and digests of one rank"
done

# Ranks that share batches, experts or sequences, on different nodes; the long prompt takes several
# turns of the ranks that share it.
long=(--prompt "$(for i in $(seq 60); do printf 'The sea %d was calm. ' "$i"; done)" --prompt "Third")
long=(generate --model "$model" "${long[@]}" --max-tokens 8 --logits-digest --json)
"$wideep" "${long[@]}" >"$work/one" 2>/dev/null
for case in "4|tensor_parallel_size: 4" \
  "2|tensor_parallel_size: 4|moe_tensor_parallel_size: 2|moe_config: {load_balancer: $work/online.yaml}" \
  "2|tensor_parallel_size: 2|context_parallel_size: 2|max_num_tokens: 256" \
  "4|context_parallel_size: 4|enable_attention_dp: true|max_num_tokens: 256" \
  "4|tensor_parallel_size: 2|pipeline_parallel_size: 2"; do
  nodes=${case%%|*} settings=${case#*|}
  tr '|' '\n' <<<"$settings" >"$work/case.yaml"
  on_nodes 'exec "$0" "$@"' "${long[@]}" --config="$work/case.yaml" >"$work/four" \
    2>"$work/four.err" || fail "$nodes nodes, $settings: $(cat "$work/four.err")"
  cmp -s <(texts "$work/one") <(texts "$work/four") || fail "$nodes nodes, $settings: other texts"
  echo "$nodes nodes, ${settings//|/, }: the texts and digests of one rank"
done
nodes=2

cat >"$work/reduced.yaml" <<YAML
tensor_parallel_size: 4
enable_attention_dp: true
moe_expert_parallel_size: 4
moe_config:
  combine: reduced
YAML
on_nodes 'exec "$0" "$@"' "${arguments[@]}" --json --config="$work/reduced.yaml" \
  >"$work/four" 2>"$work/four.err" || fail "$(cat "$work/four.err")"
# rows between nodes: one per (token, node) in dispatch, and as many in combine
mapfile -t rows < <(sed -n '/"nodes"/,/other_bytes/s/.*"rows": \([0-9]*\),/\1/p' "$work/four")
[[ ${#rows[@]} -eq 2 && ${rows[0]} -gt 0 && ${rows[0]} -eq ${rows[1]} ]] ||
  fail "reduced combine: rows between nodes: ${rows[*]}"
echo "reduced combine: ${rows[0]} rows there, as many back"

status=0
on_nodes '[ $rank = 3 ] && set -- "$@" --seed 5; exec "$0" "$@"' "${arguments[@]}" \
  >"$work/out" 2>"$work/err" || status=$?
[[ $status -eq 2 && $(grep -c "^error: ranks 0 and 3 differ in --seed: 0 and 5" "$work/err") -eq 1 ]] ||
  fail "settings that differ: exit code $status: $(cat "$work/err")"
[[ ! -s $work/out ]] || fail "settings that differ: something on stdout"
echo "settings that differ: named in one line, exit code 2"

status=0
export ERR=$work/err KILLED=$work/killed
on_nodes '[ $rank = 1 ] && {
    "$0" "$@" & until grep -q ^nodes "$ERR"; do sleep 0.05; done
    sleep 0.5; kill -9 $!; touch "$KILLED"; sleep 3; exit 1
  }; exec "$0" "$@"' \
  "${arguments[@]}" --max-tokens 4000 >"$work/out" 2>"$work/err" || status=$?
[[ $status -ne 0 && $status -ne 124 && $status -ne 137 ]] || fail "a dead rank: exit code $status"
took=$(($(date +%s) - $(stat --format=%Y "$work/killed")))
[[ $took -le 15 ]] || fail "a dead rank: ended after $took s only"
grep -q "rank 1 (process [0-9]*) has ended unexpectedly" "$work/err" ||
  fail "a dead rank is not named: $(cat "$work/err")"
echo "a dead rank: named, all end"

cp "$wideep" "$work/other"
cp "$(dirname "$wideep")/libwideep_mpi.so" "$work"
printf 'another build' >>"$work/other"
status=0
on_nodes '[ $rank = 2 ] && exec "'"$work"'/other" "$@"; exec "$0" "$@"' "${arguments[@]}" \
  >"$work/out" 2>"$work/err" || status=$?
[[ $status -eq 2 && $(grep -c "^error: ranks 0 and 2 differ in the program" "$work/err") -eq 1 ]] ||
  fail "another program: exit code $status: $(cat "$work/err")"
echo "another program: named in one line, exit code 2"

status=0
on_nodes 'exec "$0" "$@"' "${arguments[@]}" --ranks 3 >"$work/out" 2>"$work/err" || status=$?
[[ $status -eq 2 && $(grep -c "^error: " "$work/err") -eq 1 ]] ||
  fail "another number of ranks: exit code $status: $(cat "$work/err")"
echo "another number of ranks: $(grep -m1 "^error: " "$work/err")"

# A server over both nodes, asked by many at once while experts move, and again after a rest.
serve=(serve --model "$model" --port 0 --load-balancer "$work/online.yaml")
for i in $(seq 12); do echo "{\"prompt\": \"Number $i: once upon\"}"; done >"$work/prompts"
"$wideep" generate --model "$model" --prompts "$work/prompts" --max-tokens 24 --json \
  >"$work/one" 2>/dev/null
on_nodes 'exec "$0" "$@"' "${serve[@]}" >"$work/out" 2>"$work/err" &
pid=$!
for _ in $(seq 300); do grep -q "serving reference on" "$work/err" && break; sleep 0.1; done
url=$(sed -n 's/.*serving reference on \([^ ]*\) .*/\1/p' "$work/err")
[[ -n $url ]] || fail "no server: $(cat "$work/err")"
python3 - "$url" "$work/one" <<'PYTHON' || fail "a server over nodes: $(cat "$work/err")"
import concurrent.futures, json, sys, time, urllib.request
url, expected = sys.argv[1], json.load(open(sys.argv[2]))
def ask(i):
    body = {"model": "reference", "prompt": f"Number {i + 1}: once upon", "max_tokens": 24,
            "temperature": 0}
    request = urllib.request.Request(url + "/completions", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    return json.load(urllib.request.urlopen(request, timeout=30))["choices"][0]["text"]
wanted = [each["text"] for each in expected["results"]]
for rest in (0, 2):
    time.sleep(rest)
    with concurrent.futures.ThreadPoolExecutor(len(wanted)) as pool:
        found = list(pool.map(ask, range(len(wanted))))
    assert found == wanted, (found, wanted)
PYTHON
# term_rank <rank> [command]: only a server's rank 0 acts on SIGTERM and stops all its ranks; the
# others ignore it
term_rank() {
  local process
  for process in $(pgrep -f "^$wideep ${2:-serve}"); do
    if grep -qzx "OMPI_COMM_WORLD_RANK=$1" "/proc/$process/environ"; then
      kill -TERM "$process"
    fi
  done
}
term_rank 3
sleep 0.5
[[ $(pgrep -c -f "^$wideep serve") -eq 4 ]] || fail "SIGTERM to rank 3 has ended a rank"
term_rank 0
status=0
wait $pid || status=$?
[[ $status -eq 0 ]] || fail "a server over nodes: exit code $status: $(cat "$work/err")"
echo "a server over nodes: the texts of one rank, ended by SIGTERM"

# Ranks 0 and 1 are a server that computes prompts, rank 2 one that answers. The proxy does not know
# either before it has asked it, so that the first prompts may not be divided.
port=$((20000 + $$ % 10000))
cat >"$work/divided.yaml" <<YAML
hostname: 127.0.0.1
port: $port
cache_transceiver_config: {backend: DEFAULT, max_tokens_in_buffer: 4096}
conditional_disagg_config: {max_local_prefill_length: 64}
context_servers:
  urls: ["127.0.0.1:$((port + 1))"]
  tensor_parallel_size: 2
generation_servers:
  urls: ["127.0.0.1:$((port + 2))"]
YAML
for i in $(seq 8); do
  echo "{\"prompt\": \"Number $i:$(for j in $(seq 30); do printf ' the sea %d was calm.' "$j"; done)\"}"
done >"$work/prompts"
"$wideep" generate --model "$model" --prompts "$work/prompts" --max-tokens 16 --json \
  >"$work/one" 2>/dev/null
timeout --kill-after=5 90 mpirun --oversubscribe --bind-to none -np 3 "$wideep" \
  disaggregated_mpi_worker --config "$work/divided.yaml" --model "$model" >"$work/out" 2>"$work/err" &
pid=$!
timeout --kill-after=5 90 "$wideep" disaggregated --config "$work/divided.yaml" \
  >"$work/proxy" 2>&1 &
proxy=$!
said() { cat "$work/err" "$work/proxy"; }
for _ in $(seq 300); do
  grep -q "all servers that are needed are there" "$work/proxy" && break
  kill -0 $pid 2>/dev/null || fail "disaggregated_mpi_worker has ended: $(said)"
  sleep 0.1
done
python3 - $port "$work/one" "$work/prompts" <<'PYTHON' || fail "two kinds of servers: $(said)"
import json, sys, time, urllib.request
url, expected = "http://127.0.0.1:" + sys.argv[1], json.load(open(sys.argv[2]))["results"]
prompts = [json.loads(line)["prompt"] for line in open(sys.argv[3])]
def ask(prompt):
    body = {"model": "reference", "prompt": prompt, "max_tokens": 16, "temperature": 0}
    request = urllib.request.Request(url + "/v1/completions", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    return json.load(urllib.request.urlopen(request, timeout=30))["choices"][0]["text"]
def divided():
    lines = urllib.request.urlopen(url + "/metrics", timeout=30).read().decode().splitlines()
    return sum(float(each.split()[-1]) for each in lines
               if each.startswith("wideep_router_prompts_divided_total{"))
assert len(expected) == len(prompts)
for prompt, wanted in zip(prompts, expected):
    found = ask(prompt)
    assert found == wanted["text"], (found, wanted["text"])
    if divided() > 0:
        break
    time.sleep(1)
else:
    sys.exit("no prompt was computed by the other server")
PYTHON
kill -TERM $proxy
wait $proxy || fail "the proxy ends with $?: $(said)"
term_rank 2 disaggregated_mpi_worker
term_rank 0 disaggregated_mpi_worker
status=0
wait $pid || status=$?
[[ $status -eq 0 ]] || fail "two kinds of servers: exit code $status: $(said)"
echo "disaggregated_mpi_worker: 2 ranks for prompts, 1 for answers, the texts of one rank"

# Ctrl-C reaches mpirun, which sends a signal to its processes.
mpirun --oversubscribe --bind-to none -np 4 sh -c \
  'export WIDEEP_NODE=$((OMPI_COMM_WORLD_RANK / 2)); exec "$0" "$@"' "$wideep" \
  "${arguments[@]}" --max-tokens 4000 >"$work/out" 2>"$work/err" &
pid=$!
for _ in $(seq 200); do [[ -s $work/out ]] && break; sleep 0.05; done
kill -INT $pid
start=$SECONDS status=0
wait $pid || status=$?
[[ $((SECONDS - start)) -le 10 ]] || fail "Ctrl-C: ended after $((SECONDS - start)) s only"
[[ $status -ne 0 ]] || fail "Ctrl-C: exit code 0"  # which other is mpirun's own choice
grep -q "error: interrupted" "$work/err" || fail "Ctrl-C: no error line: $(cat "$work/err")"
sleep 0.5
[[ -z $(pgrep -f "$wideep generate" || true) ]] || fail "Ctrl-C: a rank is left"
echo "Ctrl-C: all ranks end within $((SECONDS - start)) s"
