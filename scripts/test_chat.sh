#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# `wideep chat` on a pseudo terminal and through pipes: with its own engine, with a server, and with
# servers that misbehave. Exits with 77 and a line with the reason where there is no Python.
#
#   scripts/test_chat.sh <path of wideep> <work directory>
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
wideep=$(realpath "$1")
mkdir -p "$2"
work=$(realpath "$2")
source "$root/scripts/testing.sh"

command -v python3 >/dev/null || skip "no python3"

start_server
rm -rf "$work/state" "$work"/wideep-chat-*.log
python3 "$root/tests/clients/chat.py" "$wideep" "$root/models/reference" "$work" "$url" \
  "$root/tests/clients/wrong_server.py" || fail "the chat"
stop_server
