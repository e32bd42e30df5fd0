#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The packages: lintian finds no error, the .deb files install in a bare Debian of this release with
# nothing else than what they ask for, and the command answers there with the model of its package;
# the .rpm and the .tar.zst have the same files. Skipped (77) without root or the tools.
#
#   scripts/test_packages_deb.sh <directory of packages> <work directory>
set -euo pipefail
packages=$(realpath "$1")
mkdir -p "$2"
work=$(realpath "$2")
cd "$(dirname "$0")/.."
source scripts/testing.sh

for tool in lintian mmdebstrap dpkg-deb; do
  command -v $tool >/dev/null || skip "no $tool (scripts/package_packages.txt)"
done
[[ $EUID -eq 0 ]] || skip "not root: a bare system needs chroot"

lintian --fail-on error --tag-display-limit 0 "$packages"/*.deb >"$work/lintian.txt" 2>&1 || {
  cat "$work/lintian.txt"
  fail "lintian"
}
echo "lintian: no errors, $(grep -c '^W:' "$work/lintian.txt" || true) warnings"

for deb in "$packages"/*.deb; do
  dpkg-deb --control "$deb" "$work/control"
  [[ -s $work/control/md5sums ]] || fail "$deb has no md5sums"
  rm -rf "$work/control"
done

release=$(. /etc/os-release && echo "$VERSION_CODENAME")
root=$work/root
rm -f "$work/is_made"
install='DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends'
scripts/bare_root.sh "$release" "$root" --run 'mkdir "$1/packages"' \
  --run "cp '$packages'/*.deb \"\$1/packages\"" \
  --run "touch '$work/is_made'" \
  --run "chroot \"\$1\" sh -c '$install /packages/wideep_*.deb \
         /packages/wideep-model-reference_*.deb'" >"$work/root.log" 2>&1 || {
  tail -n 12 "$work/root.log"
  [[ ! -f $work/is_made ]] || fail "the packages cannot be installed"
  skip "a bare $release cannot be made here"
}
if chroot "$root" sh -c 'command -v cc || command -v clang || command -v gcc' >/dev/null; then
  fail "the packages bring a compiler"
fi
trap 'umount "$root/proc" "$root/dev/shm" 2>/dev/null || true' EXIT
mount -t proc proc "$root/proc"
mount -t tmpfs shm "$root/dev/shm" 2>/dev/null ||
  { mkdir -p "$root/dev/shm" && mount -t tmpfs shm "$root/dev/shm"; }
chroot "$root" wideep generate --model /usr/share/wideep/models/reference --prompt "Once upon a" \
  --max-tokens 8 >"$work/answer.txt" 2>"$work/answer.log" ||
  { tail "$work/answer.log"; fail "wideep generate in a bare $release"; }
[[ -s $work/answer.txt ]] || fail "wideep generate has no answer"
# What is in it of others.
for file in THIRD_PARTY.txt wideep.spdx.json; do
  [[ -s $root/usr/share/doc/wideep/$file ]] || fail "the .deb has no $file"
done
chroot "$root" dpkg --verify wideep wideep-model-reference |
  grep -v '/usr/share/\(man\|doc\)' && fail "files differ from md5sums"
echo "bare $release answers: $(grep -v '^---' "$work/answer.txt" | head -n 1)"

# The same files of the command in every format.
files() { sed 's,^\.,,' | grep '/bin/wideep$\|/share/man/.*\.gz$\|/monitoring/.' | sort; }
dpkg-deb --fsys-tarfile "$packages"/wideep_*.deb | tar -tf - | files >"$work/deb.txt"
for file in wideep_dashboard.json wideep_alerts.yaml prometheus.yaml; do
  grep -q "/usr/share/wideep/monitoring/$file\$" "$work/deb.txt" || fail "no $file in the package"
done
if compgen -G "$packages/wideep-[0-9]*.rpm" >/dev/null; then
  rpm -qlp "$packages"/wideep-[0-9]*.rpm 2>/dev/null | files >"$work/rpm.txt"
  diff "$work/deb.txt" "$work/rpm.txt" || fail "the .rpm has other files"
fi
for archive in "$packages"/*.tar.zst; do
  tar --zstd -tf "$archive" | sed 's,^[^/]*,/usr,' | files >"$work/archive.txt"
  diff "$work/deb.txt" "$work/archive.txt" || fail "$archive has other files"
done
echo "packages: the same files"
