"""Limits on questions: each hostile one ends with a named error, and the process that owns the home stays small."""

from __future__ import annotations

import gc
import itertools
import resource
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from millstream import reader as readers
from millstream.errors import DefinitionError, HomeInUse, LimitExceeded, QueryError, StatementRefused
from millstream.home import Home
from millstream.limits import Limits, Watch, interruptible
from millstream.reader import Reader
from millstream.sql.parse.text import Bounded
from millstream.sql.query.growth import may_grow
from millstream.sql.query.store_query import read_query
from millstream.store import open
from millstream.units import parsed_bytes

MEMORY = "200MB"
MOST_GROWTH = 900 << 20
"""How much the process of the home may grow under hostile questions: several times one's limit, never its demand."""

CHEAP = [
    "SELECT size(sequence(1, 3000000000)) AS n",
    "SELECT length(repeat('x', 3000000000)) AS n",
    "SELECT a.i, b.i AS j FROM t a CROSS JOIN t b ORDER BY hash(a.i, b.i)",
    "WITH RECURSIVE r AS (SELECT 'x' AS n UNION ALL SELECT concat(n, n) FROM r) SELECT max(length(n)) AS n FROM r",
]
HEAVY = [
    "SELECT 1 AS n FROM t t0" + "".join(f" JOIN t t{n} ON t{n}.i = t0.i" for n in range(1, 120)),
    "SELECT size(sequence(1, i)) AS n FROM t",
    "SELECT length(repeat(s, i)) AS n FROM t",
    "SELECT length(space(2000000000)) AS n",
    "SELECT length(lpad('x', 2000000000, 'y')) AS n",
    "SELECT count(*) AS n FROM t a, t b, t c",
    "SELECT a.i, b.i AS j FROM t a CROSS JOIN t b",
    "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r) SELECT count(*) AS n FROM r",
    "WITH RECURSIVE r AS (SELECT i FROM t UNION ALL SELECT a.i + b.i FROM r a, t b) SELECT count(*) AS n FROM r",
    "SELECT size(flatten(transform(sequence(1, 100000), x -> sequence(1, 100000)))) AS n",
    "SELECT explode(sequence(1, 1000000000)) AS x",
    "SELECT size(collect_list(a.i)) AS n FROM t a, t b",
    "SELECT length(concat_ws('', collect_list(a.s))) AS n FROM t a, t b",
    "SELECT length(reduce(sequence(1, 60), 'x', (a, x) -> concat(a, a))) AS n",
    "SELECT count(DISTINCT a.i * 100000 + b.i) AS n FROM t a, t b",
    "SELECT sum(a.i) OVER (ORDER BY hash(a.i, b.i)) AS n FROM t a, t b",
    "SELECT collect_list(i) OVER (ORDER BY i) AS n FROM t",
    "SELECT length(replace(repeat('x', 100000), 'x', repeat('y', 100000))) AS n",
]


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    with Home(tmp_path / "home", query_timeout=5, query_memory=MEMORY) as opened:
        opened.put_table("t", pa.table({"i": range(100_000), "s": ["abc"] * 100_000}))
        yield opened


def resident() -> int:
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError


def stopped(home: Home, sql: str) -> None:
    """Ask, over the socket, while another reader gets answers."""
    before = resident()
    with Reader(home.path) as hostile, Reader(home.path) as other:
        over = threading.Event()

        def ask() -> None:
            try:
                with pytest.raises(LimitExceeded) as error:
                    hostile.query(sql)
                assert error.value.hint is not None
            finally:
                over.set()

        asking = threading.Thread(target=ask)
        asking.start()
        asked = 0
        while not over.wait(0.05):
            assert other.query("SELECT count(*) AS n FROM t").to_dicts() == [{"n": 100_000}]
            asked += 1
        asking.join()
        assert asked
        assert resident() - before < MOST_GROWTH
        assert hostile.query("SELECT 3 AS n").to_dicts() == [{"n": 3}]


@pytest.mark.parametrize("sql", CHEAP)
def test_a_hostile_question_is_stopped_and_others_are_answered(home: Home, sql: str) -> None:
    stopped(home, sql)


@pytest.mark.slow
@pytest.mark.parametrize("sql", HEAVY)
def test_more_hostile_questions_are_stopped(home: Home, sql: str) -> None:
    stopped(home, sql)


def test_a_question_in_a_process_of_its_own_has_the_same_answer(home: Home) -> None:
    for sql, rows in (
        ("SELECT repeat(s, i) AS r FROM t WHERE i = 2", [{"r": "abcabc"}]),
        ("SELECT reduce(array(1, 2, 3), 0, (a, x) -> a + x) AS n", [{"n": 6}]),
        ("WITH u AS (SELECT s FROM t WHERE i < 2) SELECT count(*) AS n, max(repeat(s, 2000)) > '' AS b FROM u",
         [{"n": 2, "b": True}]),
    ):  # fmt: skip
        assert home.query(sql).to_dicts() == rows
    with pytest.raises(QueryError) as wrong:
        home.query("SELECT repeat(s, i, 5) AS r FROM t WHERE nothing = 2")
    assert "Error" not in str(wrong.value)
    assert list((home.path / "tmp").glob("question-*")) == []


def test_statements_that_write_have_the_limits_of_questions(home: Home) -> None:
    session = home.session(start=False)
    list(session.execute("CREATE TABLE kept (id BIGINT, s STRING)"))
    list(session.execute("INSERT INTO kept VALUES (1, repeat('x', 3))"))
    for sql in (
        "INSERT INTO kept SELECT size(sequence(1, 3000000000)), 'x'",
        "INSERT INTO kept VALUES (1, repeat('x', 3000000000))",
        "UPDATE kept SET s = repeat(s, 1000000000)",
    ):
        with pytest.raises(LimitExceeded):
            list(session.execute(sql))
    list(session.execute("UPDATE kept SET s = repeat(s, 2)"))
    (answer,) = session.execute("SELECT s FROM kept")
    assert answer.result is not None and answer.result.to_dicts() == [{"s": "xxxxxx"}]


def test_a_session_sets_its_own_limits(home: Home) -> None:
    session = home.session(start=False)
    assert session.limits == Limits(5.0, 200 << 20)
    list(session.execute("SET query_memory = '64MB'; SET query_timeout = 7"))
    assert session.limits == Limits(7.0, 64 << 20)
    with pytest.raises(LimitExceeded, match=r"64\.0 MiB"):
        list(session.execute("SELECT size(sequence(1, 30000000)) AS n"))
    list(session.execute("SET query_timeout = 0.2"))
    with pytest.raises(LimitExceeded, match=r"after 0\.2 seconds"):
        list(session.execute("SELECT count(*) AS n FROM t a, t b, t c"))
    for wrong in ("SET query_memory = 'much'", "SET query_memory = '1KB'", "SET query_timeout = -1"):
        with pytest.raises(DefinitionError):
            list(session.execute(wrong))


def test_limits_come_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLSTREAM_QUERY_TIMEOUT", "9")
    monkeypatch.setenv("MILLSTREAM_QUERY_MEMORY", "2GB")
    assert Limits.of() == Limits(9.0, 2 << 30)
    assert Limits.of(1, "16MB") == Limits(1.0, 16 << 20)
    monkeypatch.setenv("MILLSTREAM_QUERY_TIMEOUT", "soon")
    with pytest.raises(DefinitionError, match="MILLSTREAM_QUERY_TIMEOUT"):
        Limits.of()
    assert parsed_bytes("1GiB") == 1 << 30


def test_a_question_that_would_become_too_long_for_the_store_is_refused(home: Home) -> None:
    nested = "array(1)"
    for _ in range(20):
        nested = f"array_append({nested}, 1)"
    for ask in (home.query, lambda sql: list(home.session(start=False).execute(sql))):
        with pytest.raises(StatementRefused, match="too long"):
            ask(f"SELECT {nested} AS x")
        with pytest.raises(StatementRefused):
            ask("SELECT initcap(initcap(initcap(s))) AS x FROM t")


@pytest.mark.parametrize(
    ("sql", "grows"),
    [
        ("SELECT a, count(*) FROM t WHERE ts > now() - INTERVAL 1 HOUR GROUP BY a", False),
        ("SELECT a || b || c, upper(a), lpad(a, 10, '0'), date_trunc('hour', ts) FROM t", False),
        ("SELECT collect_list(a) FROM t", False),
        ("SELECT explode(sequence(1, 100)) FROM t", False),
        ("SELECT sequence(1, n) FROM t", True),
        ("SELECT repeat(repeat(repeat('x', 100), 100), 100)", True),
        ("SELECT collect_list(a) FROM t, u", True),
        ("SELECT a_new_function(a) FROM t", True),
        ("SELECT levenshtein(a, b) FROM t", True),
        ("SELECT transform(l, x -> x + 1) FROM t", False),
        ("SELECT transform(l, x -> l) FROM t", True),
        ("SELECT transform(l, x -> transform(x, y -> x)) FROM t", True),
        ("SELECT a FROM t WHERE a RLIKE '^[a-z]+@example[.](org|com)$' AND regexp_extract(a, '(.*)@', 1) > ''", False),
        ("SELECT a FROM t WHERE a RLIKE '((a|b){1,30}){1,30}'", True),
        ("SELECT regexp_extract(a, b, 1) FROM t", True),
        ("SELECT regexp_replace(a, '(((((((.*)*)*)*)*)*)*)*', 'x') FROM t", True),
        ("SELECT 1 FROM t t0" + "".join(f" JOIN t t{i} ON t{i}.a = t0.a" for i in range(1, 20)), False),
        ("SELECT 1 FROM t t0" + "".join(f" JOIN t t{i} ON t{i}.a = t0.a" for i in range(1, 60)), True),
        ("SELECT concat(" + ", ".join(["a"] * 1001) + ") FROM t", True),
    ],
)
def test_what_may_grow_is_told_from_the_tree(sql: str, grows: bool) -> None:
    import sqlglot

    assert may_grow(sqlglot.parse_one(sql, dialect=Bounded)) is grows


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT levenshtein(s, reverse(s)) AS n FROM long",
        "SELECT count(*) AS n FROM long WHERE s RLIKE '((a|b){1,30}){1,30}x'",
    ],
)
def test_a_function_that_cannot_be_interrupted_is_stopped_in_time(home: Home, sql: str) -> None:
    home.put_table("long", pa.table({"s": ["ab" * 200_000]}))
    found = read_query(sql, home.store.tables())
    with pytest.raises(LimitExceeded, match=r"after 0\.5 seconds"):
        home.store.query(found.sql, limits=Limits(0.5, 1 << 30), apart=found.apart)


def test_a_lambda_over_a_whole_column_stays_within_its_memory(home: Home) -> None:
    home.put_table("lists", pa.table({"l": [list(range(6000))]}))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(LimitExceeded, match=r"200\.0 MiB"):
        home.query("SELECT size(transform(l, x -> l)) AS n FROM lists")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000


def test_a_reader_that_looks_into_the_files_makes_way_for_a_new_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Home(tmp_path) as first:
        first.put_table("t", pa.table({"i": range(100_000)}))
    looking, plain = threading.Event(), readers._answered

    def answered(store: object, sql: str, how: str) -> pa.Table:
        looking.set()
        return plain(store, sql, how)  # type: ignore[arg-type]

    monkeypatch.setattr(readers, "_answered", answered)
    for module in (readers, open):  # a busy machine may take its time
        monkeypatch.setattr(module, "PAUSES", 1_200)
    found: list[BaseException] = []

    def ask() -> None:
        with Reader(tmp_path) as reader:
            try:
                reader.query("SELECT count(*) AS n FROM t a, t b, t c")
            except LimitExceeded as error:
                found.append(error)

    asking = threading.Thread(target=ask)
    asking.start()
    assert looking.wait(30)
    with Home(tmp_path, query_timeout=0.1) as second:
        assert second.store.query("SELECT count(*) AS n FROM t", limits=Limits(0, 0)).to_pylist() == [{"n": 100_000}]
        asking.join(60)
    assert "after 0.1 seconds" in str(found[0])


def test_a_reader_outlives_the_owners_of_its_home(tmp_path: Path) -> None:
    with Home(tmp_path) as home:
        home.put_table("t", pa.table({"i": [1]}))
        reader = Reader(tmp_path)
        assert reader.query("SELECT i FROM t").to_dicts() == [{"i": 1}]
    assert reader.query("SELECT i FROM t").to_dicts() == [{"i": 1}]  # from the files
    assert reader.views() == []
    with Home(tmp_path) as home:
        home.put_table("t", pa.table({"i": [2]}))
        assert reader.query("SELECT i FROM t").to_dicts() == [{"i": 2}]  # through the second owner
    with Home(tmp_path) as home:
        home.put_table("t", pa.table({"i": [3]}))
        assert reader.query("SELECT i FROM t").to_dicts() == [
            {"i": 3}
        ]  # through the third, over a connection that died
    reader.close()


def test_a_question_ends_when_nobody_waits_for_it(home: Home) -> None:
    gone = threading.Event()
    threading.Timer(0.1, gone.set).start()
    with interruptible(gone.is_set), pytest.raises(QueryError, match="cancelled"):
        home.store.query("SELECT count(*) FROM t a, t b, t c", limits=Limits(0, 0))


def test_the_limit_of_the_process_is_not_touched(home: Home) -> None:
    before = resource.getrlimit(resource.RLIMIT_DATA)
    with pytest.raises(LimitExceeded):
        home.query(CHEAP[0])
    assert resource.getrlimit(resource.RLIMIT_DATA) == before


def test_a_question_that_was_stopped_leaves_nothing_that_holds_the_file(tmp_path: Path) -> None:
    """DuckDB waits without end for a file that an object of this process still holds, and nothing collects it then."""
    with Home(tmp_path / "home") as home:
        home.put_table("t", pa.table({"i": list(range(1000))}))
    gc.collect()
    gc.disable()
    try:
        with Reader(tmp_path / "home") as reader, pytest.MonkeyPatch.context() as patch:
            patch.setattr(readers, "PAUSES", 0)
            owners = itertools.count()
            patch.setattr(readers, "_token", lambda _: next(owners))  # a new owner each time
            with pytest.raises(HomeInUse):
                reader.query("SELECT count(*) AS n FROM t a, t b, t c")
        assert not [o for o in gc.get_objects() if isinstance(o, Watch)]
    finally:
        gc.enable()
