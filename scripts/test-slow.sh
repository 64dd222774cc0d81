#!/usr/bin/env bash
# One shard of the slow tests: scripts/test-slow.sh 3/40, or green:3/9 of those that are known to pass.
# MILLSTREAM_SEED replays the choices of a run that printed it.
set -u
cd "$(dirname "$0")/.."
PYTHON=.venv/bin/python
unset PYTHONDONTWRITEBYTECODE # or every child process compiles all modules again
export POLARS_MAX_THREADS="${POLARS_MAX_THREADS:-1}" # most tables have a few rows: threads would wait for one another

shard=${1:-}
if [ -z "$shard" ]; then
    shards=$("$PYTHON" -m tests.shards)
    known=$("$PYTHON" -m tests.shards green)
    echo "There are $shards shards of at most 15 minutes: make test-slow SHARD=1/$shards"
    echo "$known shards have the tests that are known to pass: make test-slow SHARD=green:1/$known"
    exit 2
fi
export MILLSTREAM_SEED="${MILLSTREAM_SEED:-$((RANDOM * 32768 + RANDOM))}"
replay="MILLSTREAM_SEED=$MILLSTREAM_SEED make test-slow SHARD=$shard"
echo "shard $shard of the slow tests; the command that repeats it: $replay"
"$PYTHON" -m pytest -m slow --shard "$shard" --hypothesis-seed="$MILLSTREAM_SEED" -p no:cacheprovider --durations=10
status=$?
[ "$status" -eq 0 ] || echo "shard $shard is red; the command that repeats it: $replay"
exit "$status"
