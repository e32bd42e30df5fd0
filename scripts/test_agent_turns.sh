#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tests that an agent's turns compute what is new and at most a page more (bench/agent_turns.py), for
# small models with random weights: attention, a latent cache, and states of two kinds. Exits with 77
# and a line with the reason where there is no python3.
#
#   scripts/test_agent_turns.sh <path of wideep> <work directory>
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
wideep=$(realpath "$1")
work=$2
source "$root/scripts/testing.sh"

command -v python3 >/dev/null || skip "no python3"
mkdir -p "$work"

over=()
for model in mixtral_plain deepseek_v2_lite qwen3_next_plain lfm2_moe_plain; do
  echo "-- $model"
  python3 "$root/bench/agent_turns.py" --wideep "$wideep" --turns 10 --system-tokens 2000 \
    --config "$root/tests/golden/family_models/$model/config.json" --json "$work/$model.json" \
    2>&1 || over+=("$model")
done
((${#over[@]} == 0)) || fail "more is computed than is new, or there is no answer: ${over[*]}"
