#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes the wheel with the command, in build/packages: the portable build (docs/packaging.md), the
# modules of the Python package for every Python from 3.9 on, manual pages and completions.
#
#   scripts/wheel.sh [folder of the wheel]     default: build/packages
#
# WIDEEP_PORTABLE_BUILD: another folder than build-portable to build in.
set -euo pipefail
output=$(realpath --canonicalize-missing "${1:-$(dirname "$0")/../build/packages}")
cd "$(dirname "$0")/.."

scripts/install_packages.sh packages.txt package_packages.txt
build=$(realpath --canonicalize-missing "${WIDEEP_PORTABLE_BUILD:-build-portable}")
# The time of the last commit, for files and for the date of manual pages.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH

scripts/portable_sysroot.sh "$build/sysroot"
scripts/wheel_python.sh "$build/python"
cmake --preset portable -B "$build" -DWIDEEP_SYSROOT="$build/sysroot" \
  -DWIDEEP_WHEEL_PYTHON="$build/python" >/dev/null
cmake --build "$build" --target wideep wideep_wheel_modules --parallel "$(nproc)"

share=$build/share
rm -rf "$share"
mkdir -p "$share"/{man/man1,bash-completion/completions,zsh/site-functions,fish/vendor_completions.d}
"$build/wideep" man "$share/man/man1"
"$build/wideep" completions bash >"$share/bash-completion/completions/wideep"
"$build/wideep" completions zsh >"$share/zsh/site-functions/_wideep"
"$build/wideep" completions fish >"$share/fish/vendor_completions.d/wideep.fish"

packaging/third_party.py --sysroot "$build/sysroot" --wheel-python "$build/python" \
  --output "$build/third_party"
rm -f "$output"/wideep-*.whl
packaging/wheel/make_wheel.py --build "$build" --share "$share" --output "$output" \
  --license LICENSE --license "$build/third_party/THIRD_PARTY.txt" \
  --sbom "$build/third_party/wideep.spdx.json"
