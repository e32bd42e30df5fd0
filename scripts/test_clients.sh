#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tests `wideep serve` with independent clients, and prints what docs/clients.md has: a row for each,
# with its version and what was tested. Exits with 77 and a line with the reason if none can be
# installed; a client that cannot is left out with a line. Installed ones stay in the work directory.
#
#   scripts/test_clients.sh [--all] <path of wideep> <work directory>
#
# Without --all only clients that are installed in seconds.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
all=false
if [[ ${1:-} == --all ]]; then all=true && shift; fi
wideep=$(realpath "$1")
work=$2
source "$root/scripts/testing.sh"

# The file in tests/clients/, and what pip installs for it: first the package whose version counts.
# "alone": in an environment of its own, for packages that want other versions than the rest.
clients=(
  "openai_client.py openai prometheus_client"
  "openai_types.py openai"
  "openai_responses.py openai"
  "anthropic_client.py anthropic"
)
more_clients=(
  "langchain_client.py langchain-openai"
  "litellm_client.py litellm"
  "pydantic_ai_client.py pydantic-ai-slim[openai]"
  "aiperf_client.py alone aiperf"
)
$all && clients+=("${more_clients[@]}")

# read_client <line of the list>: sets file, packages, and environment (a directory).
read_client() {
  read -r file packages <<<"$1"
  environment=$work/venv
  if [[ $packages == "alone "* ]]; then
    packages=${packages#alone }
    environment=$work/venv-${file%.py}
  fi
}

# install <line>: its packages, unless an earlier run has.
install() {
  read_client "$1"
  done_file=$work/installed/$file
  mkdir -p "$work/installed"
  [[ -f $done_file && $(cat "$done_file") == "$packages" ]] && return 0
  [[ -x $environment/bin/pip ]] || python3 -m venv "$environment" >/dev/null || return 1
  # shellcheck disable=SC2086  # several words
  if ! "$environment/bin/pip" --quiet --disable-pip-version-check install $packages \
      2>"$work/pip.log"; then
    echo "left out $file: pip cannot install $packages: $(tail -n 1 "$work/pip.log")"
    return 1
  fi
  echo "$packages" >"$done_file"
}

# row <line>: its package, version, and the first paragraph of its file.
row() {
  read_client "$1"
  # shellcheck disable=SC2086  # several words
  "$environment/bin/python" - "$root/tests/clients" "$file" $packages <<'END'
import ast, importlib.metadata, pathlib, sys
folder, file, package = sys.argv[1:4]
package = package.split("[")[0]
what = ast.get_docstring(ast.parse(pathlib.Path(folder, file).read_text())).split("\n\n")[0]
version = importlib.metadata.version(package)
print(f"| `{package}` | {version} | {' '.join(what.split())} | passed |")
END
}

make_environment
installed=()
for client in "${clients[@]}"; do
  if install "$client"; then installed+=("$client"); fi
done
((${#installed[@]} > 0)) || skip "pip installs no client"

start_server --ranks 2 --tool-call-parser hermes
rows=""
for client in "${installed[@]}"; do
  read_client "$client"
  "$environment/bin/python" "$root/tests/clients/$file" "$url" secret || fail "$file"
  rows+=$(row "$client")$'\n'
done

if command -v curl >/dev/null; then
  body='{"model": "reference", "prompt": "The sun is", "max_tokens": 4, "temperature": 0, "stream": true}'
  curl --silent --show-error --max-time 20 --no-buffer "$url/completions" \
    --header 'Authorization: Bearer secret' --header 'Content-Type: application/json' \
    --data "$body" | tail -n 2 | grep --quiet '^data: \[DONE\]$' || fail "curl"
  rows+="| \`curl\` | $(curl --version | cut --delimiter ' ' --fields 2 | head -n 1) | A stream. | passed |"$'\n'
fi

stop_server

echo "| client | version | what is tested | result |"
echo "|---|---|---|---|"
printf '%s' "$rows"

# The guide lists what was tested; versions go on.
while IFS='|' read -r _ name _ what _; do
  [[ -z $name ]] && continue
  grep --fixed-strings "|$name|" "$root/docs/clients.md" | grep --fixed-strings --quiet "|$what|" ||
    fail "docs/clients.md lacks the row of$name: put the rows above there"
done <<<"$rows"
