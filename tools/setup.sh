#!/bin/sh
# Makes, brings up to date or repairs .venv. `make setup` calls this when something has changed.
# PYTHON names the interpreter to use; without it the first 3.11 or 3.12 on the PATH is taken.
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

if ! is_usable; then
    create_venv
fi
: >"$unfinished"
say "Installing the packages of requirements.lock (a few minutes the first time)"
install_locked
rm "$unfinished"
say "Installing headrace"
install --no-deps --no-build-isolation --editable .
provide_java
provide_redis
