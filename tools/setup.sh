#!/bin/sh
# Makes, brings up to date or repairs .venv. `make setup` calls this when something has changed.
# PYTHON names the interpreter to use; without it the first 3.11 or 3.12 on the PATH is taken.
# With the argument `native` it builds the Rust part alone, in the .venv that there is.
set -eu
cd "$(dirname "$0")/.."

venv=.venv
# There while .venv is being made or filled, so that what an interrupted run left behind is not trusted.
unfinished=$venv/.unfinished

say() {
    printf '%s\n' "$1"
}

fail() {
    printf 'setup: %s\n' "$1" >&2
    exit 1
}

# Shows what a command printed only if it fails.
quietly() {
    output=$("$@" 2>&1) || {
        printf '%s\n' "$output" >&2
        return 1
    }
}

is_supported() {
    "$1" -c 'import sys; sys.exit(sys.version_info[:2] not in [(3, 11), (3, 12)])' >/dev/null 2>&1
}

find_python() {
    if [ -n "${PYTHON:-}" ]; then
        is_supported "$PYTHON" || fail "PYTHON=$PYTHON is not a Python 3.11 or 3.12."
        say "$PYTHON"
        return
    fi
    for candidate in python3.11 python3.12 python3; do
        if is_supported "$candidate"; then
            say "$candidate"
            return
        fi
    done
    fail "no Python 3.11 or 3.12 on the PATH: install one, or name it with make setup PYTHON=/path/to/python."
}

# Debian's packages: installed where this runs as root.
install_system_package() {
    say "Installing the system package $1"
    quietly apt-get update || fail "apt-get update failed; its words are above."
    quietly env DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends "$1" ||
        fail "apt-get could not install $1; its words are above."
}

has_ensurepip() {
    "$1" -c 'import ensurepip, venv' >/dev/null 2>&1
}

# Debian keeps ensurepip, without which a virtual environment has no pip, in a package of its own.
require_ensurepip() {
    if has_ensurepip "$1"; then
        return
    fi
    package=$("$1" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
    if ! command -v apt-get >/dev/null; then
        fail "$1 has no ensurepip: install the package of your system that adds it, often called $package."
    fi
    if [ "$(id -u)" -ne 0 ]; then
        fail "$1 has no ensurepip: run sudo apt-get install $package, then this again."
    fi
    install_system_package "$package"
    has_ensurepip "$1" || fail "$1 has no ensurepip, even with $package: name another with make setup PYTHON=..."
}

has_java() {
    [ -n "${JAVA_HOME:-}" ] && [ -x "$JAVA_HOME/bin/java" ] || command -v java >/dev/null
}

# Spark and the servers of the tests run on Java. All else works without it, so its absence is only reported.
provide_java() {
    if has_java; then
        return
    fi
    package=openjdk-17-jre-headless
    if ! command -v apt-get >/dev/null; then
        say "There is no Java, which the tests need: install Java 17, or name it with JAVA_HOME."
    elif [ "$(id -u)" -ne 0 ]; then
        say "There is no Java, which the tests need: run sudo apt-get install $package."
    else
        install_system_package "$package"
    fi
}

# The tests of the Redis connector start one. All else works without it, so its absence is only reported.
provide_redis() {
    if command -v redis-server >/dev/null; then
        return
    fi
    package=redis-server
    if ! command -v apt-get >/dev/null; then
        say "There is no redis-server on the PATH, which the tests need: install Redis 6.2 or later."
    elif [ "$(id -u)" -ne 0 ]; then
        say "There is no redis-server, which the tests need: run sudo apt-get install $package."
    else
        # In a shell of its own, which alone ends if that fails.
        (install_system_package "$package") || say "So there is no redis-server, which the tests need."
    fi
}

# Rust and the linker that it calls. Nothing works without the native part, so their absence ends the set-up.
provide_rust() {
    wanted=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' native/Cargo.toml)
    if has_rust "$wanted"; then
        return
    fi
    if ! command -v apt-get >/dev/null; then
        fail "there is no Rust $wanted or later, or no C compiler: install both, cargo and cc have to be on the PATH."
    fi
    if [ "$(id -u)" -ne 0 ]; then
        fail "there is no Rust $wanted or later, or no C compiler: run sudo apt-get install rustc-web cargo-web gcc, then this again."
    fi
    install_system_package rustc-web
    install_system_package cargo-web
    hash -r
    has_rust "$wanted" || fail "there is no Rust $wanted, even with rustc-web and cargo-web: install it with rustup."
}

has_rust() {
    command -v cc >/dev/null && command -v cargo >/dev/null || return 1
    found=$(rustc --version 2>/dev/null | cut -d ' ' -f 2)
    [ -n "$found" ] && [ "$(printf '%s\n' "$1" "${found%%-*}" | sort -V | head -n 1)" = "$1" ]
}

# What takes longest, so it runs while packages are downloaded. What cargo says is kept until it ends.
start_native_build() {
    say "Building the Rust part (a few minutes the first time)"
    build_log=$(mktemp)
    (
        # All that the tests want too, so that nothing needs the network later.
        cargo fetch --quiet --locked --manifest-path native/Cargo.toml
        exec cargo build --release --locked --manifest-path native/Cargo.toml \
            --package headrace-load --package headrace-server
    ) >"$build_log" 2>&1 &
    build=$!
    trap 'kill "$build" 2>/dev/null || true; rm -f "$build_log"' EXIT
}

# Shows how far the build is, on a line of its own where somebody looks on.
finish_native_build() {
    crates=$(grep -c '^name = ' native/Cargo.lock)
    while [ -t 1 ] && kill -0 "$build" 2>/dev/null; do
        printf '\r  %s of about %s crates' "$(grep -c Compiling "$build_log" || true)" "$crates"
        sleep 1
    done
    [ ! -t 1 ] || printf '\r\033[K'
    wait "$build" || {
        cat "$build_log" >&2
        fail "cargo could not build the Rust part; its words are above."
    }
}

install_headrace() {
    say "Installing headrace"
    # maturin is looked for on the PATH.
    PATH="$PWD/$venv/bin:$PATH" CARGO_NET_OFFLINE=true install --no-deps --no-build-isolation --editable .
}

is_usable() {
    [ ! -e "$unfinished" ] && is_supported "$venv/bin/python" && "$venv/bin/python" -m pip --version >/dev/null 2>&1
}

create_venv() {
    python=$(find_python)
    require_ensurepip "$python"
    if [ -e "$venv" ]; then
        say "Removing a $venv that is unfinished or broken"
        rm -rf "$venv"
    fi
    say "Creating $venv with $("$python" --version)"
    mkdir "$venv"
    : >"$unfinished"
    quietly "$python" -m venv "$venv" || fail "$python could not create $venv; its words are above."
}

install() {
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-input "$@" ||
        fail "pip failed; its words are above."
}

# PySpark alone is published without a wheel, and is built, with what the rest of the lock has installed.
install_locked() {
    awk -v rest="$venv/wheels.lock" -v pyspark="$venv/pyspark.lock" \
        'BEGIN { part = rest } /^[^ #]/ { part = /^pyspark==/ ? pyspark : rest } { print >part }' requirements.lock
    install --require-hashes --only-binary :all: --requirement "$venv/wheels.lock"
    install --require-hashes --no-deps --no-build-isolation --use-pep517 --requirement "$venv/pyspark.lock"
}

if [ "${1:-}" = native ]; then
    provide_rust
    start_native_build
    finish_native_build
    install_headrace
    exit
fi
provide_rust
start_native_build
if ! is_usable; then
    create_venv
fi
: >"$unfinished"
say "Installing the packages of requirements.lock (a few minutes the first time)"
install_locked
rm "$unfinished"
finish_native_build
install_headrace
provide_java
provide_redis
