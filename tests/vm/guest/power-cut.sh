#!/bin/sh
# First program of the guest whose power is cut: mounts the data disk, starts storage node and gateway, and stays until the
# power goes. What the harness waits for and looks at are the lines that begin with "vm:".
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
exec >/dev/console 2>&1
holdfast=/payload/holdfast
storage=127.0.0.1:7401

fail() {
    echo "vm: failed: $*"
    sync
    poweroff -f
}

# wait_for FILE TEXT PID: until the log has the text; fails when the process ends before.
wait_for() {
    until grep -q "$2" "$1"; do
        kill -0 "$3" 2>/dev/null || { cat "$1"; fail "the process of $1 has ended"; }
        sleep 0.1
    done
}

mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /tmp
ip link set lo up
ip addr add 10.0.2.15/24 dev eth0
ip link set eth0 up

data=
for serial in /sys/block/vd*/serial; do
    [ "$(cat "$serial")" = data ] && data=$(basename "$(dirname "$serial")")
done
[ -n "$data" ] || fail "no data disk"
echo "vm: write cache: $(cat "/sys/block/$data/queue/write_cache")"
mkdir -p /data
mount -t ext4 "/dev/$data" /data || fail "the data disk cannot be mounted"

if grep -qw vm.check /proc/cmdline && "$holdfast" store check --help >/dev/null 2>&1; then
    if "$holdfast" store check /data/holdfast >/tmp/check 2>&1; then
        echo "vm: store check: clean"
    else
        cat /tmp/check
        fail "store check"
    fi
fi

export HOLDFAST_LOG=info NO_COLOR=1 RUST_BACKTRACE=1
"$holdfast" storaged --data-dir /data/holdfast --listen $storage --http-listen 127.0.0.1:7411 >/tmp/storaged 2>&1 &
storaged=$!
wait_for /tmp/storaged "grpc=" $storaged
if ! "$holdfast" volume list --endpoint $storage | grep -qw disk0; then
    # Only the first start makes it: a volume that is missing later was lost.
    grep -qw vm.first /proc/cmdline || fail "the volume is gone"
    "$holdfast" volume create disk0 64MiB --endpoint $storage || fail "volume create"
fi
"$holdfast" gateway --iscsi-listen 0.0.0.0:3260 --http-listen 127.0.0.1:7412 --storage $storage >/tmp/gateway 2>&1 &
gateway=$!
wait_for /tmp/gateway "portal=" $gateway
echo "vm: ready"

while kill -0 $storaged 2>/dev/null && kill -0 $gateway 2>/dev/null; do
    sleep 1
done
tail -n 40 /tmp/storaged /tmp/gateway
fail "a daemon has ended"
