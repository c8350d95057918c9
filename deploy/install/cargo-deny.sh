#!/usr/bin/env bash
# cargo-deny.sh FOLDER: prints the path of cargo-deny; builds it into FOLDER when the machine has none.
set -euo pipefail
version=0.20.2
folder=${1:?usage: cargo-deny.sh FOLDER}

if command -v cargo-deny; then
    exit 0
fi
if [ ! -x "$folder/bin/cargo-deny" ]; then
    printf 'building cargo-deny %s (once for this machine)\n' "$version" >&2
    if ! cargo install --locked --quiet --version "$version" --root "$folder" cargo-deny >&2; then
        printf 'cargo-deny could not be built: the check of licences and sources cannot run\n' >&2
        exit 1
    fi
fi
printf '%s\n' "$folder/bin/cargo-deny"
