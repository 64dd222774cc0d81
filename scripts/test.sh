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
# The tests that follow those with Spark, so that both halves take as long.
later="tests/unit/kernels tests/unit/properties tests/unit/pipelines tests/sql/test_relations.py tests/sql/test_language.py
    tests/transcripts"
"$PYTHON" -m pytest -m "not slow and not spark" -p no:cacheprovider --basetemp="$scratch/beside" --durations=25 \
    $(printf -- '--ignore %s ' $later) >"$other" 2>&1 &
"$PYTHON" -m pytest -m "not slow and spark" -p no:cacheprovider --basetemp="$scratch/spark" --durations=25
spark=$?
echo "---- kernels, properties, pipelines, generated views and transcripts, while the others go on ----"
"$PYTHON" -m pytest -m "not slow and not spark" -p no:cacheprovider --basetemp="$scratch/later" --durations=10 $later
kernels=$?
wait %1
rest=$?
echo
echo "---- the tests that need no Spark, which ran beside it ----"
cat "$other"
[ "$spark" -eq 0 ] && [ "$kernels" -eq 0 ] && [ "$rest" -eq 0 ]
