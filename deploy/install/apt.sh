# Sourced by the install scripts: installs Debian packages as root or by sudo, or prints the line to run and stops.

apt_install=(apt-get install --yes --no-install-recommends)
as_root=()

# Prints the packages among "$@" that are not installed.
missing_packages() {
    local package
    for package in "$@"; do
        dpkg-query --show --showformat='${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed ||
            printf '%s\n' "$package"
    done
}

# prepare_apt WHAT_FOR PACKAGE...: finds out how to become root and refreshes the package lists.
prepare_apt() {
    local what_for=$1
    shift
    if [ "$(id -u)" -ne 0 ]; then
        if command -v sudo >/dev/null && { sudo -n true 2>/dev/null || [ -t 0 ]; }; then
            as_root=(sudo)
        else
            printf '%s needs Debian packages. As root, run:\n    apt-get update && %s\n' \
                "$what_for" "${apt_install[*]} $*" >&2
            exit 1
        fi
    fi
    printf 'installing for %s: %s\n' "$what_for" "$*" >&2
    "${as_root[@]}" apt-get update -qq
}

# install_packages ARGUMENT...: what apt-get install is given. After prepare_apt.
install_packages() {
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive "${apt_install[@]}" -qq "$@" >/dev/null
}

archive_versions() { apt-cache madison "$1" | awk -F'|' '{ gsub(/ /, "", $2); print $2 }' | sort -u; }

# newest_common_version PACKAGE PACKAGE...: the newest version that the archive has of all of them; nothing when there is none.
newest_common_version() {
    local common newest="" version package
    common=$(archive_versions "$1")
    for package in "${@:2}"; do
        common=$(comm -12 <(printf '%s\n' "$common") <(archive_versions "$package"))
    done
    while read -r version; do
        if [ -z "$newest" ] || dpkg --compare-versions "$version" gt "$newest"; then newest=$version; fi
    done <<<"$common"
    printf '%s' "$newest"
}
