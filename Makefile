# The build cache lies in the home directory, so that all checkouts of a machine share it and only a new machine pays
# for a cold build. Without a usable home directory it lies in ./target.
CACHE := $(shell mkdir -p "$(HOME)/.cache/holdfast" 2>/dev/null && test -w "$(HOME)/.cache/holdfast" && echo "$(HOME)/.cache/holdfast")
CARGO_TARGET_DIR ?= $(if $(CACHE),$(CACHE)/target,$(CURDIR)/target)
HOLDFAST_TOOLS ?= $(if $(CACHE),$(CACHE)/tools,$(CURDIR)/target/tools)
export CARGO_TARGET_DIR HOLDFAST_TOOLS

HOLDFAST := $(CARGO_TARGET_DIR)/release/holdfast
# Arguments for `make run`, for instance: make run ARGS="--volume disk0=10GiB --iscsi-port 3261"
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help run build print-binary test soak bench fmt lint test-tools build-tools

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: build ## Build with optimisation and serve a volume on 127.0.0.1:3260, data in ./holdfast-data
	@exec "$(HOLDFAST)" dev $(ARGS)

build: build-tools ## Build the holdfast binary with optimisation
	@cargo build --locked --release -p holdfast-cli --bin holdfast

print-binary: ## Print where `make build` puts the binary
	@echo "$(abspath $(HOLDFAST))"

test: build-tools test-tools ## Everything that continuous integration runs
	@tests/gate.sh test

soak: build-tools test-tools ## Everything at full counts with the optimised binary; writes docs/soak.md
	@tests/gate.sh soak

bench: build ## Compare with tgt on this machine (tests/bench/iscsi.sh); BENCH="--rounds 7" and the like
	@deploy/install/bench-tools.sh
	@tests/bench/iscsi.sh "$(HOLDFAST)" $(BENCH)

fmt: build-tools ## Format the sources
	@cargo fmt --all

lint: build-tools ## Format, clippy, documentation, licences: what `make test` checks before it runs tests
	@tests/gate.sh lint

build-tools:
	@deploy/install/build-tools.sh

test-tools:
	@deploy/install/test-tools.sh
