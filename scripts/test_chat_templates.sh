#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The published chat templates of the families that wideep runs, beside Python's jinja2. They are
# not ours to keep: llama-cpp-python's source on PyPI has them. Exits with 77, after a line that
# says why, where they cannot be had.
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
for family in 'Qwen*' '*deepseek-r1*' '*DeepSeek-R1*' '*DeepSeek-V3.1*' '*Kimi-K2*'; do
  tar --extract --gzip --file "$work"/llama_cpp_python-*.tar.gz --directory "$work/templates" \
    --wildcards --transform 's|.*/||' "*/models/templates/$family.jinja"
done
"$work/venv/bin/python" "$root/tests/golden/chat/make_golden.py" --templates "$work/templates" \
  "$work/golden.json"
WIDEEP_CHAT_GOLDEN=$work/golden.json "$chat_test" --gtest_filter='*RealTemplates*' |
  tee "$work/chat_test.log"
if grep --quiet "refused by name" "$work/chat_test.log"; then exit 1; fi
echo "$(find "$work/templates" -type f | wc -l) published templates are as jinja2 has them."
