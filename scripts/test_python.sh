#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs the Python package as a user would, into an environment of its own, and runs its tests
# and its examples. Exits with 77 (skipped) if Python or the packages that build it are missing.
#
#   scripts/test_python.sh <work directory>
set -euo pipefail
cd "$(dirname "$0")/.."

source=$PWD
work=$1
source scripts/testing.sh

command -v python3 >/dev/null || skip "no python3"
python3 -c 'import sys; sys.exit(sys.version_info < (3, 9))' || skip "python3 is older than 3.9"
python3 -c 'import os, sysconfig
exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))' ||
  skip "no Python.h (python3-dev)"
make_environment
requirements=(scikit-build-core nanobind numpy)
pip install "${requirements[@]}" ||
  skip "pip cannot install ${requirements[*]}: $(tail -n 1 "$work/pip.log")"
# --no-build-isolation: with the packages just installed, so that a failure is one of wideep.
pip install --no-build-isolation --no-deps --force-reinstall \
  --config-settings=build-dir="$work/build" . || fail "pip: $(tail -n 20 "$work/pip.log")"

cd "$work"
venv/bin/python -m unittest discover --start-directory "$source/python/tests"
venv/bin/python "$source/examples/balancer.py"
venv/bin/python "$source/examples/online_repairer.py"
