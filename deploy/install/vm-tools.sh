#!/usr/bin/env bash
# Installs what the tests in virtual machines need beyond test-tools.sh: qemu's system emulator, nbdkit for disks whose power
# can be cut, debootstrap for the guest's root. Does nothing when all are there.
set -euo pipefail
here=$(dirname "$0")
. "$here/apt.sh"

"$here/test-tools.sh"
mapfile -t missing < <(missing_packages qemu-system-x86 nbdkit debootstrap e2fsprogs cpio xz-utils ca-certificates)
[ "${#missing[@]}" -gt 0 ] || exit 0
prepare_apt "the virtual machines" "${missing[@]}"

# All of qemu's packages have to be of the very same version, and the archive may have moved on since qemu-utils came in: then
# the emulator comes in the version of qemu-utils where the archive still has it, else all go to the newest that it has of all.
packages=()
for package in "${missing[@]}"; do
    [ "$package" = qemu-system-x86 ] || packages+=("$package")
done
if [ "${#packages[@]}" -lt "${#missing[@]}" ]; then
    qemu=(qemu-system-x86 qemu-system-common qemu-utils qemu-block-extra)
    version=$(dpkg-query --show --showformat='${Version}' qemu-utils)
    if ! archive_versions qemu-system-x86 | grep -qxF "$version"; then
        version=$(newest_common_version "${qemu[@]}")
    fi
    if [ -z "$version" ]; then
        printf 'the package archive has qemu-system-x86 and qemu-utils in no common version\n' >&2
        exit 1
    fi
    packages+=(--allow-downgrades "${qemu[@]/%/=$version}")
fi
install_packages "${packages[@]}"
