#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Compares JSON schemas as grammars with Python's jsonschema, and patterns and formats with `re` and
# with jsonschema's checks of formats: random ones, with values that are valid and invalid, and texts
# that the grammars have made. Exits with 77 and a line with the reason if there is no jsonschema and
# it cannot be downloaded.
#
#   scripts/test_schemas.sh <path of grammar_test> <work directory> [<seed> [<count>]]
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
grammar_test=$(realpath "$1")
work=$2
seed=${3:-1} count=${4:-400}
source "$root/scripts/testing.sh"

make_environment
pip install jsonschema==4.26.0 rfc3339-validator==0.1.4 fqdn==1.6.0 ||
  skip "no jsonschema: $(tail -n 1 "$work/pip.log")"
make_schemas=$root/tests/golden/schemas/make_schemas.py
"$work/venv/bin/python" "$make_schemas" make "$seed" "$count" "$work/cases.json"
WIDEEP_SCHEMA_CASES=$work/cases.json WIDEEP_SCHEMA_SAMPLES=$work/samples.json "$grammar_test" \
  --gtest_brief=1 --gtest_filter='JsonSchema.AgreesWithJsonschema'
"$work/venv/bin/python" "$make_schemas" judge "$work/samples.json"
make_patterns=$root/tests/golden/schemas/make_patterns.py
"$work/venv/bin/python" "$make_patterns" make "$seed" "$count" "$work/patterns.json"
WIDEEP_PATTERN_CASES=$work/patterns.json WIDEEP_PATTERN_SAMPLES=$work/texts.json "$grammar_test" \
  --gtest_brief=1 --gtest_filter='PatternCases.*'
"$work/venv/bin/python" "$make_patterns" judge "$work/texts.json"
