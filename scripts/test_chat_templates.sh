#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Compares the published chat templates of the model families that wideep runs with Python's jinja2,
# and checks that they show the formats of calls and reasoning.
# This repository does not contain them; they come from llama-cpp-python's source on PyPI, and from
# the folder $WIDEEP_CHAT_TEMPLATES, if it is set: *.jinja of further models. Exits with 77 and a
# line with the reason if they cannot be downloaded.
#
#   scripts/test_chat_templates.sh <path of chat_test> <work directory>
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
chat_test=$(realpath "$1")
work=$2
source "$root/scripts/testing.sh"

make_environment
pip install jinja2==3.1.6 scikit-build-core || skip "no jinja2: $(tail -n 1 "$work/pip.log")"
pip download --no-deps --no-build-isolation --no-binary llama-cpp-python --dest "$work" \
  llama-cpp-python==0.3.36 || skip "no llama-cpp-python: $(tail -n 1 "$work/pip.log")"

rm -rf "$work/templates"
mkdir "$work/templates"
for family in 'Qwen*' '*deepseek-r1*' '*DeepSeek-R1*' '*DeepSeek-V3.1*' '*Kimi-K2*' '*gpt-oss*' \
  'GLM-4*' 'MiniMax-M2*' '*granite-4*' 'LFM2*' 'tencent-Hy3*' 'meta-llama-Llama-3.3*'; do
  tar --extract --gzip --file "$work"/llama_cpp_python-*.tar.gz --directory "$work/templates" \
    --wildcards --transform 's|.*/||' "*/models/templates/$family.jinja"
done
if [[ -n ${WIDEEP_CHAT_TEMPLATES:-} ]]; then
  cp "$WIDEEP_CHAT_TEMPLATES"/*.jinja "$work/templates"
fi
"$work/venv/bin/python" "$root/tests/golden/chat/make_golden.py" --templates "$work/templates" \
  "$work/golden.json"
WIDEEP_CHAT_GOLDEN=$work/golden.json "$chat_test" --gtest_filter='*RealTemplates*' |
  tee "$work/chat_test.log"
WIDEEP_PUBLISHED_TEMPLATES=$work/templates "$(dirname "$chat_test")/answer_test" \
  --gtest_filter='*PublishedTemplates*'
if grep --quiet "refused by name" "$work/chat_test.log"; then exit 1; fi
echo "$(find "$work/templates" -type f | wc -l) published templates give the same output as with jinja2."
