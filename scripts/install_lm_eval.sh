#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs lm_eval (EleutherAI's lm-evaluation-harness) with its client for servers into a Python
# environment of its own, for `wideep bench accuracy`. Nothing happens if it is there already.
#
#   scripts/install_lm_eval.sh [<directory>]
#
# Default: $WIDEEP_LM_EVAL, or ~/.local/share/wideep/lm_eval, where the command looks for it.
set -euo pipefail

package='lm_eval[api]'
version=0.4.10
directory=${1:-${WIDEEP_LM_EVAL:-$HOME/.local/share/wideep/lm_eval}}

stop() { echo "error: $*" >&2; exit 1; }

command -v python3 >/dev/null || stop "no python3"
python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))' || stop "python3 is older than 3.10"
mkdir -p "$directory"
[[ -x $directory/bin/pip ]] || python3 -m venv "$directory" >/dev/null ||
  stop "python3 cannot make virtual environments (install python3-venv)"
if [[ ! -x $directory/bin/lm_eval || $(cat "$directory/version" 2>/dev/null) != "$version" ]]; then
  "$directory/bin/pip" --quiet --disable-pip-version-check install "$package==$version" \
    2>"$directory/pip.log" || stop "pip: $(tail -n 1 "$directory/pip.log")"
  echo "$version" >"$directory/version"
fi
echo "lm_eval $version is in $directory"
