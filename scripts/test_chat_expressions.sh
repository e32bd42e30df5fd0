#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Compares random expressions of the filters, tests, operators and methods that chat templates use,
# with arguments of right and wrong types, with Python's jinja2. What is refused by name (a large
# integer in a sum, "%" of a text) is counted; it may be one in ten. Exits with 77 and a line with the reason
# if there is no jinja2 and it cannot be downloaded.
#
#   scripts/test_chat_expressions.sh <path of chat_test> <work directory> [<seed> [<count>]]
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
chat_test=$(realpath "$1")
work=$2
seed=${3:-1} count=${4:-4000}
source "$root/scripts/testing.sh"

make_environment
pip install jinja2==3.1.6 || skip "no jinja2: $(tail -n 1 "$work/pip.log")"
"$work/venv/bin/python" -W ignore "$root/tests/golden/chat/random_expressions.py" \
  "$seed" "$count" "$work/golden.json"
WIDEEP_CHAT_GOLDEN=$work/golden.json "$chat_test" --gtest_brief=1 \
  --gtest_filter='*RealTemplatesRenderLikeJinja' | tee "$work/chat_test.log"
refused=$(grep --count "refused by name" "$work/chat_test.log" || true)
if ((refused * 10 > count)); then exit 1; fi
echo "$((count - refused)) random expressions give the same output as with jinja2;" \
  "$refused are refused by name."
