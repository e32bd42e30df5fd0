#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The manifests of cluster/kubernetes: against Kubernetes' published schemas, names and times against
# each other (tests/kubernetes/check_manifests.py), and as processes of this machine, with the
# arguments, options and probes that they have (run_manifests.py). Skipped (77) where PyPI cannot be
# reached, which has the schemas.
#
#   scripts/test_kubernetes.sh <wideep> <work directory>
set -euo pipefail
wideep=$(realpath "$1")
mkdir -p "$2"
work=$(realpath "$2")
cd "$(dirname "$0")/.."
source scripts/testing.sh

make_environment
"$work/venv/bin/python" -c 'import kubernetes_validate, jsonschema, yaml' 2>/dev/null ||
  pip install 'kubernetes-validate==1.37.*' jsonschema pyyaml || skip "pip cannot install the schemas"
"$work/venv/bin/python" tests/kubernetes/check_manifests.py || fail "the manifests"
rm -rf "$work/run"
"$work/venv/bin/python" tests/kubernetes/run_manifests.py "$wideep" models/reference "$work/run"
