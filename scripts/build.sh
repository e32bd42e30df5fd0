#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds a preset of CMakePresets.json, into build/ for release and build-<preset>/ for the others.
#
#   scripts/build.sh <preset> [target...]
set -euo pipefail
cd "$(dirname "$0")/.."

preset=$1
shift
scripts/install_packages.sh
cmake --preset "$preset" >/dev/null
cmake --build --preset "$preset" --parallel "$(nproc)" ${@:+--target "$@"}
