#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# packaging/systemd/wideep@.service under a real systemd: a bare Debian of this release boots with
# systemd-nspawn, starts the service, asks it, kills the process that serves, drains it, and stops
# it within its grace. Needs root, the network, and some minutes: part of `make test-packages`.
# Skipped (77) without root or the tools.
#
#   scripts/test_unit_nspawn.sh <wideep> <model directory> <work directory>
#
# The program's libraries come from the packages that have them here, so it must be of this release.
# systemd-nspawn is taken out of its package where it is not installed: nothing here changes.
set -euo pipefail
wideep=$(realpath "$1") model=$(realpath "$2")
mkdir -p "$3"
work=$(realpath "$3")
cd "$(dirname "$0")/.."
source scripts/testing.sh

[[ $EUID -eq 0 ]] || skip "not root: a bare system needs chroot"
command -v mmdebstrap >/dev/null || skip "no mmdebstrap"
nspawn=$(command -v systemd-nspawn || true)
if [[ -z $nspawn ]]; then
  rm -f "$work"/systemd-container_*.deb  # another version's
  (cd "$work" && apt-get download systemd-container >/dev/null 2>&1 &&
    dpkg -x systemd-container_*.deb nspawn) || skip "no systemd-nspawn (Debian: systemd-container)"
  nspawn=$work/nspawn/usr/bin/systemd-nspawn
fi
"$nspawn" --version >/dev/null 2>&1 || skip "$nspawn does not run here"

release=$(. /etc/os-release && echo "$VERSION_CODENAME")
packages=$(ldd "$wideep" | awk '/=>/ { print $3 }' | while read -r library; do
  dpkg -S "$(realpath "$library")" 2>/dev/null || true
done | cut -d: -f1 | sort -u | paste -sd,)
root=$work/root
# A root of other packages lacks a library of this program.
if [[ $(cat "$root/made" 2>/dev/null) != "$release $packages" ]]; then
  rm -rf "$root"
  mmdebstrap --variant=minbase --quiet --include="systemd,systemd-sysv,dbus,procps,$packages" \
    "$release" "$root" >"$work/root.log" 2>&1 || {
    tail -n 5 "$work/root.log"
    skip "a bare $release cannot be made here"
  }
  echo "$release $packages" >"$root/made"
fi
rm -rf "$root/result" "$root/srv/models"
install -D "$wideep" "$root/usr/bin/wideep"
install -D -m 644 packaging/systemd/wideep@.service "$root/etc/systemd/system/wideep@.service"
mkdir -p "$root/srv/models" "$root/etc/wideep" "$root/result"
cp -r "$model" "$root/srv/models/m"
chmod -R a+rX "$root/srv"
printf 'model: /srv/models/m\nserved-model-name: m\nranks: 2\nport: 8000\n' \
  >"$root/etc/wideep/trial.yaml"
install -m 600 /dev/stdin "$root/etc/wideep/trial.key" <<<"secret"

# What runs inside. There is no HTTP client in a bare system but bash.
cat >"$root/trial.sh" <<'TRIAL'
#!/bin/bash
unit=wideep@trial
step() { echo "$1" >/result/step; }
ask() {  # METHOD PATH [BODY]: the reply
  exec 3<>/dev/tcp/127.0.0.1/8000 || return 1
  printf '%s\r\n' "$1 $2 HTTP/1.1" "Host: localhost" "Authorization: Bearer secret" \
    "Connection: close" "Content-Type: application/json" "Content-Length: ${#3}" "" >&3
  printf '%s' "$3" >&3
  cat <&3
  exec 3>&-
}
completion='{"model": "m", "prompt": "The cat", "max_tokens": 8}'
long='{"model": "m", "prompt": "The cat", "max_tokens": 20000, "ignore_eos": true}'
state() { systemctl show -P "$1" "$unit"; }
main() {
  set -e
  step "systemctl start does not return before it serves"
  systemctl start "$unit"
  [[ $(state ActiveState) == active ]]
  [[ $(state StatusText) == "serving m on "* ]]
  step "it is a user that exists for it alone, with a process that serves and two ranks"
  pid=$(state MainPID)
  [[ $(stat -c %u /proc/"$pid") -ge 61184 ]]
  [[ $(pgrep -P "$pid" | wc -l) == 3 ]]
  step "it answers with the key, and not without"
  ask POST /v1/completions "$completion" | grep -q '"text"'
  exec 3<>/dev/tcp/127.0.0.1/8000
  printf 'GET /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n' >&3
  cat <&3 | grep -q ' 401 '
  step "SIGHUP to all its processes drains"
  systemctl kill --signal=HUP "$unit"
  for ((i = 0; i < 50; ++i)); do
    ask GET /health | grep -q '"draining"' && break
    sleep 0.1
  done
  [[ $(state ActiveState) == active ]]
  [[ $(state StatusText) == draining* ]]
  ask POST /v1/completions "$completion" | grep -q ' 503 '
  ask DELETE /drain | grep -q ' 200 '
  step "the process that serves dies, and another one goes on"
  kill -KILL "$(pgrep -f -P "$pid" . -l | awk '/wideep-front/ { print $1 }')"
  ask POST /v1/completions "$completion" | grep -q '"text"'
  [[ $(state MainPID) == "$pid" && $(state NRestarts) == 0 ]]
  step "its signs of life are heard"
  before=$(state WatchdogTimestampMonotonic)
  sleep 25
  [[ $(state WatchdogTimestampMonotonic) != "$before" ]]
  step "the main process dies, and systemd starts it again"
  kill -KILL "$pid"
  for ((i = 0; i < 300; ++i)); do
    [[ $(state NRestarts) == 1 && $(state ActiveState) == active ]] && break
    sleep 0.1
  done
  ask POST /v1/completions "$completion" | grep -q '"text"'
  step "systemctl stop waits for what runs, and no longer than the grace"
  ask POST /v1/completions "$long" >/result/long &
  sleep 1
  began=$SECONDS
  systemctl stop "$unit"
  took=$((SECONDS - began))
  wait
  echo "stopped after $took s: $(state Result)" >/result/stop
  [[ $took -le 45 ]]
  [[ $(state Result) == success ]]
  [[ -z $(pgrep wideep) ]]
  step "done"
}
main >/result/log 2>&1
journalctl -u "$unit" -o cat --no-pager >/result/journal
systemctl show "$unit" >/result/state
sync
systemctl poweroff --force
TRIAL
chmod +x "$root/trial.sh"
cat >"$root/etc/systemd/system/trial.service" <<'UNIT'
[Service]
Type=oneshot
ExecStart=/trial.sh
[Install]
WantedBy=multi-user.target
UNIT
ln -sf ../trial.service "$root/etc/systemd/system/multi-user.target.wants/trial.service"

timeout 300 "$nspawn" --quiet --boot --directory="$root" --machine=wideep-trial --register=no \
  --keep-unit --private-network --resolv-conf=off --timezone=off >"$work/boot.log" 2>&1 || true
if [[ ! -s $root/result/step ]]; then
  tail -n 5 "$work/boot.log"
  skip "systemd does not boot here"
fi
if [[ $(<"$root/result/step") != "done" ]]; then
  tail -n 20 "$root/result/log" "$root/result/journal"
  fail "$(<"$root/result/step")"
fi
echo "systemd $(chroot "$root" systemctl --version | head -n 1 | cut -d' ' -f2) in a bare $release:" \
  "$(<"$root/result/stop")"
