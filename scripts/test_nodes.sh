#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Two and three nodes on one machine: network namespaces with Open MPI over TCP between them.
#
#   scripts/test_nodes.sh [path of wideep]
#
# Each namespace has an address on a bridge and a limited rate (tc tbf); in the end one falls silent
# (an nft rule drops what it sends and receives). Needs root; exits with 77, after a line that says
# why, where namespaces, tools or MPI are missing.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
wideep=$(realpath "${1:-$root/build/wideep}")
model=$root/models/reference
name=wd$$
work=$(mktemp -d)

skip() { echo "skipped: $*"; exit 77; }
fail() { echo "failed: $*"; exit 1; }

clean_up() {
  for node in 0 1 2; do ip netns del "$name-$node" 2>/dev/null || true; done
  ip link del "$name" 2>/dev/null || true
  rm -rf "$work"
}
trap clean_up EXIT

[[ $EUID -eq 0 ]] || skip "network namespaces need root"
for tool in ip tc nft mpirun; do command -v "$tool" >/dev/null || skip "no $tool"; done
[[ $(ldd "$wideep") == *libmpi* ]] || skip "this wideep is built without MPI"
ip netns add "$name-0" 2>/dev/null || skip "network namespaces are not permitted"
ip link add "$name" type bridge 2>/dev/null || skip "bridges are not permitted"

ip link set "$name" up
for node in 0 1 2; do
  [[ $node -eq 0 ]] || ip netns add "$name-$node"
  inside=(ip netns exec "$name-$node")
  ip link add "$name.$node" type veth peer name eth0 netns "$name-$node" || skip "no veth devices"
  ip link set "$name.$node" master "$name" up
  "${inside[@]}" ip link set lo up
  "${inside[@]}" ip addr add "10.217.0.$((node + 1))/24" dev eth0
  "${inside[@]}" ip link set eth0 up
  "${inside[@]}" tc qdisc add dev eth0 root tbf rate 400mbit burst 256k latency 50ms ||
    skip "no tc tbf"
done

# What mpirun starts its daemons with: "agent <address> <command>".
cat >"$work/agent" <<AGENT
#!/bin/sh
node=\$((\${1##*.} - 1))
shift
exec ip netns exec $name-\$node /bin/sh -c "\$*"
AGENT
chmod +x "$work/agent"

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
prompts=(--prompt "Once upon a time" --prompt "The sea" --prompt "A short one" --prompt "Four")
# A rank that hangs would be told of in 8 s; whatever lasts longer is a launcher that hangs.
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
    fail "the plan does not say that there are $nodes nodes: $(cat "$work/several.err")"
  cmp -s <(texts "$work/one") <(texts "$work/several") || fail "$nodes nodes: other texts"
  echo "$nodes nodes, $ranks ranks: the texts and digests of one rank ($((SECONDS - start)) s)"
done

# A node whose network falls silent in the middle: the ranks of the others name it within the
# deadline, and end.
on_nodes 2 4 generate --model "$model" "${prompts[@]}" --max-tokens 200 --timeout 3 \
  >"$work/silent" 2>"$work/silent.err" &
pid=$!
for _ in $(seq 100); do [[ -s $work/silent ]] && break; sleep 0.05; done
ip netns exec "$name-1" nft -f - <<'RULES' || skip "no nft rules"
table inet silence {
  chain in { type filter hook input priority 0; policy drop; }
  chain out { type filter hook output priority 0; policy drop; }
}
RULES
start=$SECONDS
# Processes of ours: what mpirun and its daemons do without each other is theirs.
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
  # The daemon of the silent node cannot be told; its ranks end by their own deadline.
  sleep 5
  for process in $(ip netns pids "$name-1"); do
    grep -q wideep "/proc/$process/comm" 2>/dev/null && fail "a rank is left on the silent node"
    kill -9 "$process" 2>/dev/null || true
  done
fi
echo "nothing is left"
