#!/usr/bin/env bash
# The tests of `make test`: those with Spark and those without, side by side on two cores. With arguments, one run of pytest.
set -u
cd "$(dirname "$0")/.."
PYTHON=.venv/bin/python

# Without bytecode on disk every child process compiles all modules again: two thirds of a second each.
unset PYTHONDONTWRITEBYTECODE
# No Java process lives long enough here for the second of Java's compilers to pay: it would take a third of their
# processor time. `make test-all` has both.
export SPARK_SUBMIT_OPTS="${SPARK_SUBMIT_OPTS:-} -XX:TieredStopAtLevel=1"
export SPARK_LAUNCHER_OPTS="${SPARK_LAUNCHER_OPTS:-} -XX:TieredStopAtLevel=1"
# Two processes share two cores, and most tables have a few rows: threads of Polars would wait for one another.
export POLARS_MAX_THREADS="${POLARS_MAX_THREADS:-1}"

if [ $# -gt 0 ]; then
    exec "$PYTHON" -m pytest -m "not slow" "$@"
fi

other=$(mktemp)
# Many small homes are written; in memory, where there is room, no fsync waits for a disk.
memory=/tmp
if [ -w /dev/shm ] && [ "$(df --output=avail -k /dev/shm | tail -1)" -gt 4000000 ]; then memory=/dev/shm; fi
scratch=$(mktemp -d -p "$memory" millstream-tests-XXXXXX)
trap 'kill %1 2>/dev/null; rm -rf "$other" "$scratch"' EXIT INT TERM
# Temporary folders of tests too.
mkdir "$scratch/tmp"
export TMPDIR="$scratch/tmp"
options=(-p no:cacheprovider --durations=25)
"$PYTHON" -m pytest -m "not slow and not spark" "${options[@]}" --basetemp="$scratch/front" --lane "front:$scratch/claims" \
    >"$other" 2>&1 &
# Those with Spark, then others from the back, until both processes meet.
"$PYTHON" -m pytest -m "not slow" "${options[@]}" --basetemp="$scratch/back" --lane "back:$scratch/claims"
back=$?
wait %1
front=$?
echo
echo "---- from the front, while the tests above ran ----"
cat "$other"
[ "$back" -eq 0 ] && [ "$front" -eq 0 ]
