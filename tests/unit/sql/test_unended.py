"""Questions with quotes and comments that do not end are refused at once: nothing else runs while a text is read."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest

from millstream.sql.query.store_query import _quoted

_CPU_SECONDS = 10
_ASK = """
import sys
from millstream.errors import MillstreamError
from millstream.sql.query.store_query import read_query
try:
    read_query("SELECT " + sys.stdin.read(), {})
except MillstreamError:
    print("refused")
"""


@pytest.mark.parametrize("text", ['"\\' * 49_000, "SELECT /*" * 10_900], ids=["quote", "comment"])
def test_a_quote_that_does_not_end_is_searched_once(text: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _ASK],
        input=text,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (_CPU_SECONDS, _CPU_SECONDS)),
    )
    assert (done.returncode, done.stdout) == (0, "refused\n")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a$late 'b$late' `c$late` -- d$late\n e$late", "`a$late` 'b$late' `c$late` -- d$late\n `e$late`"),
        ('a$late "b$late" c$late', '`a$late` "b$late" `c$late`'),
        ("a$late /* b$late */ c$late /* d$late", "`a$late` /* b$late */ `c$late` /* d$late"),
        ("a$late 'b$late", "`a$late` 'b$late"),
        ("'it''s' a$late", "'it\\'s' `a$late`"),
    ],
)  # fmt: skip
def test_names_with_a_dollar_sign_are_quoted_outside_of_quotes(text: str, expected: str) -> None:
    assert _quoted(text) == expected
