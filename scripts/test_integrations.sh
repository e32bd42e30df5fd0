#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks wideep.integrations against the published packages of vLLM and SGLang: vLLM's own unit tests
# of its policy run against wideep's, and SGLang's algorithms are compared with wideep's call by call
# (its unit tests are in none of its packages). Neither engine runs: only the modules that plan are
# taken out of the packages, which pip downloads. Exits with 77 (skipped) where those, or torch,
# cannot be had.
#
#   scripts/test_integrations.sh <work directory>
#
# WIDEEP_GOLDEN_PYTHON chooses an interpreter that has torch; without it torch is installed, several
# GiB. VLLM_VERSION and SGLANG_VERSION choose other versions than those that are known to pass.
set -euo pipefail
cd "$(dirname "$0")/.."

source=$PWD
work=$(realpath -m "$1")
vllm=${VLLM_VERSION:-0.33.0}
sglang=${SGLANG_VERSION:-0.5.23}
source scripts/testing.sh

command -v python3 >/dev/null || skip "no python3"
make_environment
packages=$("$work/venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
if [[ -n ${WIDEEP_GOLDEN_PYTHON:-} ]]; then
  "$WIDEEP_GOLDEN_PYTHON" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
    >"$packages/with_torch.pth"
fi
"$work/venv/bin/python" -c 'import torch' 2>/dev/null || pip install torch ||
  skip "pip cannot install torch: $(tail -n 1 "$work/pip.log")"
# setuptools and after it: what pip needs to read the metadata of vLLM's source package.
requirements=(scikit-build-core nanobind numpy pytest setuptools setuptools-rust setuptools-scm
              jinja2 packaging wheel)
pip install --upgrade "${requirements[@]}" ||
  skip "pip cannot install ${requirements[*]}: $(tail -n 1 "$work/pip.log")"
pip install --no-build-isolation --no-deps --force-reinstall \
  --config-settings=build-dir="$work/build" . || fail "pip: $(tail -n 20 "$work/pip.log")"

mkdir -p "$work/packages"
[[ -f $work/packages/vllm-$vllm.tar.gz ]] ||
  VLLM_VERSION_OVERRIDE=$vllm VLLM_TARGET_DEVICE=empty pip download --no-deps --no-binary vllm \
    --no-build-isolation --dest "$work/packages" "vllm==$vllm" ||
  skip "pip cannot download vllm $vllm: $(tail -n 1 "$work/pip.log")"
compgen -G "$work/packages/sglang-$sglang-*.whl" >/dev/null ||
  pip download --no-deps --only-binary :all: --dest "$work/packages" "sglang==$sglang" ||
  skip "pip cannot download sglang $sglang: $(tail -n 1 "$work/pip.log")"

cd "$work"
venv/bin/python "$source/scripts/integrations/vllm_policy.py" "packages/vllm-$vllm.tar.gz" vllm
venv/bin/python "$source/scripts/integrations/sglang_algorithms.py" packages/sglang-"$sglang"-*.whl \
  sglang
venv/bin/python -m unittest discover --start-directory "$source/python/tests"
