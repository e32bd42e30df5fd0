#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# packaging/systemd/wideep@.service: systemd understands each line, rates its exposure "OK", and the
# command knows the options that it gives. Skipped (77) without systemd-analyze. Whether the service
# works: scripts/test_unit_nspawn.sh.
#
#   scripts/test_unit.sh <wideep> <work directory>
set -euo pipefail
wideep=$(realpath "$1")
mkdir -p "$2"
work=$(realpath "$2")
cd "$(dirname "$0")/.."
source scripts/testing.sh

command -v systemd-analyze >/dev/null || skip "no systemd-analyze (Debian: systemd)"
unit=packaging/systemd/wideep@.service

# With the program of this build, which need not be installed. The manual page is another's test.
sed -e "s,^ExecStart=/usr/bin/wideep,ExecStart=$wideep," -e '/^Documentation=/d' "$unit" \
  >"$work/wideep@.service"
sed "s,%i,trial,g" "$work/wideep@.service" >"$work/wideep@trial.service"
systemd-analyze verify --man=no --recursive-errors=no "$work/wideep@trial.service" \
  >"$work/verify.log" 2>&1 || { cat "$work/verify.log"; fail "systemd-analyze verify"; }
if grep "wideep@" "$work/verify.log"; then fail "systemd-analyze verify has something to say"; fi

# 5.0 is where "MEDIUM" begins; what is allowed here is what the unit reaches.
systemd-analyze security --offline=true --threshold=20 "$work/wideep@.service" \
  >"$work/security.log" 2>&1 || { tail -n 3 "$work/security.log"; fail "exposure above 2.0"; }
rated=$(grep -o 'exposure level for .*: [0-9.]* [A-Z]*' "$work/security.log")
[[ $rated == *" OK" || $rated == *" SAFE" ]] || fail "rated: $rated"

# The options of ExecStart are the command's.
options=$(grep '^ExecStart=' "$unit" | grep -o -- '--[a-z-]*')
help=$("$wideep" serve --help)
for option in $options; do
  grep -q -- "$option" <<<"$help" || fail "ExecStart has $option, which wideep serve does not have"
done

# The manager's patience is longer than the service's own.
seconds() { sed -n "s/^$1=//p" "$unit"; }
default() {
  grep -- "^ *$1 " <<<"$help" | grep -oE '=[0-9]+$' | tr -d = | grep . ||
    fail "no default of $1 in --help"
}
((TimeoutStopSec = $(seconds TimeoutStopSec), TimeoutStopSec > $(default --grace-seconds))) ||
  fail "TimeoutStopSec is no longer than --grace-seconds"
((WatchdogSec = $(seconds WatchdogSec), WatchdogSec >= $(default --timeout) + 15)) ||
  fail "WatchdogSec is not 15 s longer than --timeout"
echo "$rated"
