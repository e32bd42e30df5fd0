#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tests `wideep serve` with independent clients: the openai package, curl, and a parser of
# Prometheus' format. Exits with 77 and a line with the reason if they cannot be installed.
#
#   scripts/test_clients.sh <path of wideep> <work directory>
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
wideep=$(realpath "$1")
work=$2
source "$root/scripts/testing.sh"

make_environment
pip install openai prometheus_client || skip "pip cannot install openai: $(tail -n 1 "$work/pip.log")"

start_server --ranks 2 --tool-call-parser hermes
"$work/venv/bin/python" "$root/tests/clients/openai_client.py" "$url" secret || fail "openai"

if command -v curl >/dev/null; then
  body='{"model": "reference", "prompt": "The sun is", "max_tokens": 4, "temperature": 0, "stream": true}'
  curl --silent --show-error --max-time 20 --no-buffer "$url/completions" \
    --header 'Authorization: Bearer secret' --header 'Content-Type: application/json' \
    --data "$body" | tail -n 2 | grep --quiet '^data: \[DONE\]$' || fail "curl"
fi

stop_server
echo "openai, curl and a Prometheus parser work with the server."
