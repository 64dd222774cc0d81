"""Names of any spelling: what a query gives does not depend on how its columns, aliases and relations are called.

Each query runs with plain names and with hostile ones, over the same records; rows, changes and what its sink gets must
be the same. A name may also be refused where it is defined; which, and with which words, is listed here.

    pytest tests/sql/test_names.py -m slow      all queries, many assignments of names; a failure says its seed
"""

from __future__ import annotations

import functools
import random
import re
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pyarrow as pa
import pytest

import millstream as ms
from millstream.errors import MillstreamError, SchemaError
from millstream.home import Home
from millstream.model.reserved import PANES, folded
from millstream.model.types.schema import Schema
from tests.seeds import run_seed
from tests.sql.names_kit import ALIASES, COLUMNS, PLAIN, QUERIES, RELATIONS, STREAMS, Given, given, given_python

WORDS = """op Op epoch _op _epoch op_1 window window_start window_end window_index window_time _1 _c0 column_1 key_0
    key_1 key_2 rows_ grouping_set windows_of_row select order group from where table rows rank self keep_empty n
    by more name value key timestamp date interval current_date current_timestamp user null true record reason raw
    partition offset seen_at watermark pane timing is_first is_last event_time first last count sum struct map
    array lateral c w e changed opened _metadata None class lambda __class__ v_right k_right start end count_all
    duplicate columns step view_group topic_a schema flow at""".split()
"""Names that a column, an alias or a relation may have."""

RELATION_WORDS = """main millstream information_schema epochs flows views generations range temp system duckdb_tables
    sqlite_master pg_catalog history state memory explode unnest values TUMBLE tumble public default
    known_rows rows_at_first""".split()
"""More of them, for relations."""

REFUSALS = (
    (r"`(\w+)` is a column of the rows, and of their windows", {"window_start", "window_end", "window_time",
                                                               "window_index"}),
    (r"two columns of the result are called `(\w+)`", {"window_start", "window_end"}),
    (r"the column `(\w+)` appears twice", {"window_start", "window_end", "window_index"}),
    (r"the history of panes has a column `(\w+)` of its own", set(PANES)),
    (r"`(rows)` of (?:over is a frame|match is one or all)", {"rows"}),
)  # fmt: skip
"""What is refused of the names above, and for which of them: where a window or a history of panes has such a column."""

READABLE = ("it's", 'say "x"', "a.b", "first name", " x ", "größe", "gro\u0308ße", "🦆", "a\u202eb", "c" * 300, "a\\b",
            "v$n", "v$was", "a$", "100%", "a;b", "a--b", "/* x */", "1", "count(1)", "k + v", "a,b", "a=b", "#x", "{k}",
            "a\u200bb", "<b>", "a|b", "?", ":a", "%s", "\\n", "NULL")  # fmt: skip
"""Names that columns of a source may have, but none that a query makes."""

UNREADABLE = {
    "$ts": "is reserved", "$op": "is reserved", "$": "is reserved", "@v": "is reserved", "_of_1_k": "is reserved",
    "_OF_x": "is reserved", "a`b": "has a backquote", "a\nb": "U+000A", "a\tb": "U+0009", "a\0b": "U+0000",
    "a\u2028b": "U+2028", "*": "means all columns", "^.*$": "means all columns", "": "is empty", "  ": "is empty",
    "x" * 1001: "has 1001 characters",
}  # fmt: skip
"""Names that no column may have, and why."""

NOT_GOOD = "is not a valid name for a column"
NEEDED = {"rows", "where", "renamed", "renamed_group", "with_columns", "union", "merge", "distinct", "join",
          "join_where", "within", "semi", "anti", "as_of", "intersect", "subtract", "iterate"}  # fmt: skip
"""Streams that take a column of a source as it is, whatever its name."""


@functools.cache
def plain(run: Callable[..., Given], chosen: tuple[str, ...]) -> Given:
    queries = QUERIES if run is given else STREAMS
    with tempfile.TemporaryDirectory() as folder:
        found = run(Path(folder), PLAIN, {q: queries[q] for q in chosen})
    assert not found.refused
    assert all(found.rows.values()), "every query gives rows"
    return found


def compare(run: Callable[..., Given], found: Given, chosen: tuple[str, ...], told: object) -> None:
    expected = plain(run, chosen)
    for part in ("rows", "changes", "records"):
        for query, got in getattr(found, part).items():
            assert got == getattr(expected, part)[query], (query, part, told)


def assigned(seed: int) -> dict[str, str]:
    """A hostile name for every role; columns differ from one another, and relations do."""
    chance = random.Random(seed)
    while True:
        columns = chance.sample(WORDS, len(COLUMNS) + len(ALIASES))
        relations = chance.sample([*WORDS, *RELATION_WORDS], len(RELATIONS))
        if len({folded(n) for n in columns}) == len(columns) and len({folded(n) for n in relations}) == len(relations):
            return dict(zip((*COLUMNS, *ALIASES, *RELATIONS), (*columns, *relations), strict=True))


def check(run: Callable[..., Given], queries: Mapping[str, object], seed: int, most: int | None) -> None:
    """Run queries with the names of a seed, and hold them against the same with plain names."""
    names = assigned(seed)
    chosen = tuple(sorted(queries) if most is None else random.Random(seed).sample(sorted(queries), most))
    with tempfile.TemporaryDirectory() as folder:
        found = run(Path(folder), names, {q: queries[q] for q in chosen})
    for query, why in found.refused.items():
        known = [m[1].lower() in allowed for form, allowed in REFUSALS if (m := re.search(form, why))]
        assert known == [True], (query, why, seed, names)
    compare(run, found, chosen, (seed, names))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("seed", range(2))
def test_names_of_a_query_change_nothing(seed: int) -> None:
    check(given, QUERIES, seed, 6)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("seed", range(2))
def test_names_of_a_stream_change_nothing(seed: int) -> None:
    check(given_python, STREAMS, seed, 6)


@pytest.mark.slow
@pytest.mark.parametrize("share", range(20))
def test_names_of_all_queries_change_nothing(share: int) -> None:
    check(given, QUERIES, 100 + 20 * run_seed() + share, None)


@pytest.mark.slow
@pytest.mark.parametrize("share", range(20))
def test_names_of_all_streams_change_nothing(share: int) -> None:
    check(given_python, STREAMS, 100 + 20 * run_seed() + share, None)


def check_readable(name: str, role: str, most: int | None) -> None:
    chosen = tuple(sorted(STREAMS) if most is None else random.Random(name).sample(sorted(STREAMS), most))
    with tempfile.TemporaryDirectory() as folder:
        found = given_python(Path(folder), {**PLAIN, role: name}, {q: STREAMS[q] for q in chosen})
    for query, why in found.refused.items():
        assert NOT_GOOD in why and query not in NEEDED, (query, why)
    compare(given_python, found, chosen, (name, role))


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("name", "role"), [('a."b" c', "u"), ("it's \\n", "v")])
def test_a_source_may_have_columns_of_any_spelling(name: str, role: str) -> None:
    check_readable(name, role, 6)


@pytest.mark.slow
@pytest.mark.parametrize("name", READABLE, ids=[ascii(n)[:20] for n in READABLE])
def test_a_source_may_have_columns_of_all_spellings(name: str) -> None:
    for role in COLUMNS:
        check_readable(name, role, None)


@pytest.mark.parametrize("name", UNREADABLE, ids=[ascii(n)[:20] for n in UNREADABLE])
def test_a_name_that_a_part_of_the_system_would_misread_is_refused(name: str, tmp_path: Path) -> None:
    schema = pa.schema([(name, pa.int64()), ("fine", pa.int64())])
    with pytest.raises(SchemaError, match=re.escape(UNREADABLE[name])):
        ms.Flow("f").source("a", ms.memory(), schema=schema)
    with Home(tmp_path) as home, pytest.raises(SchemaError, match=re.escape(UNREADABLE[name])):
        home.put_table("t", schema.empty_table())


@pytest.mark.parametrize("pair", [("A", "a"), ("grün", "GRÜN"), ("\u00e9", "e\u0301"), ("K", "\u212a")])
def test_two_names_that_some_part_takes_for_one_are_refused(pair: tuple[str, str], tmp_path: Path) -> None:
    schema = pa.schema([(n, pa.int64()) for n in pair])
    flow = ms.Flow("f")
    refused: list[Callable[[], object]] = [
        lambda: Schema.from_arrow(schema),
        lambda: Schema.parse(", ".join(f"`{n}` BIGINT" for n in pair)),
        lambda: flow.source("a", ms.memory(), schema=schema),
        lambda: flow.source("b", ms.memory(), schema="x BIGINT")._project(tuple((n, ms.col("x")) for n in pair)),
    ]
    for define in refused:
        with pytest.raises(SchemaError, match="appears twice") as error:
            define()
        assert "another name" in str(error.value)
    with Home(tmp_path) as home, pytest.raises(SchemaError, match="appears twice"):
        home.put_table("t", schema.empty_table())


def test_a_reserved_name_in_a_statement_is_refused_at_its_place() -> None:
    from millstream.sql.parse import statement_parser
    from millstream.sql.parse.text import Text

    with pytest.raises(MillstreamError, match="reserved") as error:
        statement_parser.read(Text("CREATE VIEW v AS SELECT a AS _of_w0 FROM b"))
    assert error.value.origin is not None and error.value.origin.column == 30
