#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs clang-tidy (.clang-tidy) over all sources, which takes an hour on two cores, or over some:
#
#   scripts/tidy.sh [file...]       scripts/tidy.sh src/foundation/base/log.cc
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/install_packages.sh packages.txt development_packages.txt
cmake --preset release -DWIDEEP_TESTS=ON >/dev/null

elsewhere=(':!:python' ':!:tests/nvtx_log')  # built by pip; only where CUDA is
files=("$@")
[[ $# -gt 0 ]] || mapfile -t files < <(git ls-files '*.cc' ':!:*_fuzz.cc' "${elsewhere[@]}")
printf '%s\n' "${files[@]}" |
  xargs --max-procs="$(nproc)" --max-args=1 clang-tidy-19 -p build --quiet 2>&1 |
  { grep --invert-match --extended-regexp \
    '^\[[0-9]+/[0-9]+\] Processing|^[0-9]+ warnings? generated\.$' || true; }
echo "No problems found."
