"""A question over the history of a source that Spark cannot cancel is stopped all the same."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SCRIPT = """
import sys
import millstream as ms
from millstream.errors import LimitExceeded
from millstream.live.session import Session

with ms.open(sys.argv[1]) as home:
    session = home.session(start=False)
    say = lambda sql: [a.result.to_dicts() for a in session.execute(sql) if a.result is not None]
    say("CREATE SOURCE bids (a BIGINT, ts TIMESTAMP) FROM LOG('bids');"
        "INSERT INTO bids VALUES (1, TIMESTAMP '2026-01-01 00:00:00'), (2, TIMESTAMP '2026-01-01 00:00:01')")
    question = "SELECT sum(a) AS n FROM HISTORY OF bids"
    say("SET query_timeout = 0")
    assert say(question) == [[{"n": 3}]]
    say("SET query_timeout = 15")
    try:
        say("SELECT count(*) AS n FROM HISTORY OF bids LATERAL VIEW explode(sequence(1, 10000000)) e AS x "
            "LATERAL VIEW explode(sequence(1, 100000)) f AS y")
        sys.exit("it was answered")
    except LimitExceeded as error:
        print(error)
    say("SET query_timeout = 0")
    assert say(question) == [[{"n": 3}]]
"""


def test_a_question_that_spark_cannot_cancel_is_stopped_and_the_next_one_answered(tmp_path: Path) -> None:
    """In a process of its own: Spark's Java process is ended for it."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "home")],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
    )
    assert done.returncode == 0, done.stderr
    assert "the query was stopped after 15 seconds" in done.stdout
    assert "py4j" not in done.stderr
