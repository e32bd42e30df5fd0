# SPDX-License-Identifier: Apache-2.0
# The everyday commands; each is a script of scripts/ or one line. On Debian 12 they install the
# packages they need (scripts/packages.txt).
.PHONY: help build demo test soak fuzz bench format check clean

help: ## list these commands
	@sed -n 's/^\([a-z]*\):.* ## /  make \1\t/p' Makefile | expand -t 16

build: ## build the command build/wideep and the tests
	@scripts/build.sh release

demo: build ## see what it does
	@demo/run.sh

test: ## run every test: release, sanitizers, fuzz targets, gcc (minutes)
	@scripts/test.sh

soak: ## half an hour of random traffic with rebalancing on
	@scripts/soak.sh

fuzz: ## look for inputs that break a reader (FUZZ_SECONDS=60 for each)
	@scripts/fuzz.sh

bench: ## run the microbenchmarks
	@scripts/bench.sh

format: ## format the sources
	@scripts/install_packages.sh
	@git ls-files '*.h' '*.cc' | xargs clang-format-19 -i

check: ## check format, clang-tidy, the order of the folders and Markdown
	@scripts/check.sh

clean: ## remove everything built
	rm -rf build build-*
