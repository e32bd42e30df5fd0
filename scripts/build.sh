#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds into build/ with the release preset of CMakePresets.json, into build-<preset>/ with another.
#
#   scripts/build.sh command               build/wideep alone, for which packages.txt is enough
#   scripts/build.sh <preset> [target...]  everything, or these targets
#
# WIDEEP_UNITY=ON (or OFF): several files as one (cmake/Unity.cmake): half the time from nothing,
# more after a change. A build directory keeps what it has; a new one has it, since most build once,
# but with gcc, which so sees that every file includes what it needs.
set -euo pipefail
cd "$(dirname "$0")/.."

# has <option> <build directory>: prints ON or OFF as the directory is configured, nothing if it is
# not.
has() { sed -n "s/^WIDEEP_$1:BOOL=//p" "$2/CMakeCache.txt" 2>/dev/null || true; }

preset=$1
shift
if [[ $preset == command ]]; then
  scripts/install_packages.sh
  preset=release
  tests=$(has TESTS build)  # a build directory with tests keeps them
  tests=${tests:-OFF}
  set -- wideep
else
  scripts/install_packages.sh packages.txt development_packages.txt
  tests=ON
fi
directory=build-$preset
[[ $preset == release ]] && directory=build

# Ninja configures again by itself if a CMakeLists.txt changes, but not for these: which files can
# be compiled as one depends on what is in them.
configured=$(has UNITY "$directory")
at_first=ON
[[ $preset == gcc ]] && at_first=OFF
unity=${WIDEEP_UNITY:-${configured:-$at_first}}
if [[ $(has TESTS "$directory") != "$tests" || $unity != "$configured" || $unity == ON ||
  CMakePresets.json -nt $directory/build.ninja ]]; then
  cmake --preset "$preset" -DWIDEEP_TESTS="$tests" ${unity:+-DWIDEEP_UNITY="$unity"} >/dev/null
fi
cmake --build "$directory" --parallel "$(nproc)" ${@:+--target "$@"}
