"""The table of functions in docs/guide/steps.md is complete, and says what Spark is told."""

from __future__ import annotations

import re
from pathlib import Path

from millstream.sql.dialects import function_forms, function_names
from millstream.sql.parse import queries
from millstream.sql.parse.text import Text, tokens

PAGE = (Path(__file__).parents[2] / "docs" / "guide" / "steps.md").read_text(encoding="utf-8")
SECTION = PAGE.partition("### Functions of Postgres and Flink")[2]
ROWS = re.findall(r"^\| `(.+)` \| `(.+)` \|$", SECTION, re.MULTILINE)


def in_spark(expression: str) -> str:
    text = Text(f"SELECT {expression}")
    return queries.parse(text, tuple(tokens(text))).sql(dialect="spark").removeprefix("SELECT ")


def test_the_page_says_what_spark_is_told() -> None:
    assert len(ROWS) > 60
    assert {written: in_spark(written) for written, _ in ROWS} == dict(ROWS)


def test_the_page_names_every_function() -> None:
    named = {n.lower() for written, _ in ROWS for n in re.findall(r"(\w+)\(", written)}
    inside = {function_forms.BINNED, "all"}  # date_bin while it is read; ALL of an array, which is refused
    assert {*function_names.FORMS, *function_forms.FORMS} - inside - named == set()


def test_an_element_never_meets_a_column_of_its_name() -> None:
    assert in_spark("x = ANY(tags)") == "ARRAY_CONTAINS(tags, x)"
    assert in_spark("y = ANY(tags)") == "EXISTS(tags, x -> y = x)"
