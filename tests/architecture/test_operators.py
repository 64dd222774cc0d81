"""The table of operators: each has all that the protocol asks for, in the place where a reader looks for it.

For every operator: a step of the model, a SQL form (or a stated reason why there is none), lowering, a kernel in the
module of the same name, EXPLAIN facts, a description of its state, a section of the docs, and a differential test.
"""

from __future__ import annotations

import importlib
import inspect
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from millstream.kernels.kernel import Kernel
from millstream.plan.operators.operator import LOWERINGS, Operator
from millstream.plan.operators.table import all_operators, load

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Known:
    """Where the parts of an operator are."""

    step: str
    """The step of the model that becomes it."""
    sql: str
    """A form of SQL that makes it, as it is in the guide; or, after "none:", why there is none."""
    docs: str
    """The page and the heading that describe it."""
    tests: str
    """The differential test: a file, and a word of a test in it."""


OPERATORS = {
    "Aggregation": Known(
        "Aggregated", "GROUP BY", "guide/aggregates.md", "tests/unit/kernels/test_reference.py::test_"
    ),
    "ChangingAggregation": Known(
        "Aggregated", "GROUP BY", "guide/joins.md", "tests/unit/kernels/test_relate.py::what_a_batch"
    ),
    "UserAggregation": Known(
        "Aggregated", "none: user-defined aggregates are Python", "guide/python-operators.md",
        "tests/unit/kernels/test_fold.py::histories",
    ),
    "PassThrough": Known("Source", "SELECT", "guide/steps.md", "tests/sql/test_differential.py::test_"),
    "OrderedMerge": Known(
        "Union", "none: SQL has no order of arrival", "guide/event-time.md", "tests/unit/events/test_merge.py::test_"
    ),
    "TopN": Known("Top", "ROW_NUMBER()", "guide/joins.md", "tests/unit/kernels/test_relate.py::what_a_batch"),
    "DistinctRows": Known("Distinct", "DISTINCT", "guide/joins.md", "tests/unit/kernels/test_relate.py::what_a_batch"),
    "GatheredRows": Known("Gathered", "UNION ALL", "guide/joins.md", "tests/sql/test_relations.py::test_"),
    "SetOperation": Known("Compared", "INTERSECT", "guide/joins.md", "tests/sql/test_relations.py::test_"),
    "WindowFunctions": Known("Windowed", "OVER", "guide/joins.md", "tests/sql/test_relations.py::test_"),
    "HoldUntil": Known("Settling", "EMIT ON CLOSE", "guide/joins.md", "tests/sql/test_final_rows.py::test_"),
    "Join": Known("Joined", "JOIN", "guide/joins.md", "tests/sql/test_relations.py::test_"),
    "AsOfJoin": Known("JoinedAsOf", "ASOF JOIN", "guide/joins.md", "tests/sql/test_as_of.py::test_"),
    "ChangelogRows": Known("Changelog", "CHANGELOG OF", "guide/sql.md", "tests/unit/pipelines/test_changelog.py::test"),
    "TemporalFilter": Known("Temporal", "now()", "guide/sql.md", "tests/sql/test_temporal.py::test_"),
    "StoredTable": Known("TableRows", "CREATE TABLE", "guide/sql.md", "tests/sql/test_tpch.py::test_"),
    "ConstantRow": Known("OneRow", "VALUES", "guide/sql.md", "tests/sql/test_no_rows.py::test_"),
    "Loop": Known("Iterated", "WITH RECURSIVE", "guide/joins.md", "tests/sql/test_relations.py::test_"),
    "PatternMatch": Known(
        "Matched", "MATCH_RECOGNIZE", "guide/patterns.md", "tests/unit/kernels/test_match_reference.py::plain_search"
    ),
    "ProcessOperator": Known(
        "Processed", "none: a process is Python", "guide/python-operators.md",
        "tests/unit/kernels/test_process.py::test_",
    ),
    "AsyncLookup": Known(
        "Asked", "none: a lookup calls a Python function", "guide/python-operators.md",
        "tests/unit/kernels/test_ask.py::test_",
    ),
}  # fmt: skip


def built_in() -> tuple[type[Operator], ...]:
    return tuple(o for o in all_operators() if o.__module__.startswith("millstream."))


def test_the_table_here_names_every_operator_and_no_other() -> None:
    assert {o.__name__ for o in built_in()} == OPERATORS.keys()


@pytest.mark.parametrize("operator", built_in(), ids=lambda o: o.__name__)
def test_an_operator_has_all_its_parts(operator: type[Operator]) -> None:
    known = OPERATORS[operator.__name__]
    load()
    steps = {kind.__name__ for kind in LOWERINGS} | {"Source", "Union"}  # rows of sources need no operator of their own
    assert known.step in steps, "a step of the model, and what makes the operator from it"
    module = operator.kernel or operator.__module__.replace("plan.operators", "kernels")
    kernel = importlib.import_module(module).KERNEL
    assert isinstance(kernel, Kernel), "a kernel in the module of the same name"
    signature = list(inspect.signature(kernel.advance).parameters)
    assert signature == ["operator", "inputs", "states", "clock", "services"]
    for name in ("result", "state_text"):
        assert getattr(operator, name) is not getattr(Operator, name), f"{name} of its own"
    own_name = operator.title or operator.name is not Operator.name
    assert own_name or operator.appends, "a name in EXPLAIN"
    own_identity = operator.content is not Operator.content or (
        operator.fingerprint_parts is not Operator.fingerprint_parts
    )
    assert own_identity, "what its state fits"


@pytest.mark.parametrize("name", sorted(OPERATORS))
def test_an_operator_is_described_and_compared_with_a_batch(name: str) -> None:
    known = OPERATORS[name]
    page = (ROOT / "docs" / known.docs).read_text(encoding="utf-8")
    if not known.sql.startswith("none: "):
        everything = page + "".join(p.read_text(encoding="utf-8") for p in (ROOT / "docs/guide").glob("*.md"))
        assert known.sql.lower() in everything.lower()
    file, _, word = known.tests.partition("::")
    found = re.findall(rf"def \w*{word}\w*", (ROOT / file).read_text(encoding="utf-8"))
    assert found, f"a test in {file}"


def test_no_layer_asks_what_an_operator_is_by_probing_it() -> None:
    probes = re.compile(r"\bhasattr\((?:view\.)?operator\b|\bgetattr\((?:view\.)?operator\b")
    wrong = [
        f"{path.relative_to(ROOT)}"
        for layer in ("plan", "kernels", "engine", "runtime")
        for path in (ROOT / "src/millstream" / layer).rglob("*.py")
        if probes.search(path.read_text(encoding="utf-8"))
    ]
    assert not wrong
