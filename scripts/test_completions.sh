#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Completions, asked for in the shells themselves: what bash, zsh and fish offer for beginnings of
# lines. A shell that is missing makes the test skipped, after the others have passed.
#
#   scripts/test_completions.sh <wideep> <work directory>
set -euo pipefail
wideep=$(realpath "$1")
work=$2
root=$(realpath "$(dirname "$0")/..")
source "$root/scripts/testing.sh"

rm -rf "$work" && mkdir -p "$work/here/models/tiny" "$work/here/notes" "$work/here/way/on" "$work/fpath"
work=$(realpath "$work")
touch "$work/here/models/tiny/config.json" "$work/here/a.gguf" "$work/here/b.txt" "$work/here/notes/c.txt"
"$wideep" completions bash >"$work/bash"
"$wideep" completions zsh >"$work/fpath/_wideep"
"$wideep" completions fish >"$work/fish"
if "$wideep" completions tcsh 2>"$work/refused"; then fail "completions for tcsh"; fi
grep -q 'zsh' "$work/refused" || fail "the line about tcsh does not name the shells that there are"
cd "$work/here"

# offers_<shell> <line>: the words that are offered at the line's end, sorted, on one line.
offers_bash() {
  bash --norc -c 'source "$1"; read -ra COMP_WORDS <<<"$2"; [[ $2 == *" " ]] && COMP_WORDS+=("")
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _wideep; printf "%s\n" "${COMPREPLY[@]}"' \
    bash "$work/bash" "$1"
}
offers_fish() {
  HOME=$work fish --no-config -c 'source $argv[1]; complete -C $argv[2]' "$work/fish" "$1" |
    cut -f 1 | sed 's,/$,,'
}
# In a terminal of its own, because zsh completes nowhere else. Every match is written to a file.
offers_zsh() {
  rm -f "$work/matches"
  HOME=$work zsh --no-rcs -c '
    zmodload zsh/zpty
    zpty shell zsh --no-rcs -i
    # The shell in the terminal: a key that writes the matches instead of inserting one.
    zpty -w shell "PROMPT=; unsetopt beep; fpath=($1/fpath \$fpath); autoload -Uz compinit; compinit -u -d $1/dump
compadd() { local -a found; [[ \$* == *-[OAD]* ]] || { builtin compadd -O found \"\$@\"; print -rl -- \$found >>$1/matches; }; builtin compadd \"\$@\"; }
done_it() { zle complete-word; print -r >$1/finished; }; zle -N done_it; bindkey \"^T\" done_it; print ready >$1/ready"
    for i in {1..100}; do [[ -e $1/ready ]] && break; sleep 0.1; zpty -r -t shell >/dev/null; done
    rm -f $1/finished
    zpty -w -n shell "$2"$(print "\C-t")
    for i in {1..100}; do [[ -e $1/finished ]] && break; sleep 0.1; zpty -r -t shell >/dev/null; done
    zpty -d shell' zsh "$work" "$1" >/dev/null 2>"$work/zsh.log" || true
  cat "$work/matches" 2>/dev/null || true
}

# expect <shell> <line> <words...>: exactly these.
expect() {
  local shell=$1 line=$2 found
  shift 2
  found=$("offers_$shell" "$line" | sed '/^$/d' | sort -u | xargs)
  [[ $found == "$*" ]] || fail "$shell: '$line' offers '$found', expected '$*'"
}
# contain <shell> <line> <words...>: these among others.
contain() {
  local shell=$1 line=$2 found each
  shift 2
  found=" $("offers_$shell" "$line" | sort -u | xargs) "
  for each in "$@"; do
    [[ $found == *" $each "* ]] || fail "$shell: '$line' does not offer $each, but$found"
  done
}

missing=
for shell in bash fish zsh; do
  if ! command -v $shell >/dev/null; then
    missing+=" $shell"
    continue
  fi
  expect $shell "wideep se" serve
  contain $shell "wideep " generate serve balance bench doctor
  contain $shell "wideep balance p" picture plan
  contain $shell "wideep serve --kv-cache-d" --kv-cache-dtype
  expect $shell "wideep quantize --to mx" mxfp4
  contain $shell "wideep serve --kv-cache-dtype " auto bf16 fp8
  # Models: no text file, no folder without a model in or below it.
  expect $shell "wideep quantize --model " a.gguf models way
  expect $shell "wideep serve " a.gguf models way
  expect $shell "wideep quantize --output no" notes
  echo "$shell completes"
done
[[ -z $missing ]] || skip "missing shells:$missing"
