#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the Python package on a machine with a GPU, for the Python of that machine, against what
# stage.sh has put into a folder; half a minute. The machine needs CMake, a C++20 compiler, the CUDA
# toolkit, and in Python nanobind.
#
#   bench/cuda/build_python.sh FOLDER      # then PYTHONPATH=FOLDER/package
set -euo pipefail
folder=$(cd "$1" && pwd)
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
python=${PYTHON:-python3}
PATH=$PATH:/usr/local/cuda/bin

package=$folder/package
rm -rf "$folder/build" "$package"
# RPATH: the libraries that were staged, if the machine lacks them.
cmake -S "$root/bench/cuda/python" -B "$folder/build" -DCMAKE_BUILD_TYPE=Release \
  -DCMAKE_PREFIX_PATH="$folder/wideep;$folder/fmt" -DPython_EXECUTABLE="$(command -v "$python")" \
  -Dnanobind_DIR="$("$python" -m nanobind --cmake_dir)" \
  -DCMAKE_SHARED_LINKER_FLAGS="-Wl,--disable-new-dtags" \
  -DCMAKE_BUILD_RPATH="$folder/lib" >"$folder/build.log" 2>&1 ||
  { tail -n 30 "$folder/build.log"; exit 1; }
cmake --build "$folder/build" --parallel "$(nproc)" >>"$folder/build.log" 2>&1 ||
  { tail -n 30 "$folder/build.log"; exit 1; }
mkdir -p "$package"
cp -r "$root/python/wideep" "$package"
find "$folder/build" -name '_*.so' -exec cp --target-directory="$package/wideep" {} +
PYTHONPATH=$package "$python" -c 'import wideep.communicator'
