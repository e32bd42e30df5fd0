#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What a reader would object to before reading: format, the order of the folders, Markdown, clang-tidy.
# With arguments, clang-tidy reads these files only: scripts/check.sh src/base/log.cc
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/install_packages.sh
cmake --preset release >/dev/null
git ls-files '*.h' '*.cc' | xargs clang-format-19 --dry-run -Werror
python3 scripts/check_folder_order.py
python3 scripts/check_markdown.py

elsewhere=(':!:python' ':!:tests/nvtx_log')  # built by pip; only where CUDA is
files=("$@")
[[ $# -gt 0 ]] || mapfile -t files < <(git ls-files '*.cc' ':!:*_fuzz.cc' "${elsewhere[@]}")
printf '%s\n' "${files[@]}" |
  xargs --max-procs="$(nproc)" --max-args=1 clang-tidy-19 -p build --quiet 2>&1 |
  { grep --invert-match --extended-regexp \
    '^\[[0-9]+/[0-9]+\] Processing|^[0-9]+ warnings? generated\.$' || true; }
echo "No complaint."
