#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs what needs torch in the environment that test_python.sh has made: the tests of tensors, and
# examples/moe_layer.py against wideep's engine. Exits with 77 (skipped) if there is no torch.
#
#   scripts/test_torch.sh <work directory of test_python.sh> <program moe_layer>
#
# WIDEEP_GOLDEN_PYTHON chooses an interpreter of the same version that has torch;
# WIDEEP_INSTALL_TORCH=1 installs torch from PyPI, several GiB.
set -euo pipefail
cd "$(dirname "$0")/.."

source=$PWD
work=$(realpath -m "$1")
program=$(realpath "$2")
source scripts/testing.sh

[[ -x $work/venv/bin/python ]] && "$work/venv/bin/python" -c 'import wideep' 2>/dev/null ||
  skip "the Python package is not in $work (scripts/test_python.sh says why)"
# In a folder of its own: the other tests of this environment run without torch. They run in $work,
# so it must not be called torch, which Python would import.
paths=$work/with_torch
mkdir -p "$paths"
if [[ -n ${WIDEEP_GOLDEN_PYTHON:-} ]]; then
  PYTHONPATH=$("$WIDEEP_GOLDEN_PYTHON" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  export PYTHONPATH
else
  export PYTHONPATH=$paths
fi
if ! "$work/venv/bin/python" -c 'import torch' 2>/dev/null; then
  [[ ${WIDEEP_INSTALL_TORCH:-} == 1 ]] ||
    skip "no torch: WIDEEP_INSTALL_TORCH=1 installs it, WIDEEP_GOLDEN_PYTHON=... takes that of an interpreter"
  pip install --target "$paths" torch ||
    skip "pip cannot install torch: $(tail -n 1 "$work/pip.log")"
  "$work/venv/bin/python" -c 'import torch' || fail "torch is installed but cannot be imported"
fi

cd "$source/python/tests"
WIDEEP_MOE_LAYER=$program "$work/venv/bin/python" -B -m unittest --verbose test_tensors test_moe_layer
cd "$work"
venv/bin/python "$source/examples/moe_layer.py" | tee moe_layer.log
[[ $(grep --count 'checksum' moe_layer.log) == 2 ]] || fail "the example does not end on both ranks"
