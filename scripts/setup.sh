#!/usr/bin/env bash
# Prepares what Millstream needs to run here: Java 17 or newer, and .venv with the package and its tools.
# Called by `make setup`. Safe to run again: what is there is kept.
set -eu
cd "$(dirname "$0")/.."

VENV=.venv
APT_JAVA="openjdk-17-jre-headless openjdk-21-jre-headless default-jre-headless"

say()  { printf 'setup: %s\n' "$*"; }
fail() { printf 'setup: %s\n' "$@" >&2; exit 1; }

# ---- Java -----------------------------------------------------------------

java_command() {
    if [ -n "${JAVA_HOME:-}" ]; then printf '%s/bin/java' "$JAVA_HOME"; else printf 'java'; fi
}

java_major() {  # 17, 21 ...; 1 for Java 8; nothing where no Java answers
    "$(java_command)" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1
}

java_is_there() {
    major=$(java_major || true)
    [ -n "$major" ] && [ "$major" -ge 17 ]
}

as_root() {  # runs a command as root, or says no
    if [ "$(id -u)" = 0 ]; then "$@"
    elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then sudo -n "$@"
    else return 1
    fi
}

install_java() {
    command -v apt-get >/dev/null 2>&1 || return 1
    as_root true || return 1
    say "Java 17 or newer is missing; installing it with apt-get"
    as_root apt-get update -qq || return 1
    for package in $APT_JAVA; do
        if as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$package" >/dev/null; then
            return 0
        fi
    done
    return 1
}

need_java() {
    if ! java_is_there; then
        found=$(java_major || true)
        if [ -n "${JAVA_HOME:-}" ]; then
            fail "JAVA_HOME is $JAVA_HOME, which has no Java 17 or newer (found: ${found:-none})" \
                 "hint: point JAVA_HOME to one, or unset it to use the java on the PATH"
        fi
        install_java && java_is_there || fail \
            "Java 17 or newer is missing (found: ${found:-none}); Spark needs it" \
            "hint: Debian, Ubuntu: sudo apt-get install openjdk-17-jre-headless" \
            "      Fedora, RHEL:   sudo dnf install java-17-openjdk-headless" \
            "      macOS:          brew install openjdk@17, then set JAVA_HOME as brew says" \
            "      then run: make setup"
    fi
    say "Java $(java_major)"
}

# ---- Python ---------------------------------------------------------------

is_new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }

find_python() {
    for candidate in ${PYTHON:-} python3 python3.13 python3.12 python3.11 python3.14 python; do
        if is_new_enough "$candidate"; then printf '%s' "$candidate"; return 0; fi
    done
    return 1
}

need_venv() {
    if [ -e "$VENV" ] && [ -x "$VENV/bin/python" ]; then
        is_new_enough "$VENV/bin/python" || fail \
            "$VENV holds a Python older than 3.11, or one that is gone" \
            "hint: remove the folder $VENV and run: make setup"
    else
        python=$(find_python) || fail \
            "Python 3.11 or newer is missing" \
            "hint: install one (Debian, Ubuntu: python3.11 and python3.11-venv), or name it: make setup PYTHON=/path/to/python"
        say "making $VENV with $("$python" --version)"
        "$python" -m venv "$VENV" || fail \
            "$python cannot make a virtual environment" \
            "hint: on Debian and Ubuntu install the package python3-venv, then run: make setup"
    fi
    "$VENV/bin/python" -m pip --version >/dev/null 2>&1 || "$VENV/bin/python" -m ensurepip --upgrade >/dev/null
}

install_package() {
    say "installing millstream and its tools into $VENV (the first time takes a few minutes: Spark is large)"
    "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check --editable ".[dev]" || fail \
        "pip could not install the packages named in pyproject.toml; its message is above" \
        "hint: check the network and the free disk space (about 2 GB), then run: make setup"
}

need_java
need_venv
install_package
say "done; try: make demo"
