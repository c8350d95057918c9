#!/usr/bin/env bash
# gate.sh lint|test|vm|soak: the one gate, the same on every machine.
#
#   lint   format, clippy and documentation with warnings denied, licences and sources of dependencies
#   test   lint, then unit, property and end-to-end tests
#   vm     only the tests that cut the power of virtual machines, with the optimised binary
#   soak   test and vm at the full counts, with the optimised binary; writes docs/soak.md
#
# Every step runs even when one before it failed; the last lines say what failed and how many tests ran.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
mode=${1:?usage: gate.sh lint|test|vm|soak}
target=${CARGO_TARGET_DIR:-$PWD/target}
tools=${HOLDFAST_TOOLS:-$target/tools}

scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
failed_steps=()

step() {
    local name=$1 started=$SECONDS
    shift
    printf '==> %s\n' "$name"
    if "$@"; then
        printf '    %s: ok, %d s\n' "$name" $((SECONDS - started))
    else
        printf '    %s: FAILED, %d s\n' "$name" $((SECONDS - started))
        failed_steps+=("$name")
    fi
}

format() {
    local files
    files=$(cargo fmt --all --check -- -l) && return
    printf '%s\nnot formatted: make fmt\n' "$files"
    return 1
}

documentation() { RUSTDOCFLAGS="-D warnings" cargo doc --locked --quiet --workspace --no-deps; }

licences() {
    local deny
    deny=$(deploy/install/cargo-deny.sh "$tools") || return 1
    "$deny" --log-level error check bans licenses sources
}

lint() {
    step "format" format
    step "clippy" cargo clippy --locked --quiet --workspace --all-targets -- -D warnings
    step "documentation" documentation
    step "licences and sources" licences
}

# The binary gets a name of its own: another checkout that shares the build folder may replace the built one.
build_binary() {
    local folder=debug
    [ "${#optimised[@]}" -gt 0 ] && folder=release
    cargo build --locked --quiet "${optimised[@]}" -p holdfast-cli --bin holdfast || return 1
    ln "$target/$folder/holdfast" "$scratch/holdfast" 2>/dev/null || cp "$target/$folder/holdfast" "$scratch/holdfast"
}

run_tests() {
    HOLDFAST_BIN=$scratch/holdfast HOLDFAST_SKIPPED=$scratch/skipped HOLDFAST_FIGURES=$scratch/figures \
        HOLDFAST_SOAK=$([ "$mode" = soak ] && echo 1 || echo 0) \
        cargo test --locked --workspace --no-fail-fast "${test_arguments[@]}" 2>&1 | tee "$scratch/tests"
}

# The same store without its syncs, in a build folder of its own, lest anybody takes it for the real one.
build_mutant() {
    cargo build --locked --quiet --target-dir "$target/mutants" -p holdfast-cli --bin holdfast --features mutant-skip-sync &&
        cp "$target/mutants/debug/holdfast" "$scratch/skip-sync"
}

# By themselves, because emulated machines and other tests would slow each other down until deadlines pass.
run_power_cuts() {
    local mutant=()
    [ ! -e "$scratch/skip-sync" ] || mutant=("HOLDFAST_MUTANT_SKIP_SYNC=$scratch/skip-sync")
    env HOLDFAST_BIN="$scratch/holdfast" HOLDFAST_SKIPPED="$scratch/skipped" HOLDFAST_FIGURES="$scratch/figures" HOLDFAST_VM=1 \
        "${mutant[@]}" cargo test --locked -p holdfast-tests --test e2e -- power_cut --test-threads=1 2>&1 |
        tee "$scratch/power-cuts"
}

power_cuts() {
    if grep -q '^mutant-skip-sync *=' cli/Cargo.toml; then
        step "build without syncs" build_mutant
    fi
    step "power cuts" run_power_cuts
}

# Sums the "test result:" lines of all test binaries.
sum_of() {
    awk -v what="$1" '/^test result:/ { for (i = 2; i <= NF; i++) if ($i ~ "^" what) sum += $(i - 1) } END { print sum + 0 }' \
        "$scratch/tests" "$scratch/power-cuts"
}

write_soak_report() {
    {
        printf '# Soak\n\nWritten by `make soak`: every test at its full count, with the optimised binary.\n\n'
        printf '| | |\n|---|---|\n'
        printf '| commit | %s |\n' "$(git describe --always --abbrev=40 --dirty 2>/dev/null || echo unknown)"
        printf '| date | %s |\n' "$(date -u '+%Y-%m-%d %H:%M UTC')"
        printf '| machine | %s, %s cores, %s MiB, Linux %s |\n' \
            "$(awk -F': ' '/^model name/ { print $2; exit }' /proc/cpuinfo)" "$(nproc)" \
            "$(awk '/^MemTotal/ { print int($2 / 1024) }' /proc/meminfo)" "$(uname -r)"
        printf '| duration | %d s |\n' "$SECONDS"
        printf '| tests | %d passed, %d failed, %d skipped |\n' "$passed" "$failed" "$skipped"
        [ "${#failed_steps[@]}" -eq 0 ] || printf '| failed steps | %s |\n' "${failed_steps[*]}"
        printf '\n## Figures\n\n| test | figure |\n|---|---|\n'
        sort "$scratch/figures" | awk -F'\t' '{ printf "| %s | %s |\n", $1, $2 }'
    } >docs/soak.md
    printf 'wrote docs/soak.md\n'
}

# What is tested is optimised in a soak; the tests themselves need not be.
optimised=()
test_arguments=()
case $mode in
    lint) ;;
    test) ;;
    vm) optimised=(--release) ;;
    soak) optimised=(--release) test_arguments=(-- --skip power_cut) ;;
    *)
        printf 'usage: gate.sh lint|test|vm|soak\n' >&2
        exit 2
        ;;
esac

touch "$scratch/skipped" "$scratch/figures" "$scratch/tests" "$scratch/power-cuts"
[ "$mode" = vm ] || lint
if [ "$mode" != lint ]; then
    step "build" build_binary
    [ "$mode" = vm ] || step "tests" run_tests
    case $mode in vm | soak) power_cuts ;; esac
    skipped=$(wc -l <"$scratch/skipped")
    failed=$(sum_of failed)
    passed=$(($(sum_of passed) - skipped))
    if [ "$skipped" -gt 0 ]; then
        printf '%d skipped:\n' "$skipped"
        sed 's/^/    /' "$scratch/skipped"
    fi
    [ "$passed" -gt 0 ] || failed_steps+=("no test ran")
    [ "$mode" = soak ] && write_soak_report
    [ "$mode" = vm ] && sed 's/\t/: /' "$scratch/figures"
fi
[ "${#failed_steps[@]}" -eq 0 ] || printf 'FAILED: %s\n' "$(IFS=,; echo "${failed_steps[*]}")"
[ "$mode" = lint ] || printf '%d passed, %d failed\n' "$passed" "$failed"
[ "${#failed_steps[@]}" -eq 0 ]
