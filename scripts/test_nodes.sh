#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tests two and three nodes on one machine: network namespaces with Open MPI over TCP between them.
#
#   scripts/test_nodes.sh [path of wideep] [path of delay_relay]
#
# Each namespace is connected to a bridge with a delay (tests/nodes/delay_relay.cc: 1 ms from node
# to node) and a limited rate (tc tbf). At the end one node falls silent: an nft rule drops all that
# it sends and receives. Needs root; exits with 77 and a line with the reason if namespaces, tools
# or MPI are missing.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
wideep=$(realpath "${1:-$root/build/wideep}")
relay=$(realpath "${2:-$root/build/tests/delay_relay}")
model=$root/models/reference
name=wd$$
work=$(mktemp -d)

source "$root/scripts/testing.sh"

relays=()
clean_up() {
  kill "${relays[@]}" 2>/dev/null || true
  for node in 0 1 2; do
    ip netns del "$name-$node" 2>/dev/null || true
    ip link del "$name.${node}a" 2>/dev/null || true
    ip link del "$name.${node}c" 2>/dev/null || true
  done
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
cable_delay_us=500
for node in 0 1 2; do
  [[ $node -eq 0 ]] || ip netns add "$name-$node"
  inside=(ip netns exec "$name-$node")
  # bridge - .a .b - relay - .c eth0
  ip link add "$name.${node}a" type veth peer name "$name.${node}b" || skip "no veth devices"
  ip link add "$name.${node}c" type veth peer name eth0 netns "$name-$node"
  ip link set "$name.${node}a" master "$name" up
  for end in b c; do
    sysctl --quiet --write "net.ipv6.conf.${name}/${node}$end.disable_ipv6=1" 2>/dev/null || true
    ip link set "$name.$node$end" up
  done
  "$relay" "$name.${node}b" "$name.${node}c" $cable_delay_us >"$work/relay$node" 2>&1 &
  relays+=($!)
  "${inside[@]}" ip link set lo up
  "${inside[@]}" ip addr add "10.217.0.$((node + 1))/24" dev eth0
  "${inside[@]}" ip link set eth0 up
  "${inside[@]}" tc qdisc add dev eth0 root tbf rate 400mbit burst 256k latency 50ms ||
    skip "no tc tbf"
done

for node in 0 1 2; do
  for _ in $(seq 50); do [[ -s $work/relay$node ]] && break; sleep 0.05; done
  grep -qx ready "$work/relay$node" || skip "no packet sockets: $(cat "$work/relay$node")"
done

# A closed port refuses a connection after one round trip, so this measures the delay of the network.
round_trip=$(ip netns exec "$name-0" bash -c '
  (: </dev/tcp/10.217.0.2/9) 2>/dev/null  # asks for the address first
  start=$EPOCHREALTIME
  (: </dev/tcp/10.217.0.2/9) 2>/dev/null
  end=$EPOCHREALTIME
  echo $((${end/./} - ${start/./}))')
[[ $round_trip -ge $((4 * cable_delay_us)) ]] || fail "the network answers after $round_trip us"
echo "from node to node and back in $round_trip us"

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
ip netns exec "$name-1" nft -f - <<'RULES' || skip "no nft rules"
table inet silence {
  chain in { type filter hook input priority 0; policy drop; }
  chain out { type filter hook output priority 0; policy drop; }
}
RULES
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
