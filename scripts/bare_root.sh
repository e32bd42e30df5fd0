#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes the root file system of a bare Debian or Ubuntu, for tests of packages: what its apt needs,
# and the packages that are named. Needs root and mmdebstrap. Packages come from the distribution's
# own archive, signed by its keys; nothing is installed on this machine.
#
#   scripts/bare_root.sh <release> <folder> [--run <command>]... [package...]
#
# <release> is a code name: bookworm, trixie, resolute (Ubuntu 26.04). <folder> is made, or made
# again where it is in build/ or this script has made it: no other folder is emptied. --run: a
# command of this machine, run as `sh -c <command> sh <folder>` while the root's apt still has its
# lists and the network. Whatever uses apt there must be run by chroot: this machine's apt would
# install the packages here, whatever its configuration names.
#
# A root without --run is kept as build/bare_roots/*.tar and made again from that.
# UBUNTU_MIRROR, DEBIAN_MIRROR: other mirrors.
set -euo pipefail
release=$1
mkdir -p "$(dirname "$2")"
folder=$(realpath --canonicalize-missing "$2")
shift 2
cd "$(dirname "$0")/.."
source scripts/ubuntu_download.sh

fail() { echo "$0: $*" >&2; exit 1; }
[[ $EUID -eq 0 ]] || fail "not root: a bare system needs chroot"
command -v mmdebstrap >/dev/null || fail "mmdebstrap is missing (scripts/package_packages.txt)"

options=(--variant=apt --quiet)
hooks=()
packages=()
while [[ $# -gt 0 ]]; do
  if [[ $1 == --run ]]; then
    hooks+=(--customize-hook="$2")
    shift
  else
    packages+=("$1")
  fi
  shift
done
[[ ${#packages[@]} -eq 0 ]] || options+=(--include="$(IFS=,; echo "${packages[*]}")")

cache=$PWD/build/bare_roots
mkdir -p "$cache"
case $release in
  bionic | focal | jammy | noble | plucky | questing | resolute)
    # Debian's package of Ubuntu's keys knows none of the younger releases.
    keyring=$(ubuntu_download "$cache" <<<"pool/main/u/ubuntu-keyring/ubuntu-keyring_2023.11.28.1build1_all.deb c377ccf26964f4c206c05c0bc7adb708e031beb919bb9a0ff63af983d064cd66")
    dpkg-deb --extract "$keyring" "$cache/ubuntu-keyring"
    options+=(--components=main,universe
      --keyring="$cache/ubuntu-keyring/usr/share/keyrings/ubuntu-archive-keyring.gpg")
    mirror=${UBUNTU_MIRROR:-http://archive.ubuntu.com/ubuntu}
    ;;
  *) mirror=${DEBIAN_MIRROR:-} ;;  # Debian's own, with its security updates
esac

# It is root that empties it: a wrong word must not cost a folder of another kind.
if [[ -e $folder && -n $(ls -A "$folder") && $folder != "$PWD"/build*/* ]]; then
  grep --quiet --line-regexp --fixed-strings -- "$folder" "$cache/folders" 2>/dev/null ||
    fail "$folder: expected none, an empty folder, or one that this script has made; remove it"
fi
echo "$folder" >>"$cache/folders"
umount "$folder/proc" "$folder/dev/shm" 2>/dev/null || true  # of a test that was killed
rm -rf --one-file-system "$folder"
if [[ ${#hooks[@]} -gt 0 ]]; then
  mmdebstrap "${options[@]}" "${hooks[@]}" "$release" "$folder" ${mirror:+"$mirror"}
  exit
fi
kept=$cache/$release-$(echo "${options[*]} $mirror" | sha256sum | cut -c 1-12).tar
if [[ ! -f $kept ]]; then
  mmdebstrap "${options[@]}" "$release" "$kept.new.tar" ${mirror:+"$mirror"}
  mv "$kept.new.tar" "$kept"
fi
mkdir -p "$folder"
tar -xf "$kept" --directory "$folder" --numeric-owner
