#!/usr/bin/env bash
# The tests of `make test`: those with Spark and those without, side by side on two cores. With arguments, one run of pytest.
set -u
cd "$(dirname "$0")/.."
PYTHON=.venv/bin/python

if [ $# -gt 0 ]; then
    exec "$PYTHON" -m pytest -m "not slow" "$@"
fi

other=$(mktemp)
trap 'kill %1 2>/dev/null; rm -f "$other"' EXIT INT TERM
"$PYTHON" -m pytest -m "not slow and not spark" -p no:cacheprovider >"$other" 2>&1 &
"$PYTHON" -m pytest -m "not slow and spark"
spark=$?
wait %1
rest=$?
echo
echo "---- the tests that need no Spark, which ran beside it ----"
cat "$other"
[ "$spark" -eq 0 ] && [ "$rest" -eq 0 ]
