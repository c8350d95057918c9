#!/usr/bin/env bash
# What building needs and a fresh Debian 12 machine may lack: a C and a C++ compiler (for the allocator and RocksDB),
# libclang (with which the Rust side of RocksDB reads its C header) and a Rust toolchain. Does nothing when all are there.
set -euo pipefail
. "$(dirname "$0")/apt.sh"

# bindgen loads libclang when it runs, and libclang needs the headers that belong to it (stddef.h and the like).
have_libclang() {
    [ -n "${LIBCLANG_PATH:-}" ] && return
    local folder found=""
    for folder in /usr/lib "/usr/lib/*-linux-gnu" "/usr/lib/llvm-*/lib"; do
        if compgen -G "$folder/libclang.so*" || compgen -G "$folder/libclang-[0-9]*.so*"; then found=yes; fi >/dev/null
    done
    [ -n "$found" ] || return
    compgen -G "/usr/lib/llvm-*/lib/clang/*/include/stddef.h" >/dev/null ||
        compgen -G "/usr/lib/clang/*/include/stddef.h" >/dev/null
}

# The libclang of Debian 12; elsewhere the newest that there is.
libclang_version() {
    local versions
    versions=$(apt-cache search --names-only '^libclang1-[0-9]+$' | sed -n 's/^libclang1-\([0-9]*\) .*/\1/p' | sort -n)
    if grep -qx 14 <<<"$versions"; then
        printf 14
    else
        tail -n 1 <<<"$versions"
    fi
}

packages=()
command -v cc >/dev/null || packages+=(gcc libc6-dev)
command -v c++ >/dev/null || packages+=(g++)
libclang=()
have_libclang || libclang=(libclang1-14 libclang-common-14-dev)
if [ "${#packages[@]}" -gt 0 ] || [ "${#libclang[@]}" -gt 0 ]; then
    prepare_apt "the build" "${packages[@]}" "${libclang[@]}"
    if [ "${#libclang[@]}" -gt 0 ]; then
        version=$(libclang_version)
        libclang=("libclang1-$version" "libclang-common-$version-dev")
    fi
    install_packages "${packages[@]}" "${libclang[@]}"
fi
if ! command -v cargo >/dev/null; then
    printf 'the build needs a Rust toolchain (1.89 or newer): https://rustup.rs says how to install one\n' >&2
    exit 1
fi
