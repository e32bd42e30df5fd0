#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The wheel in a bare Debian 12, a bare Debian 13 and a bare Ubuntu 26.04, each without a compiler and
# without a network: pip, pipx and uvx install it; the command generates and serves; the library
# plans (scripts/test_wheel_root.sh). Before, auditwheel and abi3audit say whether its tag is true,
# and spdx-tools whether its bill of materials is valid.
# Skipped (77) without root or the tools.
#
#   scripts/test_wheel.sh <directory of the wheel> <work directory> [release...]
set -euo pipefail
packages=$(realpath "$1")
mkdir -p "$2"
work=$(realpath "$2")
shift 2
[[ $# -gt 0 ]] || set -- bookworm trixie resolute
cd "$(dirname "$0")/.."
source scripts/testing.sh

[[ $EUID -eq 0 ]] || skip "not root: a bare system needs chroot"
for tool in mmdebstrap ip unshare; do
  command -v $tool >/dev/null || skip "no $tool (scripts/package_packages.txt, test_packages.txt)"
done
wheel=$(compgen -G "$packages/wideep-*.whl") || fail "no wheel in $packages: make wheel"
[[ $wheel != *$'\n'* ]] || fail "more than one wheel in $packages: $wheel"

make_environment
if pip install auditwheel abi3audit spdx-tools; then
  "$work/venv/bin/auditwheel" show "$wheel" >"$work/auditwheel.txt" || fail "auditwheel"
  tag=$(basename "$wheel" .whl | grep --only-matching 'manylinux_.*')
  tr '\n' ' ' <"$work/auditwheel.txt" | grep --quiet "consistent with the following platform tag: \"$tag\"" ||
    { cat "$work/auditwheel.txt"; fail "auditwheel finds another tag than $tag"; }
  rm -rf "$work/modules"
  mkdir "$work/modules"
  python3 -m zipfile --extract "$wheel" "$work/modules"
  "$work/venv/bin/abi3audit" --strict --assume-minimum-abi3 3.12 "$work"/modules/wideep/*.abi3.so \
    >"$work/abi3audit.txt" 2>&1 || { cat "$work/abi3audit.txt"; fail "abi3audit"; }
  for bill in "$work"/modules/wideep-*.dist-info/sboms/wideep.spdx.json; do
    "$work/venv/bin/pyspdxtools" --infile "$bill" >"$work/spdx.txt" 2>&1 ||
      { cat "$work/spdx.txt"; fail "the bill of materials is not valid SPDX"; }
    [[ -s ${bill%/sboms/*}/licenses/THIRD_PARTY.txt ]] || fail "the wheel has no THIRD_PARTY.txt"
  done
  echo "auditwheel: $tag; abi3audit: Python 3.12 and later; spdx-tools: valid"
else
  echo "auditwheel, abi3audit and spdx-tools cannot be installed: not asked"
fi
echo "$(basename "$wheel"): $(stat --format %s "$wheel" | awk '{printf "%.1f MB", $1 / 1e6}')"

for release in "$@"; do
  root=$work/$release
  begin=$SECONDS
  scripts/bare_root.sh "$release" "$root" python3 python3-venv pipx >"$work/$release.log" 2>&1 ||
    { tail -n 5 "$work/$release.log"; skip "a bare $release cannot be made here"; }
  echo "== $release, $(. "$root/etc/os-release" && echo "$PRETTY_NAME"): made in $((SECONDS - begin)) s"
  mkdir -p "$root/test/wheels" "$root/test/models"
  cp -r models/reference "$root/test/models"
  cp -r python/tests "$root/test/python_tests"
  cp scripts/test_wheel_root.sh "$root/test"
  version=$(chroot "$root" python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')
  pip download --only-binary=:all: --python-version "$version" --platform manylinux_2_27_x86_64 \
    --platform manylinux_2_28_x86_64 --platform manylinux2014_x86_64 --platform manylinux_2_17_x86_64 \
    --dest "$work/downloads/$version" numpy pip setuptools wheel uv ||
    skip "pip cannot download what the wheel needs: $(tail -n 1 "$work/pip.log")"
  cp "$work/downloads/$version"/*.whl "$wheel" "$root/test/wheels"
  # Nothing outside: neither a network nor this machine's processes.
  unshare --mount --net --pid --fork --kill-child bash -c '
    mount --types proc proc "$0/proc" && mkdir -p "$0/dev/shm" &&
      mount --types tmpfs shm "$0/dev/shm" && ip link set lo up &&
      exec chroot "$0" /test/test_wheel_root.sh' "$root" ||
    fail "the wheel in a bare $release"
  rm -rf --one-file-system "$root"
done
echo "the wheel: all right in $*"
