#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What a reader would object to before reading: format, the order of the folders, Markdown. Seconds.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/install_packages.sh packages.txt development_packages.txt
git ls-files '*.h' '*.cc' | xargs clang-format-19 --dry-run -Werror
python3 scripts/check_folder_order.py
python3 scripts/check_markdown.py
echo "No complaint."
