#!/usr/bin/env bash
# Installs the initiators and tools that the end-to-end tests drive. Does nothing when all are there.
set -euo pipefail
. "$(dirname "$0")/apt.sh"

mapfile -t missing < <(missing_packages libiscsi-bin qemu-utils qemu-block-extra sg3-utils e2fsprogs python3 strace)
[ "${#missing[@]}" -gt 0 ] || exit 0
prepare_apt "the tests" "${missing[@]}"

# qemu-utils loads its iSCSI driver from qemu-block-extra and wants it of the very same version. Where one of the two is
# there in a version that the archive does not have of the other, both go to the newest version that it has of both.
packages=()
for package in "${missing[@]}"; do
    [[ $package == qemu-* ]] || packages+=("$package")
done
if [ "${#packages[@]}" -lt "${#missing[@]}" ]; then
    version=$(newest_common_version qemu-utils qemu-block-extra)
    if [ -z "$version" ]; then
        printf 'the package archive has qemu-utils and qemu-block-extra in no common version\n' >&2
        exit 1
    fi
    packages+=(--allow-downgrades "qemu-utils=$version" "qemu-block-extra=$version")
fi
install_packages "${packages[@]}"
