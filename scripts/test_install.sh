#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs a finished build into a new folder, then builds and runs examples/ against it, as a
# program that embeds wideep would. The documentation site is there, too, if it was made.
#
#   scripts/test_install.sh <build directory> [argument of cmake...]
set -euo pipefail
cd "$(dirname "$0")/.."

build=$1
shift
work=$build/installed
rm -rf "$work"
cmake --install "$build" --prefix "$work/prefix" >/dev/null
site=$work/prefix/share/doc/wideep/html
[[ ! -d $build/docs/html ]] || python3 scripts/docs_site/check.py "$site"
# The command with its manual pages and completions, the model, and the library by pkg-config.
installed=$work/prefix
"$installed/bin/wideep" --version >/dev/null
for file in share/man/man1/wideep-serve.1 share/bash-completion/completions/wideep \
  share/fish/vendor_completions.d/wideep.fish share/wideep/models/reference/config.json \
  share/wideep/monitoring/{wideep_dashboard.json,wideep_alerts.yaml,prometheus.yaml}; do
  [[ -f $installed/$file ]] || { echo "not installed: $file" >&2; exit 1; }
done
# As if for a package: the files go below $DESTDIR, and the model and the library each alone.
for component in library model; do
  DESTDIR=$work/staged-$component cmake --install "$build" --prefix /usr \
    --component $component >/dev/null
done
[[ -f $work/staged-model/usr/share/wideep/models/reference/config.json ]] ||
  { echo "the component model has no model" >&2; exit 1; }
others=$(find "$work/staged-library" -type f ! -name 'libwideep.so.*')
[[ -z $others ]] || { echo "the component library has: $others" >&2; exit 1; }
if command -v pkg-config >/dev/null; then
  c=cc cxx=c++
  for argument; do
    case $argument in
      -DCMAKE_C_COMPILER=*) c=${argument#*=} ;;
      -DCMAKE_CXX_COMPILER=*) cxx=${argument#*=} ;;
    esac
  done
  directory=$(dirname "$(find "$installed" -name wideep.pc)")
  read -ra flags < <(PKG_CONFIG_PATH=$directory pkg-config --cflags --libs wideep)
  "$c" examples/balancer.c -o "$work/balancer_c" "${flags[@]}" \
    -Wl,-rpath,"$(dirname "$directory")" -lm
  "$work/balancer_c" >/dev/null
  read -ra flags < <(PKG_CONFIG_PATH=$directory pkg-config --cflags --libs wideep-cxx)
  "$cxx" -std=c++20 examples/balancer.cc -o "$work/balancer_cc" "${flags[@]}"
  "$work/balancer_cc" >/dev/null
fi
cmake -S examples -B "$work/examples" -G Ninja -DCMAKE_PREFIX_PATH="$work/prefix" "$@"
cmake --build "$work/examples"
ctest --test-dir "$work/examples" --output-on-failure
