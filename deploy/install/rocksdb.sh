#!/usr/bin/env bash
# rocksdb.sh folder CACHE: prints the folder of the RocksDB archive that Cargo.lock asks for, built or not.
# rocksdb.sh build CACHE:  builds it there when it is not there yet.
#
# RocksDB is 300 C++ files, by far the longest part of a build, and cargo would compile them anew for every profile and
# every build folder. So they are compiled once for a machine; cargo links the archive when ROCKSDB_LIB_DIR names its
# folder and ROCKSDB_STATIC is set. The sources are those of the crate in Cargo.lock, and it is cargo that builds them.
set -euo pipefail
command=${1:?usage: rocksdb.sh folder|build CACHE}
cache=${2:?usage: rocksdb.sh folder|build CACHE}
cd "$(dirname "$0")/../.."

version=$(awk '$1 == "name" && $3 == "\"librocksdb-sys\"" { getline; gsub(/"/, "", $3); print $3; exit }' Cargo.lock)
if [ -z "$version" ]; then
    printf 'Cargo.lock has no librocksdb-sys\n' >&2
    exit 1
fi
# What is compiled in depends on the features.
features=$(sed -n '/^rocksdb = /s/.*features = \[\(.*\)\].*/\1/p' Cargo.toml | tr -d '" ' | tr ',' '-')
host=$(rustc -vV 2>/dev/null | awk '$1 == "host:" { print $2 }')
host=${host:-$(uname -m)-unknown-linux-gnu}
name=rocksdb-$version-$features-$host
folder=$cache/$name

case $command in
    folder)
        printf '%s/lib\n' "$folder"
        exit 0
        ;;
    build) ;;
    *)
        printf 'usage: rocksdb.sh folder|build CACHE\n' >&2
        exit 2
        ;;
esac

# The plain name is for people and their editors; make uses the exact one.
point_at_folder() {
    [ "$(readlink "$cache/rocksdb" 2>/dev/null)" = "$name" ] && return
    ln -sfn "$name" "$cache/rocksdb.$$" && mv -T "$cache/rocksdb.$$" "$cache/rocksdb"
}

if [ -f "$folder/lib/librocksdb.a" ]; then
    point_at_folder
    exit 0
fi

# One build at a time; who waited finds the archive there.
mkdir -p "$cache"
exec 9>"$cache/rocksdb.lock"
if ! flock -n 9; then
    printf 'waiting for another build of RocksDB\n' >&2
    flock 9
fi
if [ -f "$folder/lib/librocksdb.a" ]; then
    exit 0
fi

started=$SECONDS
printf 'building RocksDB %s with %s processes: once for this machine, 25 minutes with two cores\n' "${version#*+}" "$(nproc)" >&2
work=$cache/rocksdb.build
rm -rf "$work"
mkdir -p "$work/done/lib"
trap 'rm -rf "$work"' EXIT

# A library of the machine, or a compiler's flags for something else, must not get in.
unset ROCKSDB_LIB_DIR ROCKSDB_STATIC ROCKSDB_COMPILE
# No terminal: cargo's progress would hide that this takes long. The lock must not outlive this script in a child.
if ! CARGO_TARGET_DIR=$work/target cargo build --locked --quiet --release -p librocksdb-sys >&2 9>&-; then
    printf 'RocksDB could not be built; the compiler has said why above\n' >&2
    exit 1
fi
archives=("$work"/target/release/build/librocksdb-sys-*/out/librocksdb.a)
if [ "${#archives[@]}" -ne 1 ] || [ ! -s "${archives[0]}" ]; then
    printf 'building librocksdb-sys left no archive\n' >&2
    exit 1
fi
mv "${archives[0]}" "$work/done/lib/librocksdb.a"
rm -rf "$folder"
mv -T "$work/done" "$folder"
point_at_folder
printf 'built RocksDB in %d s: %s\n' $((SECONDS - started)) "$folder" >&2
