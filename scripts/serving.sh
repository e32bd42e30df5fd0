# SPDX-License-Identifier: Apache-2.0
# Sourced by scripts that test a server. They set wideep (the command), work (a directory) and root.

skip() { echo "skipped: $*"; exit 77; }
fail() { echo "failed: $*"; [[ -f $work/serve.log ]] && tail -n 20 "$work/serve.log"; exit 1; }

# start_server <option...>: sets server (its process) and url (…/v1), once it answers.
start_server() {
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
  fail "the server does not begin"
}

stop_server() {
  kill -TERM $server
  wait $server || fail "the server ends with $?"
  trap - EXIT
}
