#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The dashboard in headless Chromium while `wideep serve` serves: the numbers on the page are those
# of the server. Exits with 77 and a line with the reason if there is no Chromium.
#
#   scripts/test_dashboard.sh <path of wideep> <work directory> [picture.png [load.png]]
#
# With a third argument it serves the texts of demo/changing_prompts.jsonl for a minute first, and
# keeps the picture; with a fourth also that of the experts' load, which is further down.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
wideep=$(realpath "$1")
mkdir -p "$2"
work=$(realpath "$2")
picture=${3:-}
picture_of_load=${4:-}
source "$root/scripts/testing.sh"

command -v chromium >/dev/null || skip "no chromium"
command -v python3 >/dev/null || skip "no python3"

cat >"$work/config.yaml" <<'END'
tensor_parallel_size: 8
moe_expert_parallel_size: 8
enable_attention_dp: true
kv_cache_config: {max_tokens: 2048}
moe_config:
  load_balancer: {num_slots: 40, layer_updates_per_iter: 2}
END
# A rank that is killed dies again whenever it has loaded, ever more seldom, so it stays away.
WIDEEP_FAULT_DRILL=$(seq -s , -f 'loaded:%g' 9 24)
export WIDEEP_FAULT_DRILL
start_server --config "$work/config.yaml" --enable-return-routed-experts
page=${url%/v1}/dashboard

# browse <fragment> <options>: loads the page and lets its clock run for three seconds.
browse() {
  timeout 60 chromium --headless --no-sandbox --disable-gpu --disable-dev-shm-usage \
    --hide-scrollbars --window-size=1280,800 --user-data-dir="$work/profile" \
    --virtual-time-budget=3000 "${@:2}" "$page$1" 2>"$work/chromium.log" ||
    fail "chromium: $(tail -n 3 "$work/chromium.log")"
}

browse "" --dump-dom >"$work/locked.html"
python3 "$root/tests/clients/traffic.py" "$url" secret "$root/demo/changing_prompts.jsonl" 100 &
traffic=$!
sleep "$([[ -n $picture ]] && echo 84 || echo 3)"
browse "#key=secret" --dump-dom >"$work/page.html"
browse "#key=secret" --window-size=1280,4000 --dump-dom >"$work/tall.html"
[[ -n $picture ]] && browse "#key=secret" --screenshot="$picture" >/dev/null
python3 "$root/tests/clients/dashboard_request.py" "$page#key=secret" "$work/profile2" \
  ${picture_of_load:+"$picture_of_load"} || fail "the page in use"
kill -KILL "$(ps --ppid $server -o pid=,comm= | sed -n 's/ *\([0-9]*\) wideep-rank-3$/\1/p')"
sleep 2
browse "#key=secret" --dump-dom >"$work/dead.html"
kill -TERM $traffic
wait $traffic || fail "the clients of the test"
browse "#key=wrong" --dump-dom >"$work/wrong.html"
stop_server

# Prompts are kept beyond the KV cache only where no experts are returned.
unset WIDEEP_FAULT_DRILL
echo 'kv_cache_config: {max_tokens: 2048, host_cache_size: 67108864}' >"$work/places.yaml"
start_server --config "$work/places.yaml" --role prefill
page=${url%/v1}/dashboard
browse "#key=secret" --dump-dom >"$work/places.html"
stop_server

# A model larger than memory.
start_server --ranks 2 --packed-cache "$work/packed" --expert-memory 50%
page=${url%/v1}/dashboard
python3 "$root/tests/clients/traffic.py" "$url" secret "$root/demo/changing_prompts.jsonl" 20 &
traffic=$!
sleep 4
browse "#key=secret" --dump-dom >"$work/experts.html"
kill -TERM $traffic
wait $traffic || fail "the clients of the test"
stop_server
python3 "$root/tests/clients/dashboard.py" "$work" || fail "the page"
rm -rf "$work/profile" "$work/profile2"
