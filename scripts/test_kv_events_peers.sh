#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Reads the KV events of a real `wideep serve` with the structures of vLLM and SGLang themselves: of
# their published packages, which pip downloads, only kv_events.py is kept. Live batches and replays
# of both forms of events must decode strictly, alike, and to what the prompts and the snapshot over
# HTTP say; and the messages of their publishers must have the same parts. Exits with 77 and a line
# with the reason where they cannot be had.
#
#   scripts/test_kv_events_peers.sh [--all] <path of wideep> <work directory>
#
# With --all also vLLM 0.23.0, the last with arrays: about 600 MB more, once. VLLM_VERSION and
# SGLANG_VERSION choose other versions than those that are known to pass.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
all=false
if [[ ${1:-} == --all ]]; then all=true && shift; fi
wideep=$(realpath "$1")
work=$(realpath -m "$2")
source "$root/scripts/testing.sh"

maps=("vllm-${VLLM_VERSION:-0.33.0}" "sglang-${SGLANG_VERSION:-0.5.23}")
arrays=(sglang-0.5.19)
$all && arrays+=(vllm-0.23.0)

make_environment
pip install msgspec pyzmq pydantic || skip "no msgspec and pyzmq: $(tail -n 1 "$work/pip.log")"

# file_of <package-version>: prints the path of its kv_events.py, which it downloads if need be.
file_of() {
  local path=sglang/srt/disaggregation/kv_events.py
  [[ $1 == vllm-* ]] && path=vllm/distributed/kv_events.py
  if [[ ! -f $work/$1/$path ]]; then
    rm -rf "$work/wheel"
    pip download --no-deps --only-binary :all: --python-version 3.12 --platform any \
      --platform manylinux_2_28_x86_64 --platform manylinux_2_31_x86_64 \
      --platform manylinux_2_34_x86_64 --dest "$work/wheel" "${1%-*}==${1#*-}" || return 1
    PYTHONPATH=$root/scripts/integrations "$work/venv/bin/python" -c \
      'import sys, published; published.extract(sys.argv[1], sys.argv[2:3], sys.argv[3])' \
      "$work"/wheel/*.whl "$path" "$work/$1" || return 2
    rm -rf "$work/wheel"
  fi
  echo "$work/$1/$path"
}

# read_events <event form> <package-version...>: a server that writes so, read by these.
read_events() {
  local form=$1 peers=() sockets
  for each in "${@:2}"; do
    local file
    file=$(file_of "$each") || case $? in
      2) fail "$each has no kv_events.py where it was" ;;
      *) skip "no $each: $(tail -n 1 "$work/pip.log")" ;;
    esac
    peers+=("$each=$file")
  done
  sockets=$(mktemp --directory)  # short names: a socket's path has at most 100 bytes
  printf '%s\n' "tensor_parallel_size: 2" "moe_expert_parallel_size: 2" \
    "enable_attention_dp: true" "kv_cache_config: {max_tokens: 2048}" >"$work/config.yaml"
  start_server --config "$work/config.yaml" --kv-events-config \
    "{\"enable_kv_cache_events\": true, \"topic\": \"kv@pod@model\", \"event_form\": \"$form\",
      \"endpoint\": \"ipc://$sockets/events\", \"replay_endpoint\": \"ipc://$sockets/replay\"}"
  trap 'kill -KILL $server 2>/dev/null || true; rm -rf '"$sockets" EXIT
  "$work/venv/bin/python" "$root/scripts/integrations/kv_events_readers.py" --url "${url%/v1}" \
    --events "ipc://$sockets/events" --replay "ipc://$sockets/replay" --topic kv@pod@model \
    --server "$server" "${peers[@]}" || fail "$form: ${*:2}"
  stop_server
  rm -rf "$sockets"
}

read_events map "${maps[@]}"
read_events array "${arrays[@]}"
