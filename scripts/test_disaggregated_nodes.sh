#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tests a prefill server and a decode server over two nodes each, in network namespaces with 1 ms
# between them, and the proxy before them: what ranks of each node compute of prompts comes to the
# ranks of both others, also over a slow link, and the texts are those of one rank.
#
#   scripts/test_disaggregated_nodes.sh [path of wideep] [path of delay_relay]
#
# The namespaces: scripts/node_namespaces.sh. Needs root; exits with 77 and a line with the reason
# if namespaces or tools are missing. Without MPI ranks of a launcher are left out.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
wideep=$(realpath "${1:-$root/build/wideep}")
relay=$(realpath "${2:-$root/build/tests/delay_relay}")
model=$root/models/reference
name=wp$$
num_nodes=4
work=$(mktemp -d)

source "$root/scripts/testing.sh"
command -v python3 >/dev/null || skip "no python3"
source "$root/scripts/node_namespaces.sh"

# Each rank of the one has requests of its own; those of the other compute all requests together.
printf 'tensor_parallel_size: 2\nmoe_expert_parallel_size: 2\n' >"$work/decode.yaml"
{ cat "$work/decode.yaml"; echo "enable_attention_dp: true"; } >"$work/prefill.yaml"
(umask 077
  printf 'the secret of these nodes\n' >"$work/key"
  printf 'the secret of these servers\n' >"$work/page_key")
# Every longer prompt is divided, whatever it costs.
cat >"$work/disagg.yaml" <<CONFIG
hostname: 10.217.0.1
port: 8000
context_servers: {num_instances: 1, urls: ["10.217.0.1:8080"]}
generation_servers: {num_instances: 1, urls: ["10.217.0.3:8080"]}
conditional_disagg_config: {max_local_prefill_length: 64}
CONFIG

processes=() serving=""
serve=("$wideep" serve --model "$model" --threads-per-rank 1 --port 8080 --host-cache-size 64M
  --page-key-file "$work/page_key")
# start_node <node>: sets processes[node].
start_node() {
  local server=prefill first=0 host=0.0.0.0
  if [[ $1 -ge 2 ]]; then server=decode first=2 host=10.217.0.3; fi
  ip netns exec "$name-$1" setsid "${serve[@]}" --config "$work/$server.yaml" --role $server \
    --host $host --nnodes 2 --node-rank $(($1 - first)) --master-addr 10.217.0.$((first + 1)) \
    --cluster-key-file "$work/key" 2>"$work/node$1.log" &
  processes[$1]=$!
}
show_logs() { for each in "$work"/*.log; do echo "--- $each"; tail -n 12 "$each"; done; }
fail() { echo "failed: $*"; show_logs; exit 1; }
kill_all() {
  local node process
  for node in 0 1 2 3; do
    for process in $(ip netns pids "$name-$node" 2>/dev/null); do
      kill -KILL "$process" 2>/dev/null || true
    done
  done
  [[ -z $serving ]] || kill -KILL "$serving" 2>/dev/null || true
}
trap 'kill_all; clean_up' EXIT
# await <line> <log>
await() {
  for _ in $(seq 300); do grep -qs "$1" "$2" && return; sleep 0.1; done
  fail "no '$1' in $2"
}

# ask.py <url> <directory> learn|<first> <end>: texts of prompts of some pages, all at once.
cat >"$work/ask.py" <<'PYTHON'
import concurrent.futures, json, random, sys, urllib.request

url, directory, what = sys.argv[1:4]
WORDS = "the sea and the wind went over the hills where an old king had built his house".split()

def ask(i):
    prompt = " ".join(random.Random(i).choices(WORDS, k=200 + 10 * (i % 12)))
    body = {"model": "reference", "prompt": prompt, "max_tokens": 16, "seed": i, "stream": True,
            "temperature": 0.7 * (i % 2), "ignore_eos": True}
    request = urllib.request.Request(url + "/v1/completions", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    text = ""
    for line in urllib.request.urlopen(request, timeout=60):
        if line.strip() == b"data: [DONE]":
            return text
        if line.startswith(b"data: "):
            text += json.loads(line[6:])["choices"][0]["text"]
    raise RuntimeError(f"the stream of {i} was cut")

def answers(numbers):
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        return list(pool.map(ask, numbers))

path = directory + "/expected.json"
if what == "learn":
    json.dump(answers(range(54)), open(path, "w"))
else:
    numbers = range(int(what), int(sys.argv[4]))
    expected = json.load(open(path))
    for i, text in zip(numbers, answers(numbers)):
        assert text == expected[i], f"{i}: expected {expected[i]!r}, found {text!r}"
PYTHON
"$wideep" serve --model "$model" --port 0 2>"$work/one.log" & serving=$!
await "serving reference on" "$work/one.log"
port=$(sed -n 's/.*http:..127.0.0.1:\([0-9]*\).*/\1/p' "$work/one.log" | head -n 1)
python3 "$work/ask.py" "http://127.0.0.1:$port" "$work" learn || fail "one rank"
kill -TERM "$serving" && wait "$serving"
serving=""

inside=(ip netns exec "$name-0")
prefill=http://10.217.0.1:8080 decode=http://10.217.0.3:8080 proxy=http://10.217.0.1:8000
# metric <url> <name>: 0 if there is none.
metric() {
  "${inside[@]}" python3 - "$@" <<'PYTHON'
import sys, urllib.request
text = urllib.request.urlopen(sys.argv[1] + "/metrics", timeout=20).read().decode()
values = [line.rsplit(" ", 1)[1] for line in text.splitlines()
          if line.startswith(sys.argv[2] + " ")]
print(int(float(values[0])) if values else 0)
PYTHON
}
# ask <first> <end>: through the proxy.
ask() {
  "${inside[@]}" python3 "$work/ask.py" $proxy "$work" "$@" >"$work/asked" 2>&1 ||
    fail "prompts $1 to $2: $(cat "$work/asked")"
}
# expect_pages <prompts>: of the last so many, most came whole, to both ranks of the decode server,
# and from both of the prefill server: if those of one had come alone, it would be about half.
whole_before=0 pages_before=0 given_before=0
expect_pages() {
  local whole pages given sent=0
  for _ in $(seq 50); do  # ranks say it once a second
    sent=$(metric $prefill 'wideep_prompt_cache_taken_total{tier="front"}')
    [[ $sent -eq 0 ]] || break
    sleep 0.1
  done
  [[ $sent -gt 0 ]] || fail "nothing was sent to the first node"
  whole=$(metric $decode 'wideep_prompt_transfers_total{outcome="whole"}')
  pages=$(metric $decode wideep_prompt_transfer_pages_total)
  given=$(metric $prefill wideep_pages_given_total)
  echo "of $1 prompts $((whole - whole_before)) came whole, $((pages - pages_before)) pages," \
    "$((given - given_before)) times; pages sent to the first node so far: $sent"
  [[ $((4 * (whole - whole_before))) -ge $((3 * $1)) ]] || fail "most did not come whole"
  [[ $((given - given_before)) -ge $((2 * (pages - pages_before))) ]] ||
    fail "the ranks of one node have taken none"
  whole_before=$whole pages_before=$pages given_before=$given
}

for node in 3 2 1 0; do start_node $node; done
await "serving reference on" "$work/node0.log"
await "serving reference on" "$work/node2.log"
"${inside[@]}" "$wideep" disaggregated -c "$work/disagg.yaml" 2>"$work/proxy.log" & proxying=$!
await "disaggregated serving on" "$work/proxy.log"
# await_roles: until the proxy knows who does what.
await_roles() {
  for _ in $(seq 100); do
    if [[ $(metric $proxy "wideep_router_role{replica=\"$prefill\",role=\"prefill\"}") -eq 1 &&
      $(metric $proxy "wideep_router_role{replica=\"$decode\",role=\"decode\"}") -eq 1 ]]; then
      return
    fi
    sleep 0.1
  done
  fail "the proxy does not know the servers' roles"
}
await_roles

ask 0 18
expect_pages 18
slow 1 100mbit
ask 18 36
slow 1 400mbit
echo "a slow link of the prefill server's second node: the texts of one rank"

kill -TERM "${processes[0]}"
for node in 0 1; do
  wait "${processes[$node]}" || fail "node $node ends with $?"
done

# The same server, whose ranks mpirun has started: nobody says by which address they reach the
# first node, so the command does.
if command -v mpirun >/dev/null && [[ -e $(dirname "$wideep")/libwideep_mpi.so ]]; then
  write_mpirun_agent "$work/agent"
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  "${inside[@]}" mpirun --host 10.217.0.1:1,10.217.0.2:1 -np 2 --oversubscribe --bind-to none \
    --mca plm_rsh_agent "$work/agent" --mca plm_rsh_no_tree_spawn 1 --mca pml ob1 \
    --mca btl tcp,self --mca btl_tcp_if_include eth0 --mca oob_tcp_if_include eth0 \
    "${serve[@]}" --config "$work/prefill.yaml" --role prefill --host 0.0.0.0 \
    --page-address 10.217.0.1 2>"$work/mpirun.log" & launching=$!
  await "serving reference on" "$work/mpirun.log"
  await_roles
  sleep 3  # the proxy asks for the next server's pages once a second
  whole_before=$(metric $decode 'wideep_prompt_transfers_total{outcome="whole"}')
  pages_before=$(metric $decode wideep_prompt_transfer_pages_total)
  given_before=0
  ask 36 54
  expect_pages 18
  for process in $(ip netns pids "$name-0"); do
    if grep -qzx "OMPI_COMM_WORLD_RANK=0" "/proc/$process/environ" 2>/dev/null; then
      kill -TERM "$process"
    fi
  done
  wait $launching || fail "the launch ends with $?"
  echo "ranks that mpirun has started: the same"
else
  echo "no mpirun: ranks of a launcher are left out"
fi

kill -TERM $proxying "${processes[2]}"
wait $proxying || fail "the proxy ends with $?"
for node in 2 3; do
  wait "${processes[$node]}" || fail "node $node ends with $?"
done
for node in 0 1 2 3; do
  [[ -z $(ip netns pids "$name-$node") ]] || fail "processes are left on node $node"
done
echo "nothing is left"
