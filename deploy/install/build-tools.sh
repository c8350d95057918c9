#!/usr/bin/env bash
# What building needs and a fresh Debian 12 machine may lack: a C compiler (for the allocator) and a Rust toolchain.
# Does nothing when both are there.
set -euo pipefail
. "$(dirname "$0")/apt.sh"

if ! command -v cc >/dev/null; then
    prepare_apt "the build" gcc libc6-dev
    install_packages gcc libc6-dev
fi
if ! command -v cargo >/dev/null; then
    printf 'the build needs a Rust toolchain (1.89 or newer): https://rustup.rs says how to install one\n' >&2
    exit 1
fi
