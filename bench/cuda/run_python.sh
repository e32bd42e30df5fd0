#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the Python package on a machine with a GPU and runs torch_on_device.py, in at most three
# minutes:
#
#   OUT=logs bench/cuda/run_python.sh FOLDER      # FOLDER: as stage.sh has filled it
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
folder=$(cd "$1" && pwd)
OUT=${OUT:-$folder/logs}
mkdir -p "$OUT"
export CUDA_MODULE_LOADING=EAGER  # a kernel that is loaded late could wait for one that waits for it
{
  start=$SECONDS
  timeout 100 "$here/build_python.sh" "$folder"
  echo "built: exit $?, $((SECONDS - start)) s"
  start=$SECONDS
  library=$(find "$folder/wideep" -name 'libwideep.so' | head -n 1)
  PYTHONPATH=$folder/package \
    timeout --kill-after=5 120 "${PYTHON:-python3}" -B "$here/torch_on_device.py" "$library"
  echo "torch_on_device.py: exit $?, $((SECONDS - start)) s"
} 2>&1 | tee "$OUT/python.log"
