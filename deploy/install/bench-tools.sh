#!/usr/bin/env bash
# Installs what the benchmarks compare with: tgt, the user-space iSCSI target of Debian, whose service is not needed, and fio.
set -euo pipefail
here=$(dirname "$0")
. "$here/apt.sh"

"$here/test-tools.sh"
mapfile -t missing < <(missing_packages tgt fio)
[ "${#missing[@]}" -gt 0 ] || exit 0
prepare_apt "the benchmarks" "${missing[@]}"
install_packages "${missing[@]}"
