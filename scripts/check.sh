#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Quick checks of the sources, in seconds: format, order of the folders, Markdown.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/install_packages.sh packages.txt development_packages.txt
git ls-files '*.h' '*.cc' '*.cu' '*.cuh' | xargs clang-format-19 --dry-run -Werror
# Comments are not formatted.
if git ls-files '*.h' '*.cc' '*.cu' '*.cuh' |
  LC_ALL=C.UTF-8 xargs grep --line-number --extended-regexp '^ *//.{100,}$'; then
  echo "comments: at most 100 columns" >&2
  exit 1
fi
python3 scripts/check_folder_order.py
python3 scripts/check_markdown.py
python3 scripts/check_pages.py
echo "No problems found."
