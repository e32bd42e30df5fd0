#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs the missing Debian packages of the given lists; prints nothing if none is missing.
#
#   scripts/install_packages.sh [list...]     default: packages.txt
set -euo pipefail

cd "$(dirname "$0")"
lists=("${@:-packages.txt}")

names() { sed -e 's/#.*//' -e '/^[[:space:]]*$/d' "${lists[@]}" | awk '{print $1}' | sort -u; }

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  echo "$0: not a Debian system; install packages that correspond to these: $(names | xargs)" >&2
  exit 0
fi

installed() {
  dpkg-query --show --showformat='${db:Status-Status} ${Package}\n' | sed -n 's/^installed //p'
}

mapfile -t missing < <(comm -23 <(names) <(installed | sort -u))
[[ ${#missing[@]} -eq 0 ]] && exit 0

as_root=()
if [[ $EUID -ne 0 ]]; then
  if ! command -v sudo >/dev/null; then
    echo "$0: not root, and there is no sudo; install these as root: ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi

echo "Installing ${#missing[@]} Debian packages (takes minutes): ${missing[*]}"
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
  apt-get install -qq --yes --no-install-recommends "${missing[@]}" >/dev/null
