#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The chat page of `wideep serve` in headless Chromium: against the server, and with texts written
# beforehand, among them some that would run a script if they could. axe-core, which looks for what
# people with disabilities could not use, comes from a package of Python (a line says so where it
# cannot be had). Exits with 77 and a line with the reason if there is no Chromium.
#
#   scripts/test_chat_page.sh <path of wideep> <work directory> [folder for pictures]
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
wideep=$(realpath "$1")
mkdir -p "$2"
work=$(realpath "$2")
pictures=${3:+$(realpath "$3")}
source "$root/scripts/testing.sh"

command -v chromium >/dev/null || skip "no chromium"
command -v python3 >/dev/null || skip "no python3"
command -v curl >/dev/null || skip "no curl"

# The package is a zip file with axe.min.js in it.
axe=$work/axe.min.js
if [[ ! -s $axe ]]; then
  make_environment
  if pip download --no-deps --dest "$work" 'axe-playwright-python==0.1.7'; then
    python3 -c 'import sys, zipfile
archive = zipfile.ZipFile(sys.argv[1])
name = next(each for each in archive.namelist() if each.endswith("axe.min.js"))
open(sys.argv[2], "wb").write(archive.read(name))' "$work"/axe_playwright_python-*.whl "$axe"
  else
    echo "without axe-core: its package cannot be had"
  fi
fi

start_server --enable-return-routed-experts
grep -q "chat ${url%/v1}/; dashboard ${url%/v1}/dashboard" "$work/serve.log" ||
  skip "built without the page (WIDEEP_PAGE=OFF)"
rm -rf "$work/profile"
python3 "$root/tests/clients/chat_page.py" "${url%/v1}" secret "$work" \
  $([[ -s $axe ]] && echo --axe "$axe") ${pictures:+--pictures "$pictures"} || fail "the page"
stop_server
rm -rf "$work/profile"

start_server --no-ui
for path in / /dashboard /dashboard/data; do
  status=$(curl -s -o "$work/reply" -w '%{http_code}' -H 'Authorization: Bearer secret' "${url%/v1}$path")
  [[ $status == 404 ]] || fail "--no-ui: $path answers $status"
done
grep -q "dashboard" "$work/serve.log" && fail "--no-ui: the line names a page"
stop_server
