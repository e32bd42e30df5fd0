#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the image of Containerfile from wideep's own package with buildah, podman or docker, the
# first that is there. No registry is needed: the image begins with nothing. Nor is root.
#
#   cluster/container/build.sh [name [package.deb...]]
#
# Default: localhost/wideep, of build/packages/wideep_*.deb, which scripts/packages.sh makes. With
# wideep-model-reference_*.deb as another package the image has that model, too, in
# /usr/share/wideep/models/reference. WIDEEP_BUILDER="buildah --root DIR" is another command that
# builds. SOURCE_DATE_EPOCH (the last commit's time, if it is not set) is the time of everything in
# it: the same packages give the same image with buildah and podman.
set -euo pipefail
here=$(realpath "$(dirname "$0")")
name=${1:-localhost/wideep}
shift || true
[[ $# -gt 0 ]] || set -- "$here"/../../build/packages/wideep_*.deb
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -C "$here" log -1 --format=%ct)}
export SOURCE_DATE_EPOCH
read -ra builder <<<"${WIDEEP_BUILDER:-}"
if [[ ${#builder[@]} -eq 0 ]]; then
  for each in buildah podman docker; do
    command -v $each >/dev/null && builder=("$each") && break
  done
fi
[[ ${#builder[@]} -gt 0 ]] || { echo "expected buildah, podman or docker" >&2; exit 1; }

context=$(mktemp -d)
trap 'rm -rf "$context"' EXIT
"$here/root_filesystem.sh" "$context/root" "$@"
tar --create --file "$context/root.tar" --directory "$context/root" --sort=name --numeric-owner \
  --owner=0 --group=0 --mtime="@$SOURCE_DATE_EPOCH" --format=gnu .
rm -rf "$context/root"
options=(--file "$here/Containerfile" --tag "$name" --build-arg
  "version=$(dpkg-deb --field "$1" Version)")
# docker reads the variable itself.
[[ ${builder[0]} == *docker ]] || options+=(--timestamp "$SOURCE_DATE_EPOCH")
"${builder[@]}" build "${options[@]}" "$context"
