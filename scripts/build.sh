#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds into build/ with the release preset of CMakePresets.json, into build-<preset>/ with another.
#
#   scripts/build.sh command               build/wideep alone, for which packages.txt is enough
#   scripts/build.sh <preset> [target...]  everything, or these targets
set -euo pipefail
cd "$(dirname "$0")/.."

# has_tests <build directory>: prints ON or OFF as the directory is configured, nothing if it is not.
has_tests() { sed -n 's/^WIDEEP_TESTS:BOOL=//p' "$1/CMakeCache.txt" 2>/dev/null || true; }

preset=$1
shift
if [[ $preset == command ]]; then
  scripts/install_packages.sh
  preset=release
  tests=$(has_tests build)  # a build directory with tests keeps them
  tests=${tests:-OFF}
  set -- wideep
else
  scripts/install_packages.sh packages.txt development_packages.txt
  tests=ON
fi
directory=build-$preset
[[ $preset == release ]] && directory=build

# Ninja configures again by itself if a CMakeLists.txt changes, but not for these two.
if [[ $(has_tests "$directory") != "$tests" || CMakePresets.json -nt $directory/build.ninja ]]; then
  cmake --preset "$preset" -DWIDEEP_TESTS="$tests" >/dev/null
fi
cmake --build "$directory" --parallel "$(nproc)" ${@:+--target "$@"}
