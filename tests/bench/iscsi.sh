#!/usr/bin/env bash
# iscsi.sh HOLDFAST [ARGUMENT...]: measures `holdfast dev` beside tgt, both comparisons of docs/measurements.md:
#
#   null     a volume that drops writes and reads zeros, against tgt's null store: the iSCSI and SCSI path alone
#   tmpfs    a disk volume whose data directory is on tmpfs, against tgt on a file in tmpfs: through gRPC and the store
#
# HOLDFAST is the optimised binary. The arguments go to the judge, ../shared/accept/bench.py: --rounds 7, for instance, or
# --only 4k-qd32-read. COMPARISONS="null" runs one of the two. What is started here is taken down by its pid.
set -euo pipefail
cd "$(dirname "$0")/../.."
holdfast=${1:?usage: iscsi.sh HOLDFAST [ARGUMENT of bench.py]...}
shift
judge=${JUDGE:-../shared/accept/bench.py}
comparisons=${COMPARISONS:-null tmpfs}
tmpfs=${TMPFS:-/dev/shm}
[ -x "$holdfast" ] || { printf 'no binary at %s: make build\n' "$holdfast" >&2; exit 1; }
[ -f "$judge" ] || { printf 'no judge at %s: set JUDGE to where bench.py is\n' "$judge" >&2; exit 1; }
[ "$(stat --file-system --format=%T "$tmpfs")" = tmpfs ] || { printf '%s is not tmpfs: set TMPFS\n' "$tmpfs" >&2; exit 1; }
PATH=$PATH:/usr/sbin:/sbin

scratch=$(mktemp -d "$tmpfs/holdfast-bench.XXXXXX")
pids=()
take_down() {
    local pid
    for pid in "${pids[@]}"; do
        # tgtd stays when it is asked to go while it has a target.
        kill -9 "$pid" 2>/dev/null || continue
        wait "$pid" 2>/dev/null || true
    done
    rm -rf "$scratch"
}
trap take_down EXIT
trap 'exit 130' INT TERM

# wait_for WHAT COMMAND...: until the command succeeds, at most 30 s.
wait_for() {
    local what=$1 deadline=$((SECONDS + 30))
    shift
    until "$@" >/dev/null 2>&1; do
        [ "$SECONDS" -lt "$deadline" ] || { printf 'waited in vain for %s\n' "$what" >&2; cat "$scratch"/*.log >&2; exit 1; }
        read -r -t 0.05 <> <(:) || true
    done
}

field() { python3 -c 'import json, sys; v = json.load(open(sys.argv[1]))
for key in sys.argv[2:]: v = v[int(key) if key.isdigit() else key]
print(v)' "$@"; }

start_holdfast() {
    "$holdfast" dev --data-dir "$scratch/data" --iscsi-port 0 --volume null=4GiB,kind=null --volume disk=1GiB \
        >"$scratch/holdfast.log" 2>&1 &
    holdfast_pid=$!
    pids+=("$holdfast_pid")
    wait_for "holdfast dev" test -s "$scratch/data/cluster.json"
    holdfast_portal=$(field "$scratch/data/cluster.json" gateways 0 portal)
}

# tgtd with one target and two logical units: 1 is the null store, 2 a file in tmpfs. Its portal and its control socket are
# away from those of a tgtd that the machine may run.
control=$((20000 + $$ % 10000))
tgt_admin() { tgtadm -C "$control" --lld iscsi "$@"; }
start_tgt() {
    tgt_port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
    tgtd -f -C "$control" --iscsi "portal=127.0.0.1:$tgt_port" >"$scratch/tgtd.log" 2>&1 &
    tgt_pid=$!
    pids+=("$tgt_pid")
    wait_for tgtd tgt_admin --mode system --op show
    truncate --size 1G "$scratch/tgt.img"
    tgt_admin --mode target --op new --tid 1 --targetname iqn.2026-11.io.holdfast:tgt
    tgt_admin --mode logicalunit --op new --tid 1 --lun 1 --bstype null --backing-store "$scratch/tgt.img"
    tgt_admin --mode logicalunit --op new --tid 1 --lun 2 --backing-store "$scratch/tgt.img"
    tgt_admin --mode target --op bind --tid 1 --initiator-address ALL
}

compare() {
    local title=$1 volume=$2 lun=$3
    shift 3
    printf '\n== %s\n' "$title"
    # In the background, so that a signal is handled at once and not when the judge has ended.
    python3 "$judge" "ours=iscsi://$holdfast_portal/iqn.2026-11.io.holdfast:$volume/0" \
        "tgt=iscsi://127.0.0.1:$tgt_port/iqn.2026-11.io.holdfast:tgt/$lun" \
        --pids "ours=$holdfast_pid" --pids "tgt=$tgt_pid" --json "$scratch/$volume.json" "$@" &
    pids+=($!)
    wait $!
    python3 - "$scratch/$volume.json" <<'PYTHON'
import json, math, sys
cases = json.load(open(sys.argv[1]))
def mean(values): return math.exp(sum(map(math.log, values)) / len(values))
iops = [case["ratio"]["tgt"] for case in cases.values()]
cpu = [case["cpu_us_per_op"]["ours"] / case["cpu_us_per_op"]["tgt"] for case in cases.values()
       if case["cpu_us_per_op"]["ours"] and case["cpu_us_per_op"]["tgt"]]
print(f"geometric means over {len(cases)} cases: IOPS x{mean(iops):.2f} (lowest x{min(iops):.2f})"
      + (f", CPU x{mean(cpu):.2f} (highest x{max(cpu):.2f})" if cpu else ""))
PYTHON
}

start_holdfast
start_tgt
printf 'machine: %s, %s cores, Linux %s, tgt %s, %s\n' "$(awk -F': ' '/^model name/ { print $2; exit }' /proc/cpuinfo)" \
    "$(nproc)" "$(uname -r)" "$(tgtd --version 2>/dev/null || echo unknown)" "$(qemu-img --version | head -1)"
for comparison in $comparisons; do
    case $comparison in
        null) compare "null volume against tgt's null store" null 1 "$@" ;;
        tmpfs) compare "disk volume in tmpfs against tgt's file in tmpfs" disk 2 --fill "$@" ;;
        *) printf 'unknown comparison %s\n' "$comparison" >&2; exit 2 ;;
    esac
done
