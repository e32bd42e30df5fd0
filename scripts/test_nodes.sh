#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tests two and three nodes on one machine: network namespaces with Open MPI over TCP between them.
#
#   scripts/test_nodes.sh [path of wideep] [path of delay_relay]
#
# The namespaces: scripts/node_namespaces.sh. At the end one node falls silent. Needs root; exits
# with 77 and a line with the reason if namespaces, tools or MPI are missing.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
wideep=$(realpath "${1:-$root/build/wideep}")
relay=$(realpath "${2:-$root/build/tests/delay_relay}")
model=$root/models/reference
name=wd$$
work=$(mktemp -d)

source "$root/scripts/testing.sh"

command -v mpirun >/dev/null || skip "no mpirun"
[[ -e $(dirname "$wideep")/libwideep_mpi.so ]] || skip "this wideep is built without MPI"
source "$root/scripts/node_namespaces.sh"

write_mpirun_agent "$work/agent"

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
prompts=(--prompt "Once upon a time" --prompt "The sea" --prompt "A short one" --prompt "Four")
# A hanging rank is reported after 8 s, so a longer hang is one of mpirun.
arguments=(generate --model "$model" "${prompts[@]}" --max-tokens 16 --logits-digest --json
  --timeout 8)

# on_nodes <nodes> <ranks> [arguments...]: from inside the first namespace, so that ranks find no
# other way to each other than the bridge
on_nodes() {
  local nodes=$1 ranks=$2 hosts="" node
  shift 2
  for ((node = 1; node <= nodes; ++node)); do
    hosts+="${hosts:+,}10.217.0.$node:$((ranks / nodes))"
  done
  ip netns exec "$name-0" timeout --kill-after=2 25 mpirun --host "$hosts" -np "$ranks" \
    --oversubscribe --bind-to none --mca plm_rsh_agent "$work/agent" \
    --mca plm_rsh_no_tree_spawn 1 --mca oob_tcp_keepalive_time 2 --mca oob_tcp_keepalive_intvl 1 \
    --mca oob_tcp_keepalive_probes 3 --mca pml ob1 --mca btl tcp,self \
    --mca btl_tcp_if_include eth0 --mca oob_tcp_if_include eth0 "$wideep" "$@"
}

texts() { grep -E '"(text|logits_digest|logits_sha256|digest)"' "$1"; }

echo "num_slots: 36" >"$work/slots.yaml"  # of 32 experts: 4 or 6 ranks can share them equally

"$wideep" "${arguments[@]}" --ranks 1 >"$work/one" 2>"$work/one.err" || fail "one rank"
for case in "2 4" "3 6"; do
  read -r nodes ranks <<<"$case"
  start=$SECONDS
  status=124
  for attempt in 1 2 3; do
    [[ $status -eq 124 || $status -eq 137 ]] || break
    status=0
    on_nodes "$nodes" "$ranks" "${arguments[@]}" --load-balancer "$work/slots.yaml" \
      >"$work/several" 2>"$work/several.err" || status=$?
    [[ $status -ne 124 && $status -ne 137 ]] || echo "mpirun hangs (attempt $attempt)"
    pkill -KILL -f "$work/agent" 2>/dev/null || true
  done
  [[ $status -eq 0 ]] || fail "$nodes nodes: exit code $status: $(cat "$work/several.err")"
  grep -q "^nodes  *$nodes" "$work/several.err" ||
    fail "the printed plan does not have $nodes nodes: $(cat "$work/several.err")"
  cmp -s <(texts "$work/one") <(texts "$work/several") || fail "$nodes nodes: other texts"
  echo "$nodes nodes, $ranks ranks: the texts and digests of one rank ($((SECONDS - start)) s)"
done

# A node whose network falls silent in the middle: the ranks of the others name it within the
# deadline, and end.
on_nodes 2 4 generate --model "$model" "${prompts[@]}" --max-tokens 200 --timeout 3 \
  >"$work/silent" 2>"$work/silent.err" &
pid=$!
for _ in $(seq 100); do [[ -s $work/silent ]] && break; sleep 0.05; done
silence 1
start=$SECONDS
# Only wideep's processes: mpirun and its daemons may take longer to end.
ranks_left() {
  local node process
  for node in 0 1; do
    for process in $(ip netns pids "$name-$node"); do
      if grep -qx wideep "/proc/$process/comm" 2>/dev/null; then echo "$process"; fi
    done
  done
}
named() { grep -q "waited 3000 ms for .* from rank [0-9]* (node [01])" "$work/silent.err"; }
until named && [[ -z $(ranks_left) ]]; do
  [[ $((SECONDS - start)) -le 25 ]] ||
    fail "a silent node: after 25 s ranks $(ranks_left | xargs) are left: $(cat "$work/silent.err")"
  sleep 0.2
done
took=$((SECONDS - start))
pkill -KILL -f "$work/agent" 2>/dev/null || true
wait "$pid" 2>/dev/null || true
echo "a silent node: named, all ranks ended after $took s: $(grep -m1 "error: " "$work/silent.err")"

sleep 1
if left=$(ip netns pids "$name-1") && [[ -n $left ]]; then
  # mpirun cannot reach the daemon of the silent node; its ranks end by their own deadline.
  sleep 5
  for process in $(ip netns pids "$name-1"); do
    grep -q wideep "/proc/$process/comm" 2>/dev/null && fail "a rank is left on the silent node"
    kill -9 "$process" 2>/dev/null || true
  done
fi
echo "nothing is left"
