#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Two builds, one hash. Compares, of the last commit in two clones whose folders, umask, language and
# time zone differ:
#   libwideep_balancer.a    compiled from nothing in each, without ccache
#   the wheel               packed in each from the programs of build-portable, where scripts/wheel.sh
#                           has built them
#   .deb, .rpm, .tar.zst    packed twice from build-packages, where scripts/packages.sh has built it
# With --all the wheel is compiled from nothing in each, too: half an hour on 16 cores. What is not
# there is named and not compared.
#
#   scripts/test_reproducible.sh <work directory> [--all]
set -euo pipefail
mkdir -p "$1"
work=$(realpath "$1")
all=${2:-}
cd "$(dirname "$0")/.."
source scripts/testing.sh

command -v clang++-19 >/dev/null || skip "no clang++-19 (scripts/packages.txt)"
[[ -z $all || $all == --all ]] || fail "unknown argument '$all': expected --all or none"
here=$PWD
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH CCACHE_DISABLE=1
folders=("$work/a" "$work/folder-of-another-length")
rm -rf "${folders[@]}" "$work/build_log"

# in_both <function>: runs it in each folder, as two people's machines would.
in_both() {
  (umask 022 && cd "${folders[0]}" && LC_ALL=C TZ=UTC "$1" "${folders[0]}")
  (umask 077 && cd "${folders[1]}" && LC_ALL=C.UTF-8 TZ=Pacific/Auckland "$1" "${folders[1]}")
}

# compare <name> <file...>: of files that in_both has made; paths below the folders.
compare() {
  local name=$1 file first second
  shift
  for file in "$@"; do
    first=$(sha256sum <"${folders[0]}/$file")
    second=$(sha256sum <"${folders[1]}/$file")
    [[ $first == "$second" ]] || fail "$name: $file differs: ${first:0:12}, ${second:0:12}"
    echo "$name: ${file##*/} ${first:0:16}"
  done
}

clone() { git clone --quiet --shared "$here" "$1"; }
mkdir "${folders[@]}"
in_both clone

balancer() {
  cmake -S . -B build -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_COMPILER=clang-19 \
    -DCMAKE_CXX_COMPILER=clang++-19 -DWIDEEP_ONLY_BALANCER=ON -DWIDEEP_CUDA=OFF \
    -DCMAKE_CXX_FLAGS="-ffile-prefix-map=$1=." >"$work/build_log" &&
    cmake --build build --target wideep_balancer --parallel "$(nproc)" >>"$work/build_log" ||
    { tail "$work/build_log"; fail "libwideep_balancer.a cannot be compiled"; }
}
in_both balancer
compare "compiled twice" build/libwideep_balancer.a

packed_wheel() {
  packaging/third_party.py --sysroot "$here/build-portable/sysroot" \
    --wheel-python "$here/build-portable/python" --output third_party
  packaging/wheel/make_wheel.py --build "$here/build-portable" --share "$here/build-portable/share" \
    --output wheel --license LICENSE --license third_party/THIRD_PARTY.txt \
    --sbom third_party/wideep.spdx.json >/dev/null
}
if [[ -x build-portable/wideep && -d build-portable/share ]]; then
  in_both packed_wheel
  compare "packed twice" $(cd "${folders[0]}" && ls wheel/*.whl third_party/*)
else
  echo "the wheel: not compared, scripts/wheel.sh has not built it"
fi

packed() {
  local generator
  umask 022  # as scripts/packages.sh does
  for generator in $generators; do
    (cd "$here/build-packages" && cpack -G "$generator" -B "$1/packages") >"$work/build_log" ||
      { tail "$work/build_log"; fail "cpack -G $generator"; }
  done
  rm -rf "$1/packages/_CPack_Packages"
}
generators=TZST
command -v dpkg-deb >/dev/null && generators+=" DEB"
command -v rpmbuild >/dev/null && generators+=" RPM"
if [[ -f build-packages/CPackConfig.cmake && -x build-packages/wideep ]]; then
  in_both packed
  compare "packed twice" $(cd "${folders[0]}" && find packages -maxdepth 1 -type f | sort)
else
  echo ".deb, .rpm, .tar.zst: not compared, scripts/packages.sh has not built them"
fi

built_wheel() {
  env --unset=WIDEEP_PORTABLE_BUILD scripts/wheel.sh whole >"$work/build_log" 2>&1 ||
    { tail "$work/build_log"; fail "scripts/wheel.sh"; }
}
if [[ $all == --all ]]; then
  in_both built_wheel
  compare "compiled twice" $(cd "${folders[0]}" && ls whole/*.whl)
fi
rm -rf "${folders[@]}"
