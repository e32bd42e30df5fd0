# SPDX-License-Identifier: Apache-2.0
# Sourced by tests of several nodes: network namespaces on this machine, $name-0, $name-1 and so on,
# with the addresses 10.217.0.1, 10.217.0.2 and so on. Each is connected to a bridge with a delay
# (tests/nodes/delay_relay.cc: 1 ms from node to node) and a limited rate (tc tbf). Needs root, and
# scripts/testing.sh before; sets a trap that removes all of it. They set work (a directory), name
# (of at most 8 characters), wideep (the command), relay (the program), and num_nodes, unless three.

num_nodes=${num_nodes:-3}
relays=()
clean_up() {
  kill "${relays[@]}" 2>/dev/null || true
  for ((node = 0; node < num_nodes; ++node)); do
    ip netns del "$name-$node" 2>/dev/null || true
    ip link del "$name.${node}a" 2>/dev/null || true
    ip link del "$name.${node}c" 2>/dev/null || true
  done
  ip link del "$name" 2>/dev/null || true
  rm -rf "$work"
}
trap clean_up EXIT

# write_mpirun_agent <file>: what mpirun starts its daemons with: "agent <address> <command>".
write_mpirun_agent() {
  cat >"$1" <<AGENT
#!/bin/sh
node=\$((\${1##*.} - 1))
shift
exec ip netns exec $name-\$node /bin/sh -c "\$*"
AGENT
  chmod +x "$1"
}

[[ $EUID -eq 0 ]] || skip "network namespaces need root"
for tool in ip tc nft; do command -v "$tool" >/dev/null || skip "no $tool"; done
ip netns add "$name-0" 2>/dev/null || skip "network namespaces are not permitted"
ip link add "$name" type bridge 2>/dev/null || skip "bridges are not permitted"

ip link set "$name" up
cable_delay_us=500
for ((node = 0; node < num_nodes; ++node)); do
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

for ((node = 0; node < num_nodes; ++node)); do
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

# silence <node>: from now on all that the node sends and receives is dropped; until heal <node>.
silence() {
  ip netns exec "$name-$1" nft -f - <<'RULES' || skip "no nft rules"
table inet silence {
  chain in { type filter hook input priority 0; policy drop; }
  chain out { type filter hook output priority 0; policy drop; }
}
RULES
}
# cut <node> <other>: what the one sends to the other is dropped; until heal <node>.
cut() {
  ip netns exec "$name-$1" nft -f - <<RULES || skip "no nft rules"
table inet silence {
  chain out { type filter hook output priority 0; ip daddr 10.217.0.$(($2 + 1)) drop; }
}
RULES
}
# slow <node> <rate>: of what the node sends from now on.
slow() {
  ip netns exec "$name-$1" tc qdisc change dev eth0 root tbf rate "$2" burst 256k latency 50ms
}
heal() { ip netns exec "$name-$1" nft delete table inet silence; }
