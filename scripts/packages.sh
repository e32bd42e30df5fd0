#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the command for this distribution, without CUDA, and packs it: .deb (where dpkg-deb is),
# .rpm (where rpmbuild is) and .tar.zst, in build/packages. The wheel is scripts/wheel.sh's.
#
#   scripts/packages.sh [generator...]     default: DEB RPM TZST
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/install_packages.sh packages.txt package_packages.txt
build=build-packages
output=$PWD/build/packages
# The time of the last commit, for files and for the date of manual pages.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH

# No path of this machine is in what is made: it has the same bytes in another folder.
cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX=/usr \
  -DCMAKE_C_COMPILER=clang-19 -DCMAKE_CXX_COMPILER=clang++-19 -DWIDEEP_TESTS=OFF \
  -DWIDEEP_CUDA=OFF -DWIDEEP_UNITY=ON -DCMAKE_C_FLAGS="-ffile-prefix-map=$PWD=." \
  -DCMAKE_CXX_FLAGS="-ffile-prefix-map=$PWD=." >/dev/null
cmake --build "$build" --parallel "$(nproc)"

if [[ $# -eq 0 ]]; then
  set -- TZST
  command -v dpkg-deb >/dev/null && set -- "$@" DEB || echo "no .deb: there is no dpkg-deb" >&2
  command -v rpmbuild >/dev/null && set -- "$@" RPM || echo "no .rpm: there is no rpmbuild" >&2
fi
mkdir -p "$output"
umask 022  # a .deb has the modes of the files that cpack made its parts as
for generator in "$@"; do
  # Those of another version would be installed, or put into an image, beside or instead of these.
  case $generator in
    DEB) rm -f "$output"/{wideep,libwideep}*.deb ;;
    RPM) rm -f "$output"/{wideep,libwideep}*.rpm ;;
    TZST) rm -f "$output"/wideep-*.tar.zst ;;
  esac
  (cd "$build" && cpack -G "$generator" -B "$output" >"$generator.log") || {
    cat "$build/$generator.log"
    exit 1
  }
done
rm -rf "$output/_CPack_Packages"
ls "$output"
