#!/usr/bin/env bash
# Installs what the benchmark compares with: tgt, the user-space iSCSI target of Debian. Its service is not needed.
set -euo pipefail
here=$(dirname "$0")
. "$here/apt.sh"

"$here/test-tools.sh"
mapfile -t missing < <(missing_packages tgt)
[ "${#missing[@]}" -gt 0 ] || exit 0
prepare_apt "the benchmark" "${missing[@]}"
install_packages "${missing[@]}"
