#!/usr/bin/env bash
# The tests of `make test`, shared by two processes: one begins with those that need Spark. With arguments, one process.
set -u
cd "$(dirname "$0")/.."
PYTHON=.venv/bin/python

# No Java process lives long enough here for the second of Java's compilers to pay: it would take a third of their
# processor time. `make test-all` has both.
export SPARK_SUBMIT_OPTS="${SPARK_SUBMIT_OPTS:-} -XX:TieredStopAtLevel=1"
export SPARK_LAUNCHER_OPTS="${SPARK_LAUNCHER_OPTS:-} -XX:TieredStopAtLevel=1"

if [ $# -gt 0 ]; then
    exec "$PYTHON" -m pytest -m "not slow" "$@"
fi

# Many small homes are written; in memory, where there is room, no fsync waits for a disk.
memory=/tmp
if [ -w /dev/shm ] && [ "$(df --output=avail -k /dev/shm | tail -1)" -gt 4000000 ]; then memory=/dev/shm; fi
scratch=$(mktemp -d -p "$memory" millstream-tests-XXXXXX)
trap 'rm -rf "$scratch"' EXIT INT TERM
"$PYTHON" -m pytest -m "not slow" -n 2 --dist loadgroup --no-loadscope-reorder -p no:cacheprovider \
    --basetemp="$scratch/tests" --durations=25
