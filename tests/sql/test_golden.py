"""The golden files of SQL; golden.py says how they are written.

``MILLSTREAM_GOLDEN=write pytest tests/sql/test_golden.py`` writes anew what is expected; read the difference before a
commit.
"""

from __future__ import annotations

import functools
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest

import millstream as ms
from millstream.plan.planner import plan
from millstream.sql.catalog import schema_of
from millstream.sql.parse.statement_values import CreateSource
from millstream.testing.script import Script
from tests.sql import golden, kit
from tests.sql.engine import QueryScript, with_topics

ITEMS = [{"id": 1, "name": "violin", "price": 50}, {"id": 2, "name": "clock", "price": None}]
"""The rows of the table `items`."""
WRITES = os.environ.get("MILLSTREAM_GOLDEN") == "write"
_read = functools.cache(golden.read)
CASES = [(f, c.name) for f in golden.files() for c in _read(f).cases]
SPARK = "on_spark"
"""The file whose cases need Spark."""


def _case(file: str, name: str) -> golden.Case:
    return next(c for c in _read(file).cases if c.name == name)


Computed = dict[str, tuple[list[dict[str, Any]], list[list[tuple[str, dict[str, Any]]]]]]


@functools.cache
def _tried(file: str) -> Computed | Exception:
    """What was computed of a file, or why nothing was: once, however many cases ask."""
    try:
        return _computed(file)
    except Exception as error:  # noqa: BLE001 - raised again for every case
        return error


def computed(file: str) -> Computed:
    found = _tried(file)
    if isinstance(found, Exception):
        raise found
    return found


def _computed(file: str) -> Computed:
    """All views of a file that some case looks at: their rows, and their changes epoch by epoch."""
    catalog, views = kit.world(), []
    for case in _read(file).cases:
        if case.views:
            golden.catalog_of(case, catalog)
            views += case.views
    with tempfile.TemporaryDirectory() as folder:
        sources = [e for e in catalog.of(CreateSource) if isinstance(e, CreateSource)]
        schemas = {e.name: schema for e in sources if (schema := schema_of(catalog, e)) is not None}
        path = with_topics(Path(folder) / "home", schemas)
        kind: type[Script] = Script if file == SPARK else QueryScript
        with ms.open(path) as home:
            home.put_table("items", ITEMS)
        with kind(kit.flow_of(catalog, *views), path) as script:
            epochs = []
            for epoch in _read(file).epochs:
                for source in dict.fromkeys(s for s, _ in epoch):
                    script.home.topic(source).append([r for s, r in epoch if s == source])
                script.tick()
                epochs.append({v: script.changes(v) for v in views})
            return {v: (script.rows(v), [e[v] for e in epochs]) for v in views}


def _found(file: str, case: golden.Case, each: golden.Expectation) -> list[str]:
    if each.kind in ("rows", "changes"):
        rows, epochs = computed(file)[each.view]
        return golden.rows(rows) if each.kind == "rows" else golden.changes(epochs)
    catalog, error = golden.catalog_of(case, kit.world())
    if each.kind == "error":
        return golden.said(error)
    assert error is None, error
    return golden.summary(plan(kit.flow_of(catalog, each.view)), each.view)


def _check(file: str, name: str) -> None:
    case = _case(file, name)
    assert case.expected, "a case expects something"
    for each in case.expected:
        found = _found(file, case, each)
        if WRITES:
            each.lines[:] = found
            golden.write(_read(file))
        assert found == each.lines


@pytest.mark.parametrize(("file", "name"), [c for c in CASES if c[0] != SPARK])
def test_a_case_gives_what_is_expected(file: str, name: str) -> None:
    _check(file, name)


@pytest.mark.spark
@pytest.mark.sampled(10)
@pytest.mark.parametrize("name", [n for f, n in CASES if f == SPARK])
def test_a_case_on_spark_gives_what_is_expected(spark: object, name: str) -> None:
    _check(SPARK, name)


def test_there_are_enough_cases_and_no_two_have_the_same_name() -> None:
    assert len(set(CASES)) == len(CASES) >= 200
    assert sum(f == SPARK for f, _ in CASES) <= 25
