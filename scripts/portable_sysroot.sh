#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes the folder that the portable build compiles and links against (packaging/portable): the
# headers and libraries of glibc 2.27, so that the result runs wherever glibc is not older, and the
# headers and static archives of this machine's dependencies (packages.txt). glibc comes from
# Ubuntu 18.04, each file checked by its SHA-256.
#
#   scripts/portable_sysroot.sh <folder>       nothing to do where it is complete
#
# UBUNTU_MIRROR: another mirror than http://archive.ubuntu.com/ubuntu. Downloads go the way that
# apt is configured to go (its proxies); they stay in <folder>/downloads.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/ubuntu_download.sh

mkdir -p "$1"
folder=$(realpath "$1")
sources=(scripts/portable_sysroot.sh packaging/portable/compat.c packaging/portable/compat.h
  packaging/portable/no_udev.c)
made=$(cat "${sources[@]}" | sha256sum)
[[ $(cat "$folder/made" 2>/dev/null) != "$made" ]] || exit 0

fail() { echo "$0: $*" >&2; exit 1; }
[[ $(uname -m) == x86_64 ]] || fail "the portable build is for x86_64, and this machine is $(uname -m)"
command -v dpkg-deb >/dev/null || fail "dpkg-deb is missing: the portable build needs Debian 12 or later"

root=$folder/root
prefix=$folder/dependencies
rm -rf "$root" "$prefix" "$folder/made"
mkdir -p "$root" "$prefix"/{include,lib/pkgconfig} "$folder/downloads"
ubuntu_download "$folder/downloads" >"$folder/files" <<PACKAGES
pool/main/g/glibc/libc6_2.27-3ubuntu1.6_amd64.deb 5b813d4512491cd8fb30b2eb9192349ee75ffe3c9f21ae136cc7b2429f70c3b2
pool/main/g/glibc/libc6-dev_2.27-3ubuntu1.6_amd64.deb 96ae7d2cf38f0547ca3cccb3344c8802fdf5bcd71c4b6d9aed09558ac8cc87db
pool/main/l/linux/linux-libc-dev_4.15.0-213.224_amd64.deb 06d9f16644d3a1b2ab7dd01730e833d516b6f575d975855f496eea6463fef2f6
PACKAGES
while read -r file; do
  dpkg-deb --extract "$file" "$root"
done <"$folder/files"

# The links of libraries are absolute, and would lead to this machine's glibc.
find "$root" -type l -lname '/*' | while read -r link; do
  ln -sfn "$(realpath --canonicalize-missing --relative-to="$(dirname "$link")" \
    "$root$(readlink "$link")")" "$link"
done
[[ -e $root/lib64/ld-linux-x86-64.so.2 ]] || ln -sfn lib/x86_64-linux-gnu "$root/lib64"
# Every machine has it; symbols of GCC 3.0 to 4.2 are all that is used.
cp --dereference /lib/x86_64-linux-gnu/libgcc_s.so.1 "$root/lib/x86_64-linux-gnu/"

# Headers of the dependencies, without those of glibc beside them.
for each in fmt yaml-cpp CLI nlohmann event2 evutil.h event.h unicode hwloc hwloc.h openssl pcre2.h \
  hiredis xxhash.h xxh3.h histedit.h editline; do
  [[ ! -e /usr/include/$each ]] || ln -s "/usr/include/$each" "$prefix/include/$each"
done
mkdir -p "$prefix/include/x86_64-linux-gnu"
for each in openssl hwloc event2; do  # what differs between architectures
  [[ ! -e /usr/include/x86_64-linux-gnu/$each ]] ||
    ln -s "/usr/include/x86_64-linux-gnu/$each" "$prefix/include/x86_64-linux-gnu/$each"
done
for each in yaml-cpp event_core event_extra pcre2-8 icuuc icudata hwloc ssl crypto hiredis xxhash; do
  archive=/usr/lib/x86_64-linux-gnu/lib$each.a
  [[ -e $archive ]] || fail "$archive is missing: run scripts/install_packages.sh"
  ln -s "$archive" "$prefix/lib/lib$each.a"
done
for each in edit bsd md tinfo; do  # of commands that edit lines
  archive=/usr/lib/x86_64-linux-gnu/lib$each.a
  [[ ! -e $archive ]] || ln -s "$archive" "$prefix/lib/lib$each.a"
done

# compiled <name>: a static library of packaging/portable/<name>.c
compiled() {
  clang-19 --sysroot="$root" -O2 -fPIC -Wall -Wextra -Wno-unused-command-line-argument \
    -ffile-prefix-map="$PWD"=. -c "packaging/portable/$1.c" -o "$folder/$1.o"
  ar -rcD "$prefix/lib/lib$1.a" "$folder/$1.o"
}
compiled compat
compiled no_udev

# package <name> <version's pkg-config name> <libraries>: what pkg-config says
package() {
  printf 'Name: %s\nDescription: %s, static\nVersion: %s\nCflags: -I%s\nLibs: -L%s %s\n' \
    "$1" "$1" "$(pkg-config --modversion "$1")" "$prefix/include" "$prefix/lib" "$2" \
    >"$prefix/lib/pkgconfig/$1.pc"
}
package hwloc "-lhwloc -lno_udev -lm"
package libevent_core "-levent_core"
package libevent_extra "-levent_extra -levent_core"
package libpcre2-8 "-lpcre2-8"
package icu-uc "-licuuc -licudata"
package libxxhash "-lxxhash"
package hiredis "-lhiredis"
[[ ! -e $prefix/lib/libedit.a ]] || package libedit "-ledit -lbsd -lmd -ltinfo"

# config <package> <target> <kind> <line...>: what find_package finds
config() {
  local folder=$prefix/lib/cmake/$1 name=$1 target=$2 kind=$3
  shift 3
  mkdir -p "$folder"
  {
    echo "add_library($target $kind IMPORTED GLOBAL)"
    echo "set_target_properties($target PROPERTIES"
    echo "  INTERFACE_INCLUDE_DIRECTORIES $prefix/include"
    printf '  %s\n' "$@"
    echo ")"
  } >"$folder/${name}Config.cmake"
}
# Debian has no static library of fmt.
config fmt fmt::fmt INTERFACE "INTERFACE_COMPILE_DEFINITIONS FMT_HEADER_ONLY=1"
config yaml-cpp yaml-cpp STATIC "IMPORTED_LOCATION $prefix/lib/libyaml-cpp.a" \
  "INTERFACE_COMPILE_DEFINITIONS YAML_CPP_STATIC_DEFINE"
config CLI11 CLI11::CLI11 INTERFACE
config nlohmann_json nlohmann_json::nlohmann_json INTERFACE
echo "$made" >"$folder/made"
