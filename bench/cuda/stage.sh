#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the programs for a machine with a GPU and puts them, with the libraries that such a machine
# may lack, into a folder that can be carried there; and the libraries that build_python.sh builds the
# Python package of that machine with:
#
#   bench/cuda/stage.sh FOLDER
set -euo pipefail
folder=$(mkdir -p "$1" && cd "$1" && pwd)
cd "$(dirname "$0")/../.."

cmake --build build --target cuda_gpu_test cuda_exchange_bench
rm -rf "${folder:?}/lib"
mkdir -p "$folder/lib/fallback"
for program in cuda_gpu_test cuda_exchange_bench; do
  strip -o "$folder/$program" "build/src/exchange/cuda/programs/$program"
  # The C library and the driver are those of the machine.
  ldd "build/src/exchange/cuda/programs/$program" | awk '$3 ~ /^\// { print $3 }' |
    grep --invert-match --extended-regexp '/(libc|libm|libdl|librt|libpthread|libcuda)\.so' |
    xargs --no-run-if-empty cp --dereference --target-directory="$folder/lib"
done
mv "$folder"/lib/lib{stdc++,gcc_s}.so.* "$folder/lib/fallback"
cp bench/cuda/run_on_device.sh "$folder"

# What build_python.sh links: an installed wideep, and fmt's library, whose headers nobody needs there.
cmake --build build --target wideep_balancer wideep_communicator wideep_device wideep_shared
rm -rf "${folder:?}/wideep" "${folder:?}/fmt"
cmake --install build --prefix "$folder/wideep" --strip >/dev/null
strip --strip-debug "$folder"/wideep/lib/*.a "$folder"/wideep/lib/*/*.a 2>/dev/null || true
mkdir -p "$folder/fmt"
cat >"$folder/fmt/fmt-config.cmake" <<'END'
add_library(fmt::fmt SHARED IMPORTED)
file(GLOB library ${CMAKE_CURRENT_LIST_DIR}/../lib/libfmt.so.*)
set_target_properties(fmt::fmt PROPERTIES IMPORTED_LOCATION ${library})
END
du --summarize --human-readable "$folder"
