#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the programs for a machine with a GPU and puts them, with the libraries that such a machine
# may lack, into a folder that can be carried there:
#
#   bench/cuda/stage.sh FOLDER
set -euo pipefail
folder=$(mkdir -p "$1" && cd "$1" && pwd)
cd "$(dirname "$0")/../.."

cmake --build build --target cuda_gpu_test cuda_exchange_bench
rm -rf "${folder:?}/lib"
mkdir -p "$folder/lib/fallback"
for program in cuda_gpu_test cuda_exchange_bench; do
  strip -o "$folder/$program" "build/src/cuda/programs/$program"
  # The C library and the driver are those of the machine.
  ldd "build/src/cuda/programs/$program" | awk '$3 ~ /^\// { print $3 }' |
    grep --invert-match --extended-regexp '/(libc|libm|libdl|librt|libpthread|libcuda)\.so' |
    xargs --no-run-if-empty cp --dereference --target-directory="$folder/lib"
done
mv "$folder"/lib/lib{stdc++,gcc_s}.so.* "$folder/lib/fallback"
cp bench/cuda/run_on_device.sh "$folder"
du --summarize --human-readable "$folder"
