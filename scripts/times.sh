#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# How long a newcomer and a developer wait: times, on this machine, in a fresh clone of what is
# committed and without a compiler cache, what docs/building.md lists. Twenty minutes on two cores.
#
#   scripts/times.sh [folder of the clone, which must not exist]
#
# WIDEEP_DATA_DIR: as for the tests. Nothing else should run on the machine.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
work=${1:-$(mktemp --directory --dry-run)}
export CCACHE_DISABLE=1
rows=()

# timed <title> <command...>: what it prints goes to <clone>.log
timed() {
  local title=$1 start=$EPOCHREALTIME seconds
  shift
  "$@" >>"$work.log" 2>&1 || { tail -n 30 "$work.log" >&2 && exit 1; }
  seconds=$(awk "BEGIN {printf \"%.1f\", $EPOCHREALTIME - $start}")
  rows+=("$(printf '%8s s  %s' "$seconds" "$title")")
  echo "${rows[-1]}"
}

# edit <file>: as little as a compiler must see
edit() { echo "// $EPOCHREALTIME" >>"$1"; }

start=$SECONDS
git clone --quiet "$root" "$work"
cd "$work"
scripts/install_packages.sh packages.txt development_packages.txt test_packages.txt
echo "$(nproc) cores; the packages, where any was missing: $((SECONDS - start)) s"

timed "make demo, from nothing" make demo
timed "make demo, again" make demo
rm -rf build
timed "make test, from nothing" make test
timed "make test, nothing changed" make test
for file in exchange/placement/placement exchange/ep/dispatch_sender engine/schedule/scheduler \
  engine/model/model serve/api/openai_request; do
  edit "src/$file.cc"
  room=$(basename "$(dirname "$file")")
  timed "make test-$room, src/$file.cc changed" make "test-$room"
done
edit src/engine/run/rank_group.cc
timed "make build, src/engine/run/rank_group.cc changed" make build
echo "What was printed meanwhile: $work.log"
