# The build cache lies in the home directory, so that all checkouts of a machine share it and only a new machine pays
# for a cold build. Without a usable home directory it lies in ./target.
CACHE := $(shell mkdir -p "$(HOME)/.cache/holdfast" 2>/dev/null && test -w "$(HOME)/.cache/holdfast" && echo "$(HOME)/.cache/holdfast")
CARGO_TARGET_DIR ?= $(if $(CACHE),$(CACHE)/target,$(CURDIR)/target)
HOLDFAST_TOOLS ?= $(if $(CACHE),$(CACHE)/tools,$(CURDIR)/target/tools)
export CARGO_TARGET_DIR HOLDFAST_TOOLS

# RocksDB is compiled once for a machine (deploy/install/rocksdb.sh) and linked by every profile and build folder.
# A ROCKSDB_LIB_DIR outside the cache is somebody's own archive; one inside may be of another version than Cargo.lock's.
ROCKSDB_CACHE := $(or $(CACHE),$(CURDIR)/target)
ifeq ($(filter-out $(ROCKSDB_CACHE)/rocksdb%,$(ROCKSDB_LIB_DIR)),)
ROCKSDB_LIB_DIR := $(shell deploy/install/rocksdb.sh folder "$(ROCKSDB_CACHE)")
ROCKSDB_STATIC := 1
ROCKSDB := $(ROCKSDB_CACHE)
export ROCKSDB_LIB_DIR ROCKSDB_STATIC
endif

HOLDFAST := $(CARGO_TARGET_DIR)/release/holdfast
# Arguments for `make run`, for instance: make run ARGS="--volume disk0=10GiB --iscsi-port 3261"
ARGS ?=
CUTS ?= 20

.DEFAULT_GOAL := help
.PHONY: help run build print-binary env test vm-test soak bench bench-disk fmt lint deps test-tools vm-tools build-tools

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: build ## Build with optimisation and serve a volume on 127.0.0.1:3260, data in ./holdfast-data
	@exec "$(HOLDFAST)" dev $(ARGS)

build: deps ## Build the holdfast binary with optimisation
	@cargo build --locked --release -p holdfast-cli --bin holdfast

print-binary: ## Print where `make build` puts the binary
	@echo "$(abspath $(HOLDFAST))"

env: deps ## Print the settings with which cargo by itself uses the cache of make
	@printf 'export %s=%s\n' CARGO_TARGET_DIR "$(CARGO_TARGET_DIR)" HOLDFAST_TOOLS "$(HOLDFAST_TOOLS)" \
		ROCKSDB_LIB_DIR "$(ROCKSDB_LIB_DIR)" $(if $(ROCKSDB_STATIC),ROCKSDB_STATIC "$(ROCKSDB_STATIC)")

test: deps test-tools ## Everything that continuous integration runs
	@tests/gate.sh test

vm-test: deps vm-tools ## Power cuts of a virtual machine (CUTS=20); part of soak
	@HOLDFAST_POWER_CUTS=$(CUTS) tests/gate.sh vm

soak: deps vm-tools ## Everything at full counts with the optimised binary; writes docs/soak.md
	@tests/gate.sh soak

bench: build ## Compare with tgt on this machine (tests/bench/iscsi.sh); BENCH="--rounds 7" and the like
	@deploy/install/bench-tools.sh
	@tests/bench/iscsi.sh "$(HOLDFAST)" $(BENCH)

bench-disk: deps ## Compare the disk engine with fio in a folder: DIR=/var/tmp; BENCH="ROUNDS SECONDS" and the like
	@test -n "$(DIR)" || { echo "say where: make bench-disk DIR=/var/tmp" >&2; exit 2; }
	@deploy/install/bench-tools.sh
	@cargo bench --locked --quiet -p holdfast-store --bench fio -- "$(abspath $(DIR))" $(BENCH)

fmt: build-tools ## Format the sources
	@cargo fmt --all

lint: deps ## Format, clippy, documentation, licences: what `make test` checks before it runs tests
	@tests/gate.sh lint

deps: build-tools
	@$(if $(ROCKSDB),deploy/install/rocksdb.sh build "$(ROCKSDB)")

build-tools:
	@deploy/install/build-tools.sh

test-tools:
	@deploy/install/test-tools.sh

vm-tools:
	@deploy/install/vm-tools.sh
