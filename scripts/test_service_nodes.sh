#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tests a service over three nodes (wideep serve --nnodes) in network namespaces, with 1 ms between
# them: a node falls silent, is heard again, and dies, and two cannot reach each other, while
# clients ask.
#
#   scripts/test_service_nodes.sh [path of wideep] [path of delay_relay]
#
# The namespaces: scripts/node_namespaces.sh. Needs root; exits with 77 and a line with the reason
# if namespaces or tools are missing.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
wideep=$(realpath "${1:-$root/build/wideep}")
relay=$(realpath "${2:-$root/build/tests/delay_relay}")
model=$root/models/reference
name=ws$$
work=$(mktemp -d)

source "$root/scripts/testing.sh"
command -v python3 >/dev/null || skip "no python3"
source "$root/scripts/node_namespaces.sh"

cat >"$work/config.yaml" <<CONFIG
tensor_parallel_size: 6
moe_expert_parallel_size: 6
enable_attention_dp: true
moe_config:
  load_balancer: $work/balancer.yaml
CONFIG
(umask 077; printf 'the secret of these nodes\n' >"$work/key")
printf 'num_slots: 48\nlayer_updates_per_iter: 2\n' >"$work/balancer.yaml"

# start_node <node>: sets processes[node].
processes=()
start_node() {
  ip netns exec "$name-$1" setsid "$wideep" serve --model "$model" --config "$work/config.yaml" \
    --threads-per-rank 1 --port 8080 --nnodes 3 --node-rank "$1" --master-addr 10.217.0.1 \
    --cluster-key-file "$work/key" \
    2>"$work/node$1.log" &
  processes[$1]=$!
}
show_logs() { for each in 0 1 2; do echo "--- node $each"; tail -n 12 "$work/node$each.log"; done; }
fail() { echo "failed: $*"; show_logs; exit 1; }
trap 'kill -KILL "${processes[@]}" 2>/dev/null || true; clean_up' EXIT

for node in 2 1 0; do start_node $node; done
for _ in $(seq 300); do grep -q "serving reference on" "$work/node0.log" && break; sleep 0.1; done
grep -q "serving reference on" "$work/node0.log" || fail "no server"

# The texts of one rank; then the same from the service, again and again, with the longest pause of
# any stream, until the file "enough" is there.
cat >"$work/ask.py" <<'PYTHON'
import concurrent.futures, http.client, json, os, sys, time

port, directory, rounds = int(sys.argv[1]), sys.argv[2], sys.argv[3]
WORDS = "the sea and the wind went over the hills where an old king had built his house".split()

def ask(i):
    body = {"model": "reference", "prompt": " ".join(WORDS[i % 9 : i % 9 + 7]) + f" {i}",
            "max_tokens": 64, "temperature": 0.7 * (i % 2), "seed": i, "stream": True,
            "ignore_eos": True}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("POST", "/v1/completions", json.dumps(body),
                       {"Content-Type": "application/json"})
    text, last, longest = "", None, 0.0
    for line in connection.getresponse():
        if not line.startswith(b"data: "):
            continue
        if line.strip() == b"data: [DONE]":
            return text, longest
        now = time.time()
        longest = max(longest, now - (last or now))
        last = now
        text += json.loads(line[6:])["choices"][0]["text"]
    raise RuntimeError(f"the stream of {i} was cut")

def all_answers():
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        return list(pool.map(ask, range(12)))

path = directory + "/expected.json"
if rounds == "learn":
    json.dump([text for text, _ in all_answers()], open(path, "w"))
else:
    expected, count, longest = json.load(open(path)), 0, 0.0
    while not os.path.exists(directory + "/enough"):
        answers = all_answers()
        assert [text for text, _ in answers] == expected, "other texts"
        count += 1
        longest = max([longest] + [each for _, each in answers])
    print(f"{count} rounds of 12 streams, all as of one rank; the longest pause was {longest:.2f} s")
PYTHON
"$wideep" serve --model "$model" --port 0 2>"$work/serve.log" & server=$!
for _ in $(seq 300); do grep -q "serving reference on" "$work/serve.log" && break; sleep 0.1; done
port=$(sed -n 's/.*http:..127.0.0.1:\([0-9]*\).*/\1/p' "$work/serve.log")
python3 "$work/ask.py" "$port" "$work" learn || fail "one rank"
kill -TERM $server && wait $server

inside=(ip netns exec "$name-0")
"${inside[@]}" python3 "$work/ask.py" 8080 "$work" rounds >"$work/asked" 2>&1 & asking=$!

# compute <ranks>: waits until so many compute.
compute() {
  local active=""
  for _ in $(seq 200); do
    active=$("${inside[@]}" python3 - <<'PYTHON'
import urllib.request
text = urllib.request.urlopen("http://127.0.0.1:8080/metrics", timeout=20).read().decode()
print([line.split()[1] for line in text.splitlines()
       if line.startswith("wideep_ep_active_ranks ")][0])
PYTHON
    )
    [[ $active -eq $1 ]] && return
    kill -0 $asking 2>/dev/null || fail "clients: $(cat "$work/asked")"
    sleep 0.1
  done
  fail "$active ranks compute, not $1"
}
ranks_on() {
  local process
  for process in $(ip netns pids "$name-$1"); do
    if grep -q "^wideep-rank" "/proc/$process/comm" 2>/dev/null; then echo "$process"; fi
  done
}

compute 6
sleep 0.5
silence 2
compute 4
echo "node 2 is silent: the others go on"
sleep 1
[[ -z $(ranks_on 2) ]] || fail "a node that is cut off computes on: $(ranks_on 2 | xargs)"
echo "node 2, cut off, has ended its ranks: $(grep -m1 "its ranks end" "$work/node2.log")"
heal 2
compute 6
echo "node 2 is heard again: all compute"
kill -KILL -- "-${processes[1]}"
wait "${processes[1]}" 2>/dev/null || true
compute 4
start_node 1
compute 6
echo "node 1 was killed and started again: all compute"
cut 1 2
compute 4
line=$(grep "node 2 is left out" "$work/node0.log") || fail "no line on nodes that are cut apart"
echo "nodes 1 and 2 are cut apart, not from node 0: $line"
sleep 1.5
[[ -z $(ranks_on 2) ]] || fail "a node that is left out computes on: $(ranks_on 2 | xargs)"
heal 1
compute 6
grep -q "nodes 1 and 2 reach each other again" "$work/node0.log" || fail "no line on their return"
echo "they reach each other again: all compute"
touch "$work/enough"
wait $asking || fail "clients: $(cat "$work/asked")"
cat "$work/asked"

kill -TERM "${processes[0]}"
for node in 0 1 2; do
  status=0
  wait "${processes[$node]}" || status=$?
  [[ $status -eq 0 ]] || fail "node $node ends with $status"
done
for node in 0 1 2; do
  [[ -z $(ip netns pids "$name-$node") ]] || fail "processes are left on node $node"
done
echo "nothing is left"
