#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes the documentation site of docs/ and the other Markdown files that scripts/docs_site/ names,
# strictly: what Sphinx warns of, and a link or anchor that leads nowhere, is an error. Also the test
# of it; exits with 77 (skipped) if Python is missing or PyPI cannot be reached.
#
#   scripts/docs_site.sh <work directory>
#
# The site is in <work directory>/html, whole or as it was before; it needs no network, and works
# under any path. `cmake --install` takes it from build/docs.
set -euo pipefail
cd "$(dirname "$0")/.."

work=$1
source scripts/testing.sh

make_environment
work=$(realpath "$work")
venv=$work/venv/bin
"$venv/python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || skip "python3 is older than 3.11"
pip install --requirement scripts/docs_site/requirements.txt ||
  skip "pip cannot install scripts/docs_site/requirements.txt: $(tail -n 1 "$work/pip.log")"

"$venv/python" scripts/docs_site/prepare.py . "$work/source"
cp -r scripts/docs_site/conf.py scripts/docs_site/_static "$work/source/"
rm -rf "$work/doctrees" "$work/made"
WIDEEP_SOURCE=$PWD "$venv/sphinx-build" --quiet --fail-on-warning --keep-going --jobs auto \
  --doctree-dir "$work/doctrees" --builder html "$work/source" "$work/made" >/dev/null
rm -rf "$work/made/.buildinfo" "$work/made/_sources"
"$venv/python" scripts/docs_site/check.py "$work/made"
rm -rf "$work/html"
mv "$work/made" "$work/html"
echo "file://$work/html/index.html"
