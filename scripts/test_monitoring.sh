#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The dashboard and the alert rules of cluster/monitoring/ beside servers that run: whether /metrics
# has every metric that they ask for, with wideep's names and with both, and vLLM's names as
# docs/monitoring.md has them. Then by Prometheus' own programs: promtool checks the rules, fires each
# alert, and reads /metrics; a Prometheus asks a server for the whole dashboard. Where these programs
# are missing the test is skipped (77) after the rest has passed.
#
#   scripts/test_monitoring.sh <wideep> <work directory>
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
wideep=$(realpath "$1")
rm -rf "$2" && mkdir -p "$2"
work=$(realpath "$2")
source "$root/scripts/testing.sh"
dashboard=$root/cluster/monitoring/wideep_dashboard.json
alerts=$root/cluster/monitoring/wideep_alerts.yaml

command -v python3 >/dev/null || skip "no python3"
check() { python3 "$root/tests/monitoring/monitoring.py" "$@" || fail "$1"; }
check dashboard "$dashboard"

# With all that adds metrics: experts that move, drafts, several ranks, a place of prompts. Where
# experts move, all are in memory, so those that are not have a server of their own.
cat >"$work/config.yaml" <<'END'
tensor_parallel_size: 4
moe_expert_parallel_size: 4
enable_attention_dp: true
kv_cache_config: {max_tokens: 2048, host_cache_size: 67108864}
speculative_config: {decoding_type: NGram, max_draft_len: 3}
moe_config:
  load_balancer: {num_slots: 40, layer_updates_per_iter: 2}
END

# serve_with <names> <seconds>: a server with these names, asked for that long in the background.
serve_with() {
  start_server --config "$work/config.yaml" --metrics-names "$1" --role both
  python3 "$root/tests/clients/traffic.py" "$url" secret "$root/demo/changing_prompts.jsonl" "$2" &
  traffic=$!
}
serve_experts() {
  local work=$work/experts server
  mkdir -p "$work"
  start_server --ranks 2 --packed-cache "$work/packed" --expert-memory 50%
  experts=$server
  experts_url=$url
}
metrics_to() {
  python3 - "${url%/v1}/metrics" >"$work/metrics.$1" <<'END' || fail "GET /metrics"
import sys, urllib.request
request = urllib.request.Request(sys.argv[1], headers={"Authorization": "Bearer secret"})
sys.stdout.write(urllib.request.urlopen(request, timeout=10).read().decode())
END
}
end_traffic() {
  kill -TERM $traffic 2>/dev/null || true
  wait $traffic || fail "the clients of the test"
}

for names in vllm wideep; do
  serve_with $names 2
  wait $traffic || fail "the clients of the test"
  metrics_to $names
  stop_server
done
check vllm "$root/docs/monitoring.md" "$work/metrics.vllm"

serve_experts
python3 "$root/tests/clients/traffic.py" "$experts_url" secret "$root/demo/changing_prompts.jsonl" 60 &
traffic_of_experts=$!
serve_with both 50
server_url=$url
"$wideep" route --port 0 --replica "${server_url%/v1}" 2>"$work/route.log" &
router=$!
trap 'kill -KILL $server $experts $router $traffic $traffic_of_experts ${prometheus:-} 2>/dev/null || true' EXIT
router_url=
for _ in $(seq 100); do
  router_url=$(grep 'routing to' "$work/route.log" | grep --only-matching 'http://127.0.0.1:[0-9]*/v1' || true)
  [[ -z $router_url ]] || break
  sleep 0.1
done
[[ -n $router_url ]] || fail "the router does not start: $(cat "$work/route.log")"
url=$router_url
metrics_to route
url=$server_url
sleep 2  # a rank's memory is there from its first report on
metrics_to both
url=$experts_url
metrics_to experts
url=$server_url
for names in wideep both; do
  check names "$dashboard" "$alerts" "$work/metrics."{"$names",route,experts}
done
check experts "$root/docs/monitoring.md" "$work/metrics.experts"

finish() {
  end_traffic
  kill -TERM $traffic_of_experts 2>/dev/null || true
  wait $traffic_of_experts || fail "the clients of the test"
  kill -TERM $experts
  wait $experts || fail "the server with experts on the disk ends with $?"
  kill -TERM $router
  wait $router || fail "the router ends with $?"
  stop_server
}
if ! command -v promtool >/dev/null; then
  finish
  skip "no promtool (package prometheus)"
fi

promtool check rules "$alerts" >"$work/promtool.log" 2>&1 || fail "$(cat "$work/promtool.log")"
promtool test rules "$root/tests/monitoring/wideep_alerts_test.yaml" >"$work/promtool.log" 2>&1 ||
  fail "$(cat "$work/promtool.log")"
promtool check config "$root/cluster/monitoring/prometheus.yaml" >"$work/promtool.log" 2>&1 ||
  fail "$(cat "$work/promtool.log")"
check rules "$dashboard" >"$work/queries.yaml"
promtool check rules "$work/queries.yaml" >"$work/promtool.log" 2>&1 ||
  fail "$(cat "$work/promtool.log")"
# Names of other engines are as they are.
for names in wideep both vllm route experts; do
  promtool check metrics <"$work/metrics.$names" >"$work/promtool.log" 2>&1 || true
  if grep -v '^vllm:\|^trtllm_' "$work/promtool.log"; then fail "promtool check metrics: $names"; fi
done
echo "promtool: rules, tests of rules, metrics"

if ! command -v prometheus >/dev/null; then
  finish
  skip "no prometheus"
fi
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
address() { local it=${1#http://}; echo "${it%/v1}"; }
cat >"$work/prometheus.yaml" <<END
global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [$alerts]
scrape_configs:
  - job_name: wideep
    authorization: {credentials: secret}
    static_configs:
      - targets: ["$(address "$server_url")", "$(address "$experts_url")", "$(address "$router_url")"]
END
prometheus --config.file="$work/prometheus.yaml" --storage.tsdb.path="$work/data" \
  --web.listen-address="127.0.0.1:$port" 2>"$work/prometheus.log" &
prometheus=$!
for _ in $(seq 100); do
  grep -q 'ready to receive' "$work/prometheus.log" && break
  kill -0 $prometheus 2>/dev/null || fail "prometheus: $(tail -n 3 "$work/prometheus.log")"
  sleep 0.1
done
check live "$dashboard" "http://127.0.0.1:$port"
kill -TERM $prometheus
wait $prometheus || fail "prometheus ends with $?"
finish
rm -rf "$work/data"
