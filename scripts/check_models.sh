#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Compares the forward pass of random small models of every family with Hugging Face's
# (tests/golden/README.md). The models are made anew in the directory, the same for a seed. Exits
# with 77 and a line with the reason if Python lacks torch or transformers.
#
#   scripts/check_models.sh <path of model_test> <directory> <count per family> <seed> [<family>]
#
# WIDEEP_GOLDEN_PYTHON chooses the interpreter, python3 otherwise.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
model_test=$(realpath "$1")
work=$2
count=$3
seed=$4
family=${5:-}
source "$root/scripts/testing.sh"

python=${WIDEEP_GOLDEN_PYTHON:-python3}
command -v "$python" >/dev/null || skip "no $python"
"$python" -c 'import safetensors, torch, transformers' 2>/dev/null ||
  skip "$python lacks safetensors, torch or transformers"

models=$work/models
rm -rf "$models"
mkdir -p "$models"
HF_HUB_OFFLINE=1 "$python" "$root/tests/golden/make_models.py" --out "$models" --random "$count" \
  --seed "$seed" ${family:+--only "$family"} >"$work/make_models.log" 2>&1 ||
  fail "make_models.py: $(tail -n 5 "$work/make_models.log")"
WIDEEP_GOLDEN_MODELS=$models "$model_test" --gtest_brief=1 --gtest_filter='*FamilyGolden*:*FamilyFiles*'
echo "$(find "$models" -name golden.safetensors | wc -l) random models (seed $seed) compared."
