#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What scripts/test_wheel.sh runs in a bare system, which has Python, the folder /test and no network
# but its own: installs the wheel, asks the command for text and for a served answer, and calls the
# library. Prints one line for each.
#
#   /test/test_wheel_root.sh
set -eu

fail() { echo "failed: $*"; exit 1; }
for each in cc gcc clang c++; do
  ! command -v $each >/dev/null || fail "the bare system has a compiler, $each"
done
export HOME=/root LC_ALL=C.UTF-8 PIP_NO_INDEX=1 PIP_FIND_LINKS=/test/wheels PIP_DISABLE_PIP_VERSION_CHECK=1
wheel=$(echo /test/wheels/wideep-*.whl)
model=/test/models/reference
seconds() { date +%s.%N; }
since() { echo "$1 $(seconds)" | awk '{printf "%.1f s", $2 - $1}'; }

begin=$(seconds)
python3 -m venv /venv
/venv/bin/pip install --quiet "$wheel" 2>/pip.log || { cat /pip.log; fail "pip install"; }
echo "$(python3 --version), pip $(/venv/bin/pip --version | cut -d ' ' -f 2): installed in $(since "$begin")"
begin=$(seconds)
version=$(/venv/bin/wideep --version) || fail "wideep --version"
echo "wideep --version: $version ($(since "$begin"))"
[ -f /venv/share/man/man1/wideep-serve.1 ] || fail "no manual pages"

# The same text however it is called.
generate() {
  "$@" generate --model "$model" --prompt "Once upon a" --max-tokens 8 >/report.txt 2>/answer.log ||
    { tail /answer.log; fail "$* generate"; }
  sed '/^(token, expert) pairs/q' /report.txt >/answer.txt  # times follow
  grep -q '^Once upon a ..' /answer.txt || fail "$* generate: no answer"
}
begin=$(seconds)
generate /venv/bin/wideep
took=$(since "$begin")
mv /answer.txt /first.txt
generate /venv/bin/python -m wideep
cmp /first.txt /answer.txt || fail "python -m wideep answers otherwise"
echo "wideep generate, python -m wideep generate: $(grep -v '^---' /first.txt | head -n 1) ($took)"

begin=$(seconds)
/venv/bin/wideep serve --model "$model" --port 0 2>/serve.log &
server=$!
url=
for _ in $(seq 600); do
  url=$(grep -o 'http://127.0.0.1:[0-9]*/v1' /serve.log | head -n 1 || true)
  [ -z "$url" ] || break
  kill -0 $server || { tail /serve.log; fail "wideep serve has ended"; }
  sleep 0.1
done
[ -n "$url" ] || { tail /serve.log; fail "wideep serve does not start"; }
took=$(since "$begin")
/venv/bin/python - "$url" <<'PYTHON' || fail "a request of wideep serve"
import json, sys, urllib.request

body = {"model": "reference", "messages": [{"role": "user", "content": "Once upon a"}], "max_tokens": 8}
request = urllib.request.Request(
    sys.argv[1] + "/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
)
with urllib.request.urlopen(request, timeout=60) as reply:
    answer = json.load(reply)
assert answer["object"] == "chat.completion", answer
assert answer["usage"]["completion_tokens"] >= 1, answer
print("wideep serve: chat.completion,", answer["usage"]["completion_tokens"], "tokens", end="")
PYTHON
kill -TERM $server
wait $server || { tail /serve.log; fail "wideep serve ends with $?"; }
echo " (ready after $took)"

/venv/bin/python - <<'PYTHON' || fail "import wideep"
import numpy, wideep

load = numpy.array([[100.0, 50, 30, 20, 10, 5, 3, 2]])
plan = wideep.plan(load, num_slots=12, ep_size=4, split="weighted")
loads = wideep.imbalance(plan.placement, load, 4, shares=plan.shares)
assert plan.placement.shape == (1, 12) and float(loads[0]) < 0.05, (plan, loads)
print(f"import wideep: {wideep.__file__}, imbalance {float(loads[0]):.4f}")
PYTHON
/venv/bin/python -m unittest discover --start-directory /test/python_tests >/unittest.log 2>&1 ||
  { tail -n 30 /unittest.log; fail "the tests of the Python package"; }
echo "tests of the Python package: $(tail -n 1 /unittest.log), $(grep '^Ran' /unittest.log)"

if command -v pipx >/dev/null; then
  PIPX_HOME=/opt/pipx PIPX_BIN_DIR=/opt/bin pipx install "$wheel" >/pipx.log 2>&1 ||
    { tail -n 20 /pipx.log; fail "pipx install"; }
  [ "$(/opt/bin/wideep --version)" = "$version" ] || fail "the command that pipx installed"
  echo "pipx $(pipx --version): $(/opt/bin/wideep --version)"
else
  echo "no pipx here: not tried"
fi
if ls /test/wheels/uv-*.whl >/dev/null 2>&1; then
  /venv/bin/pip install --quiet uv 2>/pip.log || { cat /pip.log; fail "pip install uv"; }
  uv=$(/venv/bin/uv tool run --offline --no-index --find-links /test/wheels --from "$wheel" \
    wideep --version 2>/uv.log) || { cat /uv.log; fail "uvx"; }
  [ "$uv" = "$version" ] || fail "the command that uvx ran"
  echo "uvx ($(/venv/bin/uv --version)): $uv"
fi
