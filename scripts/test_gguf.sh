#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Compares the logits of small models in GGUF files with those of llama.cpp: the committed ones
# (tests/golden/gguf/models), decoded to float32, so that both compute the same products. llama.cpp
# refuses some of them (sizes for which it has no kernels); these are named. Exits with 77 and a line
# with the reason if there is no llama.cpp, whose building takes minutes.
#
#   scripts/test_gguf.sh <path of model_test> <work directory>
#
# WIDEEP_LLAMA_PYTHON: a Python that has llama-cpp-python 0.3.36, gguf 0.19.0 and numpy, as
# bench/compare_llama_cpp.py has.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
model_test=$(realpath "$1")
work=$2
source "$root/scripts/testing.sh"

python=${WIDEEP_LLAMA_PYTHON:-}
[[ -n $python ]] || skip "WIDEEP_LLAMA_PYTHON is not set"
"$python" -c "import gguf, llama_cpp, numpy" || skip "$python has no llama-cpp-python, gguf or numpy"
rm -rf "$work/models"
mkdir -p "$work/models"
"$python" "$root/scripts/gguf_to_float32.py" "$root/tests/golden/gguf/models" "$work/models"
"$python" "$root/scripts/llama_logits.py" "$work/models"
# What llama.cpp does not compute is compared by the unit test, with transformers.
for model in "$work"/models/*.gguf; do
  [[ -e ${model%.gguf}.safetensors ]] || rm "$model"
done
WIDEEP_GOLDEN_GGUF=$work/models "$model_test" --gtest_filter='*GgufGolden*' --gtest_brief=1
