# SPDX-License-Identifier: Apache-2.0
# Sourced by scripts that are tests. They set work (a directory); for a server also wideep (the
# command) and root.

skip() { echo "skipped: $*"; exit 77; }
fail() { echo "failed: $*"; [[ -f $work/serve.log ]] && tail -n 20 "$work/serve.log"; exit 1; }

# make_environment: makes a Python environment in $work/venv; pip <argument...> then uses it and
# writes its errors to $work/pip.log.
make_environment() {
  command -v python3 >/dev/null || skip "no python3"
  mkdir -p "$work"
  [[ -x $work/venv/bin/pip ]] || python3 -m venv "$work/venv" >/dev/null ||
    skip "python3 cannot make virtual environments (install python3-venv)"
}
pip() { "$work/venv/bin/pip" --quiet --disable-pip-version-check "$@" 2>"$work/pip.log"; }

# start_server <option...>: sets server (its process) and url (…/v1), once it answers.
start_server() {
  : >"$work/serve.log"  # an address of another server in it is none of this one
  WIDEEP_API_KEY=secret "$wideep" serve --model "$root/models/reference" --port 0 "$@" \
    2>"$work/serve.log" &
  server=$!
  trap 'kill -KILL $server 2>/dev/null || true' EXIT
  for _ in $(seq 300); do
    url=$(grep --only-matching 'http://127.0.0.1:[0-9]*/v1' "$work/serve.log" || true)
    [[ -z $url ]] || return 0
    kill -0 $server 2>/dev/null || fail "the server has ended"
    sleep 0.1
  done
  fail "the server does not start"
}

stop_server() {
  kill -TERM $server
  wait $server || fail "the server ends with $?"
  trap - EXIT
}
