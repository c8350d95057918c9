#!/usr/bin/env bash
# image.sh: makes the image that all guests start from, once for a machine, and prints its folder:
#
#   kernel   of Debian bookworm, uncompressed: emulated, decompression takes longer than all the rest of a boot's beginning
#   initrd   busybox, the drivers of a virtual machine, and initramfs-init
#   root     an ext4 file system; guests share it read-only
#
# The folder's name has the hash of the recipe, which is this file, initramfs-init and the release: another recipe makes
# another folder. It appears whole or not at all. Wants root, because it runs the installation scripts of Debian packages.
set -euo pipefail
cd "$(dirname "$0")"
release=bookworm
mirror=${HOLDFAST_DEBIAN_MIRROR:-http://deb.debian.org/debian}
# The second line is for guests that are initiators.
packages=(systemd-sysv udev dbus kmod busybox-static iproute2 iputils-ping procps linux-image-amd64 strace
    open-iscsi multipath-tools sg3-utils fio e2fsprogs xfsprogs openssh-server)
modules=(virtio_pci virtio_blk virtio_net ext4 overlay)

export PATH=$PATH:/usr/sbin:/sbin
cache=${HOLDFAST_CACHE:-$HOME/.cache/holdfast}
recipe=$(cat image.sh initramfs-init <(printf '%s' "$release") | sha256sum | cut -c 1-12)
image=$cache/vm-$recipe

if [ -d "$image" ]; then
    printf '%s\n' "$image"
    exit 0
fi
as_root=()
if [ "$(id -u)" -ne 0 ]; then
    sudo -n true 2>/dev/null || { printf 'the image of the virtual machines can only be made by root or with sudo\n' >&2; exit 1; }
    as_root=(sudo)
fi

mkdir -p "$cache"
exec 9>"$cache/vm.lock"
flock 9
if [ -d "$image" ]; then # made while this one waited
    printf '%s\n' "$image"
    exit 0
fi

printf 'making the image of the virtual machines: some minutes, once for this machine\n' >&2
work=$(mktemp -d "$cache/vm-making.XXXXXX")
# debootstrap mounts /proc and /sys inside while it works; a folder with them in it must not be removed.
clean_up() {
    local inside
    while read -r inside; do "${as_root[@]}" umount "$inside" || return; done \
        < <(awk -v work="$work/" 'index($2, work) == 1 { print $2 }' /proc/mounts | sort -r)
    "${as_root[@]}" rm -rf --one-file-system "$work"
}
trap clean_up EXIT
list=$(IFS=,; printf '%s' "${packages[*]}")
"${as_root[@]}" debootstrap --variant=minbase --include="$list" "$release" "$work/tree" "$mirror" >"$work/log" 2>&1 ||
    { tail -n 30 "$work/log" >&2; exit 1; }

# Nothing of one guest may be the same in another by accident, and nothing may wait for a network that is not there.
"${as_root[@]}" rm -rf "$work/tree"/var/cache/apt/archives/*.deb "$work/tree"/var/lib/apt/lists/* "$work/tree"/etc/ssh/ssh_host_*
printf 'guest\n' | "${as_root[@]}" tee "$work/tree/etc/hostname" >/dev/null

kernel=$(cd "$work/tree/boot" && echo vmlinuz-*)
version=${kernel#vmlinuz-}
mkdir -p "$work/initrd"/{bin,modules} "$work/image"
cp "$work/tree/bin/busybox" "$work/initrd/bin/"
cp initramfs-init "$work/initrd/init"
chmod 755 "$work/initrd/init"
for module in "${modules[@]}"; do
    "${as_root[@]}" chroot "$work/tree" modprobe --set-version "$version" --ignore-install --show-depends "$module"
done | awk '$1 == "insmod" && !seen[$2]++ { print $2 }' | while read -r file; do
    cp "$work/tree$file" "$work/initrd/modules/"
    basename "$file"
done >"$work/initrd/modules/order"
(cd "$work/initrd" && find . | cpio --quiet --create --format=newc --owner=0:0) >"$work/image/initrd"
# The boot loader's code at the file's beginning is followed by the kernel, compressed by xz, and by other things.
packed="$work/tree/boot/$kernel"
offset=$(LC_ALL=C grep --text --byte-offset --only-matching --max-count=1 --perl-regexp '\xfd7zXZ\x00' "$packed" | cut -d: -f1 | head -n 1)
xz --decompress --single-stream --stdout < <(tail --bytes=+$((offset + 1)) "$packed") >"$work/image/kernel"
[ "$(head --bytes=4 "$work/image/kernel")" = $'\x7fELF' ] || { printf 'no kernel in %s\n' "$packed" >&2; exit 1; }
"${as_root[@]}" mke2fs -q -t ext4 -O ^has_journal -d "$work/tree" "$work/image/root" 3G
"${as_root[@]}" chown -R "$(id -u):$(id -g)" "$work/image"
sync --file-system "$work/image/root"
mv --no-target-directory "$work/image" "$image"
printf '%s\n' "$image"
