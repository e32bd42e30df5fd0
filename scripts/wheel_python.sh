#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes the folder that the modules of the wheel are compiled against (packaging/wheel): nanobind's
# sources, and Python's headers of each version that needs a module of its own. No Python of these
# versions has to be here: a module is linked with no library of Python. All files are checked by
# their SHA-256. The headers are Ubuntu's of the first release of each; a version of Python keeps its
# ABI.
#
#   scripts/wheel_python.sh <folder>       nothing to do where it is complete
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/ubuntu_download.sh

mkdir -p "$1"
folder=$(realpath "$1")
made=$(cat scripts/wheel_python.sh packaging/wheel/nanobind.txt | sha256sum)
[[ $(cat "$folder/made" 2>/dev/null) != "$made" ]] || exit 0
# Also another version of nanobind: there is one wheel, and one .dist-info.
rm -rf "$folder"/{made,nanobind*,3.*,downloads/nanobind-*}

fail() { echo "$0: $*" >&2; exit 1; }

ubuntu_download "$folder/downloads" >"$folder/files" <<PACKAGES
pool/universe/p/python3.9/libpython3.9-dev_3.9.5-3ubuntu0~20.04.1_amd64.deb b46f3ee14f34019f6f9294338b3c2bc6042df2e6844a01f1dee163cba9ba1df7
pool/main/p/python3.10/libpython3.10-dev_3.10.4-3_amd64.deb 89246f12cdfb1fac7675bc94d5cc8b9c72320f152e855197668305c73c8588ec
pool/universe/p/python3.11/libpython3.11-dev_3.11.0~rc1-1~22.04.1_amd64.deb d2f067fe3eef056f722e815e35a8753af7ca8a1bb2f8386cddf275438980a7fc
pool/main/p/python3.12/libpython3.12-dev_3.12.3-1_amd64.deb f5924a06298ae0689128498276d3a555e02615a4ecfa8f4417d679a097586f35
PACKAGES
while read -r file; do
  version=${file##*/libpython}
  version=${version%%-dev_*}
  mkdir -p "$folder/$version"
  dpkg-deb --fsys-tarfile "$file" |
    tar -x --directory "$folder/$version" --strip-components 3 ./usr/include
  [[ -f $folder/$version/python$version/Python.h ]] || fail "$file has no Python.h"
done <"$folder/files"

python3 -m pip download --quiet --disable-pip-version-check --no-deps --require-hashes \
  --requirement packaging/wheel/nanobind.txt --dest "$folder/downloads" ||
  fail "pip cannot download what packaging/wheel/nanobind.txt names"
python3 - "$folder" <<'PYTHON'
import pathlib, sys, zipfile

folder = pathlib.Path(sys.argv[1])
(wheel,) = (folder / "downloads").glob("nanobind-*.whl")
zipfile.ZipFile(wheel).extractall(folder)
PYTHON
[[ -f $folder/nanobind/src/nb_combined.cpp ]] || fail "nanobind has no src/nb_combined.cpp"
echo "$made" >"$folder/made"
