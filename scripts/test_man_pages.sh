#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The manual pages: mandoc and man find nothing wrong, apropos can read every name, each command has
# a page, the date follows $SOURCE_DATE_EPOCH, and the command itself accepts each example.
#
#   scripts/test_man_pages.sh <wideep> <work directory>
set -euo pipefail
wideep=$(realpath "$1")
work=$2
cd "$(dirname "$0")/.."
source scripts/testing.sh

for tool in mandoc lexgrog man; do
  command -v $tool >/dev/null || skip "no $tool (install mandoc and man-db)"
done
rm -rf "$work" && mkdir -p "$work/man1"
SOURCE_DATE_EPOCH=86400 "$wideep" man "$work/man1" || fail "wideep man"
grep -q '^\.TH WIDEEP 1 1970-01-02 ' "$work/man1/wideep.1" || fail "the date of wideep.1"
if SOURCE_DATE_EPOCH=soon "$wideep" man "$work/man1" 2>"$work/refused"; then
  fail "a date that is none is taken"
fi
grep -q SOURCE_DATE_EPOCH=soon "$work/refused" || fail "the line about SOURCE_DATE_EPOCH"

for page in "$work"/man1/*.1; do
  mandoc -Tlint -Wwarning "$page" || fail "mandoc: $page"
  lexgrog "$page" >/dev/null || fail "apropos cannot read the name of $page"
  LC_ALL=C.UTF-8 MANWIDTH=80 man --warnings -E UTF-8 -l "$page" >/dev/null 2>"$work/warnings"
  [[ ! -s $work/warnings ]] || fail "man: $page: $(head -n 1 "$work/warnings")"
  # The page's command is one: "wideep-balance-plan" is balance plan, or a name with a dash.
  [[ $(grep -c '^\.SH \(NAME\|SYNOPSIS\|OPTIONS\|EXIT STATUS\|SEE ALSO\)$' "$page") == 5 ]] ||
    fail "sections of $page"
  # Pages that a page names are there.
  while read -r name; do
    [[ -f $work/man1/$name.1 ]] || fail "$page names $name(1), which is no page"
  done < <(sed -n 's/^\.BR \(.*\) (1),\{0,1\}$/\1/p' "$page" | sed 's/\\-/-/g')
done

# With --help at its end the parser reads all values, and then stops.
examples=0
while read -r line; do
  read -ra words <<<"$line"
  "$wideep" "${words[@]:1}" --help >/dev/null || fail "example: $line"
  examples=$((examples + 1))
done < <(cat "$work"/man1/*.1 | sed -n '/^\.nf$/{n;p}' | sed 's/\\-/-/g')
((examples > 5)) || fail "only $examples examples"
echo "$(find "$work/man1" -name '*.1' | wc -l) pages, $examples examples"
