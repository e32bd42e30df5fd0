#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs a finished build into a new folder, then builds and runs examples/ against it, as a
# program that embeds wideep would. The documentation site is there, too, if it was made.
#
#   scripts/test_install.sh <build directory> [argument of cmake...]
set -euo pipefail
cd "$(dirname "$0")/.."

build=$1
shift
work=$build/installed
rm -rf "$work"
cmake --install "$build" --prefix "$work/prefix" >/dev/null
site=$work/prefix/share/doc/wideep/html
[[ ! -d $build/docs/html ]] || python3 scripts/docs_site/check.py "$site"
cmake -S examples -B "$work/examples" -G Ninja -DCMAKE_PREFIX_PATH="$work/prefix" "$@"
cmake --build "$work/examples"
ctest --test-dir "$work/examples" --output-on-failure
