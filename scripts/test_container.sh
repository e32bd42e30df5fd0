#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The image of cluster/container, of the .deb packages: built twice it is the same; nothing is in it
# but the command and its libraries; it serves as process 1 of a container of podman, as nobody, with
# a root file system that cannot be written, drains, replaces what is killed, and ends by SIGTERM
# within its grace, also before it serves; two containers are two nodes. Needs root, the network and
# a minute or two: part of `make test-packages`. Skipped (77) without root or the tools.
#
#   scripts/test_container.sh <directory of packages> <work directory>
set -euo pipefail
packages=$(realpath "$1")
mkdir -p "$2"
work=$(realpath "$2")
cd "$(dirname "$0")/.."
source scripts/testing.sh

[[ $EUID -eq 0 ]] || skip "not root"
for tool in buildah podman unshare curl; do
  command -v $tool >/dev/null || skip "no $tool (scripts/package_packages.txt)"
done
# A namespace of its own: what is mounted and started here ends with it. crun refuses both
# hierarchies of control groups at once, which systemd's "hybrid" layout has.
if [[ -z ${WIDEEP_CONTAINER_TEST:-} ]]; then
  WIDEEP_CONTAINER_TEST=1 exec unshare --mount --pid --fork --kill-child --mount-proc "$0" "$packages" \
    "$work"
fi
if mountpoint --quiet /sys/fs/cgroup/unified; then umount /sys/fs/cgroup/unified; fi

rm -rf --one-file-system "$work/storage" "$work/run"
storage=(--root "$work/storage" --runroot "$work/run" --storage-driver vfs)
export WIDEEP_BUILDER="buildah ${storage[*]}"
podman() {
  command podman "${storage[@]}" --cgroup-manager cgroupfs --events-backend file "$@"
}
trap 'podman rm --all --force --time 0 >/dev/null 2>&1 || true; rm -rf "$work/storage" "$work/run"' EXIT
image=localhost/wideep-test
deb=$(ls "$packages"/wideep_*.deb)

cluster/container/build.sh $image "$deb" >"$work/build.log" 2>&1 || {
  tail -n 5 "$work/build.log"
  fail "the image cannot be built"
}
id=$(podman image inspect --format '{{.Id}}' $image)
(umask 077 && cluster/container/build.sh $image "$deb") >"$work/build.log" 2>&1 || fail "built again"
[[ $(podman image inspect --format '{{.Id}}' $image) == "$id" ]] || fail "built twice it differs"
bytes=$(podman image inspect --format '{{.Size}}' $image)
[[ $bytes -lt 120000000 ]] || fail "the image has $bytes bytes: expected less than 120 MB"

# Neither needs to run for this.
podman create --name files $image >/dev/null
podman export files | tar --list --verbose >"$work/files.txt"
podman rm files >/dev/null
awk '$1 !~ /^[dl]/ && $6 ~ /(^|\/)s?bin\/./ { print $6 }' "$work/files.txt" >"$work/programs.txt"
[[ $(<"$work/programs.txt") == usr/bin/wideep ]] ||
  fail "programs in the image: $(paste -sd' ' "$work/programs.txt")"
if grep -E '^-..[sS]|^-.....[sS]' "$work/files.txt"; then fail "setuid"; fi
if awk '$2 != "0/0" && $2 != "root/root"' "$work/files.txt" | grep .; then fail "somebody owns a file"; fi
podman run --rm --network none $image --version | grep --quiet '^wideep ' || fail "--version"
if podman run --rm --network none --entrypoint /bin/sh $image -c true 2>/dev/null; then
  fail "there is a shell"
fi

# start <name> <option...>: a container that may do nothing but serve.
start() {
  local name=$1
  shift
  podman run --detach --name "$name" --read-only --read-only-tmpfs=false --cap-drop all \
    --security-opt no-new-privileges --network host --pull never \
    --volume "$PWD/models/reference:/models/m:ro" --volume "$work/etc:/etc/wideep:ro" \
    $image serve --options-file /etc/wideep/options.yaml "$@" >/dev/null ||
    skip "podman cannot run containers here"
}
ask() { curl --silent --max-time 20 --header "Authorization: Bearer secret" "$@" || true; }
health() { ask "http://127.0.0.1:$port/health"; }
# wait_for <what> <pattern> <command...>: what it prints matches within 40 s.
wait_for() {
  local what=$1 pattern=$2
  shift 2
  for _ in $(seq 400); do
    if grep --quiet -- "$pattern" <<<"$("$@" 2>&1)"; then return 0; fi
    sleep 0.1
  done
  for each in $(podman ps --all --format '{{.Names}}'); do podman logs "$each" 2>&1 | tail -n 5; done
  fail "$what: not within 40 s"
}
# end <name> <exit code> <most seconds>: SIGTERM, as the engine sends it to process 1.
end() {
  local began=$EPOCHREALTIME code
  podman stop --time 40 "$1" >/dev/null 2>&1
  took=$(awk "BEGIN { printf \"%.1f\", $EPOCHREALTIME - $began }")
  code=$(podman inspect --format '{{.State.ExitCode}}' "$1")
  [[ $code == "$2" ]] || fail "$1 ends with $code after $took s: expected $2"
  awk "BEGIN { exit !($took <= $3) }" || fail "$1 ends after $took s: expected at most $3"
  podman rm "$1" >/dev/null
}

port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0))
print(s.getsockname()[1])' 2>/dev/null || echo 8923)
mkdir -p "$work/etc"
printf '%s\n' "model: /models/m" "served-model-name: m" "host: 127.0.0.1" "ranks: 2" \
  "grace-seconds: 3" "api-key-file: /etc/wideep/key" >"$work/etc/options.yaml"
echo secret >"$work/etc/key"
echo "a secret of the nodes" >"$work/etc/cluster-key"
chmod 755 "$work/etc"
chown 65532:65532 "$work"/etc/*
chmod 400 "$work"/etc/*

start one --port "$port"
wait_for "serving" '"ok"' health
ask "http://127.0.0.1:$port/v1/chat/completions" --data \
  '{"model": "m", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 8}' \
  >"$work/answer.json"
grep --quiet '"content"' "$work/answer.json" || fail "no answer: $(<"$work/answer.json")"
pid=$(podman inspect --format '{{.State.Pid}}' one)
grep --quiet $'^Uid:\t65532\t65532\t65532\t65532' "/proc/$pid/status" || fail "it is not nobody"
grep --quiet $'^NSpid:.*\t1$' "/proc/$pid/status" || fail "wideep is not process 1"
grep --quiet $'^CapEff:\t0000000000000000' "/proc/$pid/status" || fail "it has capabilities"
awk '$5 == "/" && $6 ~ /^ro/ { found = 1 } END { exit !found }' "/proc/$pid/mountinfo" ||
  fail "its root file system can be written"
podman kill --signal HUP one >/dev/null
wait_for "draining by SIGHUP" '"draining"' health
ask --request DELETE "http://127.0.0.1:$port/drain" >/dev/null
wait_for "the end of draining" '"ok"' health
kill -KILL "$(pgrep --parent "$pid" | tail -n 1)"
wait_for "an answer after a death" '"text"' ask "http://127.0.0.1:$port/v1/completions" --data \
  '{"model": "m", "prompt": "Once", "max_tokens": 8}'
[[ -z $(ps --ppid "$pid" -o stat= | grep Z || true) ]] || fail "process 1 does not reap its children"
ask --no-buffer "http://127.0.0.1:$port/v1/completions" --data \
  '{"model": "m", "prompt": "Once", "max_tokens": 30000, "ignore_eos": true, "stream": true}' \
  >"$work/stream.txt" &
sleep 1
end one 130 15  # interrupted: the request had more to say
wait
[[ $(grep --count '^data: ' "$work/stream.txt") -gt 10 ]] || fail "a request had no time to run"
loaded_end=$took

# Before it serves: it waits for the other node.
start waiting --port 0 --nnodes 2 --node-rank 0 --master-addr 127.0.0.1
wait_for "waiting" 'waiting on' podman logs waiting
end waiting 143 5

nodes=(--nnodes 2 --master-addr 127.0.0.1 --master-port 29731 --cluster-key-file
  /etc/wideep/cluster-key)
start node-0 --port "$port" --node-rank 0 "${nodes[@]}"
start node-1 --port 0 --node-rank 1 "${nodes[@]}"
wait_for "two nodes" '"ok"' health
podman kill --signal KILL node-1 >/dev/null
wait_for "the loss of a node" '"degraded"' health
podman rm --force --time 0 node-1 >/dev/null
start node-1 --port 0 --node-rank 1 "${nodes[@]}"
wait_for "the return of a node" '"ok"' health
end node-0 0 15
wait_for "the end of the other node" '^0$' podman inspect --format '{{.State.ExitCode}}' node-1
echo "image: $((bytes / 1000000)) MB; ends $loaded_end s after SIGTERM with a request and 3 s of" \
  "grace, $took s without; two containers are two nodes"
