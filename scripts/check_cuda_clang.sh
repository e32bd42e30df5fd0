#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Reads the CUDA kernels with a second compiler, clang, for Hopper: what nvcc alone accepts, or warns
# of, is found here. Exits with 77 (skipped) where clang 19 or the CUDA toolkit is missing, or where
# this clang cannot read this toolkit's headers.
#
#   scripts/check_cuda_clang.sh [CUDA toolkit, default /usr/local/cuda]
set -euo pipefail
cd "$(dirname "$0")/../src"
source ../scripts/testing.sh

toolkit=${1:-/usr/local/cuda}
clang=$(command -v clang++-19) || skip "no clang++-19"
[[ -f $toolkit/include/cuda_runtime.h ]] || skip "no CUDA toolkit in $toolkit"

work=$(mktemp --directory)
trap 'rm -rf "$work"' EXIT
# clang 19 still includes headers of texture functions that CUDA 13 no longer has; kernels use none.
mkdir "$work/include"
for header in texture_fetch_functions.h texture_indirect_functions.h; do
  [[ -f $toolkit/include/$header ]] || touch "$work/include/$header"
done
# compile <option...>: __grid_constant__, which this clang does not know, only saves a copy.
compile() {
  "$clang" -x cuda --cuda-gpu-arch=sm_90 --cuda-path="$toolkit" -std=c++20 -Wno-unknown-cuda-version \
    -isystem "$work/include" "$@"
}
echo '#include <cuda_runtime.h>
__global__ void kernel(int* x) { *x = 1; }' >"$work/empty.cu"
compile -fsyntax-only "$work/empty.cu" 2>"$work/log" ||
  skip "clang cannot read this CUDA toolkit: $(grep --max-count=1 error "$work/log")"
compile -fsyntax-only -Wall -Wextra -Werror -Wno-unknown-attributes \
  -Ifoundation -Inumbers -Iexchange -I../include exchange/cuda/kernels.cu ||
  fail "clang refuses src/exchange/cuda/kernels.cu"
echo "clang 19 reads the kernels without a warning."
