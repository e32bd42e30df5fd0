#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes a root file system of packages: those given, and what they depend on, from the archive of
# the Debian release that runs here, which must be the one for which they were built. Packages are
# unpacked, not installed, into a directory; nothing of this machine changes, and no root is needed.
#
#   cluster/container/root_filesystem.sh <directory> <package.deb>...    the directory must not exist
#
# Of the packages given everything is kept but manuals, completions and units; of the others the
# shared libraries that these load, and licences: so there is no shell, no package manager, no
# interpreter, and nothing setuid. Each package that something was kept of is described in
# var/lib/dpkg/status.d, where scanners for vulnerabilities look. Files have the time
# SOURCE_DATE_EPOCH, if that is set.
set -euo pipefail
umask 022  # nobody must be able to read what root owns, whatever the umask of who builds
[[ $# -ge 2 ]] || { echo "usage: $0 <directory> <package.deb>..." >&2; exit 2; }
root=$1
[[ ! -e $root ]] || { echo "$root: expected no such file" >&2; exit 1; }
shift
for each in "$@"; do
  [[ -f $each ]] || { echo "$each: expected a package; scripts/packages.sh makes it" >&2; exit 1; }
done
for tool in apt-get dpkg-deb; do
  command -v $tool >/dev/null || { echo "expected $tool: packages come from Debian" >&2; exit 1; }
done
mkdir -p "$root"
root=$(realpath "$root")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
given=()
for each in "$@"; do given+=("$(realpath "$each")"); done

# To apt this is a system without packages, but for debconf, which asks questions when packages are
# configured: these never are. apt only downloads; the programs with which it could install are not
# there.
mkdir -p "$work/archives/partial"
printf '%s\n' "Package: debconf" "Status: install ok installed" "Version: 999" "Architecture: all" \
  "Provides: debconf-2.0" "Maintainer: nobody" "Description: not needed" "" >"$work/status"
apt-get --quiet --yes --no-install-recommends --download-only \
  -o Dir::State::status="$work/status" -o Dir::Cache::archives="$work/archives" \
  -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= -o Dir::Bin::dpkg=/bin/false \
  -o Debug::NoLocking=1 -o APT::Sandbox::User= install "${given[@]}" >"$work/log" 2>&1 || {
  tail -n 5 "$work/log" >&2
  echo "expected Debian's packages of this release; 'apt-get update' reads its lists" >&2
  exit 1
}

# All of them in one place, where Debian's /lib, /bin and so on are links into /usr.
mkdir "$work/all"
for directory in bin sbin lib lib64; do
  mkdir -p "$work/all/usr/$directory" "$root/usr/$directory"
  ln -s "usr/$directory" "$work/all/$directory"
  ln -s "usr/$directory" "$root/$directory"
done
for package in "${given[@]}" "$work/archives"/*.deb; do
  dpkg-deb --fsys-tarfile "$package" |
    tar --extract --keep-directory-symlink --no-same-owner --directory "$work/all"
done
given_files=$(for package in "${given[@]}"; do dpkg-deb --fsys-tarfile "$package" | tar --list; done |
  grep --invert-match -e '/$' -e '/share/man/' -e completion -e /share/zsh/ -e /share/lintian/ \
    -e lib/systemd/ | sed 's,^\./,,' | sort)

# The libraries that the programs load, of these and not of this machine, and who loads them.
loader=$(find "$work/all/usr/lib64" "$work/all/usr/lib" -maxdepth 2 -name 'ld-linux*' | head -n 1)
directories=$(find "$work/all/usr/lib" -maxdepth 1 -name '*-linux-gnu*' -type d | paste -sd:)
for program in $(grep -E 'bin/|\.so(\.|$)' <<<"$given_files"); do
  "$loader" --inhibit-cache --library-path "$directories" --list "$work/all/$program" ||
    { echo "$program: expected it to start with the libraries of its packages" >&2; exit 1; }
done >"$work/list"
awk '$2 == "=>" { print $3 } $1 ~ /ld-linux/ { print $1 }' "$work/list" | sort -u >"$work/libraries"
if grep --invert-match "^$work/all/" "$work/libraries" | grep --invert-match ld-linux; then
  echo "expected the libraries above to be of the packages" >&2
  exit 1
fi
{
  cat "$work/libraries"
  find "$work/all/usr" -name 'ld-linux*'
} | while read -r library; do
  [[ $library == "$work/all"/* ]] || continue
  printf '%s\n' "$library" "$(realpath "$library")"
done | sed "s,^$work/all/,," | sort -u >"$work/needed"
sed 's,^\(s\?bin\|lib\|lib64\)/,usr/&,' <<<"$given_files" | sort -u - "$work/needed" |
  sed 's,^\(s\?bin\|lib\|lib64\)/,usr/&,' | sort -u >"$work/kept"

# Each package that something is kept of, with its licence and what it is.
mkdir -p "$root/var/lib/dpkg/status.d"
for package in "${given[@]}" "$work/archives"/*.deb; do
  name=$(dpkg-deb --field "$package" Package)
  dpkg-deb --fsys-tarfile "$package" | tar --list |
    sed -e 's,^\./,,' -e 's,^\(s\?bin\|lib\|lib64\)/,usr/&,' | sort -u |
    comm -12 - "$work/kept" >"$work/of_package"
  [[ -s $work/of_package ]] || continue
  mapfile -t paths <"$work/of_package"
  (cd "$work/all" && cp --parents --no-dereference --preserve=mode,timestamps,links \
    "${paths[@]}" "$root")
  mkdir -p "$root/usr/share/doc/$name"
  cp "$work/all/usr/share/doc/$name/copyright" "$root/usr/share/doc/$name/copyright"
  dpkg-deb --field "$package" >"$root/var/lib/dpkg/status.d/$name"
  (cd "$root" && while read -r path; do [[ -L $path ]] || md5sum "$path"; done <"$work/of_package") \
    >"$root/var/lib/dpkg/status.d/$name.md5sums"
done

# Texts of licences that the packages' copyright files name.
cp --recursive /usr/share/common-licenses "$root/usr/share/common-licenses"

# Where engines mount, and who is whom.
mkdir -p "$root"/{dev,proc,sys,run,tmp,etc/wideep,models}
chmod 1777 "$root/tmp"
printf '%s\n' root:x:0:0:root:/:/sbin/nologin nonroot:x:65532:65532:nonroot:/:/sbin/nologin \
  >"$root/etc/passwd"
printf '%s\n' root:x:0: nonroot:x:65532: >"$root/etc/group"
printf '%s\n' 'passwd: files' 'group: files' 'hosts: files dns' >"$root/etc/nsswitch.conf"
cp /etc/os-release "$root/etc/os-release"

[[ -z ${SOURCE_DATE_EPOCH:-} ]] ||
  find "$root" -print0 | xargs -0 touch --no-dereference --date="@$SOURCE_DATE_EPOCH"
