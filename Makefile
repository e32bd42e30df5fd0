# SPDX-License-Identifier: Apache-2.0
# The everyday commands; each is a script of scripts/ or one line. On Debian 12 they install the
# packages they need (scripts/packages.txt for the command, scripts/development_packages.txt and
# scripts/test_packages.txt for the rest).
.PHONY: help build demo test test-all test-others check-models test-integrations test-kv-events test-torch times soak soak-faults fuzz bench bench-balance figures docs install packages wheel test-packages format check tidy clean

help: ## list these commands
	@sed -n 's/^\([a-z%-]*\):.* ## /  make \1\t/p' Makefile | sed 's/%/NAME/' | expand -t 20

build: ## build the command, build/wideep
	@scripts/build.sh command

demo: build ## see what it does
	@demo/run.sh

test: ## build everything and run every unit test and whole-system test
	@scripts/test.sh release

test-all: test test-others ## the same, then the other builds: sanitizers, fuzz targets, gcc; and predictions

test-others: ## the other builds alone; or one of them: test-asan, test-fuzz, test-tsan, test-gcc, test-prediction
	@scripts/test.sh asan fuzz tsan gcc prediction

test-%: ## the tests of one room of src/, as test-ep; FILTER='Placement*' chooses among them
	@scripts/test.sh $*

check-models: ## compare random models of every family with transformers (COUNT=30 each, SEED=1, FAMILY=)
	@scripts/build.sh release model_test
	@scripts/check_models.sh build/tests/model_test build/check_models $(or $(COUNT),30) \
	  $(or $(SEED),1) $(FAMILY)

test-integrations: ## run vLLM's and SGLang's published policy modules and tests beside wideep's; downloads them
	@scripts/test_integrations.sh build/integrations

test-kv-events: build ## read KV events with vLLM's and SGLang's published structures; downloads them, about 1 GB
	@scripts/test_kv_events_peers.sh --all build/wideep build/kv_events_peers

test-torch: ## run the tests of tensors and the torch example beside wideep's engine; installs torch
	@scripts/build.sh release moe_layer
	@scripts/test_python.sh build/python
	@WIDEEP_INSTALL_TORCH=1 scripts/test_torch.sh build/python build/tests/moe_layer

times: ## where the time of the last build and of its tests went
	@scripts/build_times.py

soak: ## half an hour of random traffic and hostile clients with rebalancing on
	@scripts/soak.sh

soak-faults: ## kill processes and servers under load, 1260 times (KILLS=60 for each of 21 layouts)
	@scripts/soak_faults.sh $(KILLS)

fuzz: ## look for inputs that break a reader (FUZZ_SECONDS=60 for each)
	@scripts/fuzz.sh

bench: ## run the microbenchmarks
	@scripts/bench.sh

bench-balance: ## every figure on balancing: before, goal, now
	@scripts/bench_balance.sh

figures: build ## make the figures of docs/seeds.md again, into build/figures; minutes
	@scripts/figures.sh build/figures

docs: ## make the documentation site, build/docs/html; installs Sphinx from PyPI into build/docs/venv
	@scripts/docs_site.sh build/docs

install: build ## install command, library, manual pages, completions (PREFIX=/usr/local, DESTDIR=)
	@cmake --build build --target wideep_installed
	@DESTDIR="$(DESTDIR)" cmake --install build --prefix "$(or $(PREFIX),/usr/local)" --strip

packages: wheel ## make .deb, .rpm and .tar.zst of this distribution, and the wheel, in build/packages
	@scripts/packages.sh

wheel: ## make the wheel with the command, for every Linux with glibc 2.27, in build/packages
	@scripts/wheel.sh

test-packages: packages ## check the packages; run .deb, wheel and image in bare systems (needs root)
	@scripts/test_packages_deb.sh build/packages build/test_packages
	@scripts/test_unit_nspawn.sh build-packages/wideep models/reference build/test_unit || test $$? -eq 77
	@scripts/test_wheel.sh build/packages build/test_wheel
	@scripts/test_container.sh build/packages build/test_container || test $$? -eq 77
	@scripts/test_reproducible.sh build/test_reproducible

format: ## format the sources
	@scripts/install_packages.sh packages.txt development_packages.txt
	@git ls-files '*.h' '*.cc' | xargs clang-format-19 -i

check: ## check format, the order of the folders and Markdown
	@scripts/check.sh

tidy: ## read all sources with clang-tidy (an hour)
	@scripts/tidy.sh

clean: ## remove everything built
	rm -rf build build-*
