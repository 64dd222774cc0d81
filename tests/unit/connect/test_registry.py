"""Connectors of others: options are checked, SQL knows them by name, packages bring them, and plans tell them apart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import millstream as ms
from millstream.connect import registry
from millstream.connect.forms import ArrowRows, Form
from millstream.connect.port import Offsets, SinkBase, SourceBase, SourceFacts, SourceSlice
from millstream.connect.registry import SinkContext, SourceContext
from millstream.errors import DefinitionError, Unsupported
from millstream.model import connector_declarations
from millstream.model.connector import External
from millstream.model.connector_declarations import REQUIRED, SPAN, Option, System
from millstream.model.guarantees import SinkGuarantee
from millstream.model.types.schema import Schema
from millstream.plan.explain.plan_tree import explain, text
from millstream.plan.planner import plan
from millstream.sql.catalog import Catalog
from millstream.sql.connectors import connector_of, place_text, sink_of
from millstream.sql.parse import statement_parser
from millstream.sql.parse.script import split
from millstream.sql.parse.statement_values import CreateSink, CreateSource
from millstream.sql.parse.text import Text
from tests.local import LocalScript

OPTIONS = [
    Option("name", str, REQUIRED, "what is counted"),
    Option("rows", int, 3, "how many"),
    Option("password", str, None, secret=True, identifies=False),
    Option("every", SPAN, None),
    Option("factor", float, 1.0),
]
WRITTEN: list[tuple[int, list[dict[str, Any]]]] = []


class Counter(SourceBase):
    """The numbers from 0 on."""

    def __init__(self, context: SourceContext) -> None:
        self.options = context.options

    def head(self, now: int) -> Offsets:
        return {0: self.options["rows"]}

    def slice(self, part: SourceSlice) -> Sequence[Form]:
        start, end = part.ranges[0]
        numbers = pa.array(range(start, end), pa.int64())
        return [ArrowRows(pa.table({"n": numbers, "$part": pa.array([0] * len(numbers), pa.int32()), "$pos": numbers}))]

    def describe(self) -> SourceFacts:
        return SourceFacts("counter")


class Remember(SinkBase):
    guarantee = SinkGuarantee.IDEMPOTENT

    def __init__(self, context: SinkContext) -> None:
        self.context = context

    def write(self, epoch: int, changes: pa.Table, *, digest: str | None = None) -> None:
        WRITTEN.append((epoch, changes.to_pylist()))


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    WRITTEN.clear()
    ms.register_connector("counter", source=Counter, sink=Remember, options=OPTIONS, unnamed="name")
    yield
    connector_declarations.forget("counter")


def created(sql: str) -> Any:
    (piece,) = split(Text(sql, "test")).statements
    return statement_parser.statement(piece, functions={})


def source_of(sql: str, start: str = "") -> External:
    entry = created(f"CREATE SOURCE s (n BIGINT) FROM {sql}")
    assert isinstance(entry, CreateSource)
    connector = connector_of(entry, {}, start=start)
    assert isinstance(connector, External)
    return connector


def test_a_flow_reads_and_writes_a_registered_system(tmp_path: Path) -> None:
    flow = ms.Flow("f")
    numbers = flow.source("numbers", ms.connector("counter", name="x"), schema="n BIGINT")
    numbers.where("n > 0").sink("out", ms.connector("counter", name="y"))
    with LocalScript(flow, tmp_path) as script:
        script.tick()
    assert WRITTEN == [(1, [{"n": 1}, {"n": 2}])]


def test_sql_spells_a_registered_system_with_its_options() -> None:
    assert source_of("COUNTER('x', rows = 5)") == ms.connector("counter", name="x", rows=5).as_source()
    assert source_of("counter(name = 'x', every = '5 minutes', factor = 2)").options["every"] == "5 minutes"
    entry = created("CREATE SINK k FROM v INTO COUNTER('x')")
    assert isinstance(entry, CreateSink) and sink_of(entry, Catalog()) == ms.connector("counter", name="x").as_sink()


@pytest.mark.parametrize(
    ("sql", "message", "hint"),
    [
        (
            "COUNTER()",
            "COUNTER needs the option `name`: what is counted",
            "options are: name (required), rows (a ",
        ),
        ("COUNTER('x', size = 1)", "COUNTER has no option `size`", "options are: name, rows, password, every, factor"),
        ("COUNTER('x', rows = 'many')", "the option `rows` of COUNTER is a whole number", None),
        ("COUNTER('x', factor = true)", "the option `factor` of COUNTER is a number", None),
        ("COUNTER('x', name = 'y')", "the option `name` of COUNTER is specified twice", None),
        ("COUNTER('x', 'y')", "COUNTER(...) takes 1 value without a name, not 2", "e.g. COUNTER(name = ...)"),
        ("COUNTER(1)", "COUNTER(...) begins with a string", "e.g. COUNTER(name = ...)"),
    ],
)
def test_wrong_options_are_refused_with_those_that_there_are(sql: str, message: str, hint: str | None) -> None:
    with pytest.raises(DefinitionError) as error:
        source_of(sql)
    assert error.value.message == message and (hint is None or hint in (error.value.hint or ""))


def test_a_view_may_say_where_to_start_only_if_the_system_can() -> None:
    with pytest.raises(Unsupported, match="over COUNTER"):
        source_of("COUNTER('x')", start="now")
    ms.register_connector("later", source=Counter, options=[Option("start", str, "")])
    try:
        assert source_of("LATER()", start="now").options == {"start": "now"}
    finally:
        connector_declarations.forget("later")


def test_show_calls_a_place_as_its_system_declares() -> None:
    ms.register_connector("shelf", source=Counter, options=OPTIONS, unnamed="name", place="the shelf {}")
    try:
        for sql in ("SHELF('tea')", "SHELF(name = 'tea')"):
            assert place_text(created(f"CREATE SOURCE s (n BIGINT) FROM {sql}").place, "s") == "the shelf tea"
    finally:
        connector_declarations.forget("shelf")
    assert place_text(created("CREATE SOURCE s (n BIGINT) FROM COUNTER('x')").place, "s") == "counter"


def test_a_system_that_nobody_has_registered_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(DefinitionError) as refused:
        source_of("COUNTRE('x')")
    assert refused.value.hint == "did you mean COUNTER?"
    with pytest.raises(DefinitionError, match="there is no connector `nothing`"):
        ms.connector("nothing")
    ms.register_connector("only_sink", sink=Remember)
    try:
        with pytest.raises(DefinitionError, match="there is no connector `only_sink` to use as a source"):
            ms.Flow("f").source("s", ms.connector("only_sink"), schema="n BIGINT")
    finally:
        connector_declarations.forget("only_sink")


def test_the_id_of_a_plan_depends_on_the_options_that_tell_sources_apart() -> None:
    def made(**options: object) -> str:
        flow = ms.Flow("f")
        flow.source("s", ms.connector("counter", **options), schema="n BIGINT").view("v")
        return plan(flow).id

    first = made(name="x")
    assert made(name="x", rows=3) == made(name="x", password="secret") == first
    assert len({first, made(name="y"), made(name="x", rows=4)}) == 3


def test_explain_shows_the_system_without_secrets_and_the_promise_of_its_sink() -> None:
    flow = ms.Flow("f")
    numbers = flow.source("s", ms.connector("counter", name="x", password="secret"), schema="n BIGINT")
    numbers.sink("out", ms.connector("counter", name="y"))
    shown = text(explain(plan(flow)))
    assert "counter(name = x, password = ...)" in shown and "secret" not in shown
    assert "exactly once (writing an epoch again changes nothing)" in shown


def test_registering_twice_is_fine_and_under_a_taken_or_bad_name_is_not() -> None:
    ms.register_connector("counter", source=Counter, sink=Remember, options=OPTIONS, unnamed="name")
    with pytest.raises(DefinitionError, match="a connector `counter` exists already"):
        ms.register_connector("counter", source=Counter)
    for name in ("Counter", "my-system", ""):
        with pytest.raises(DefinitionError, match="not a valid name"):
            ms.register_connector(name, source=Counter)
    with pytest.raises(DefinitionError, match="neither a source nor a sink"):
        ms.register_connector("nothing")
    with pytest.raises(DefinitionError, match=r"the option `x` of the connector `odd` has the type"):
        ms.register_connector("odd", source=Counter, options=[Option("x", list)])


class _Point:
    def __init__(self, name: str, target: Any) -> None:
        self.name, self.load = name, lambda: target


def test_installed_packages_bring_their_systems_when_one_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def brings() -> None:
        ms.register_connector("brought", source=Counter, options=OPTIONS, unnamed="name")

    def breaks() -> None:
        raise RuntimeError("no such library")

    monkeypatch.setattr(connector_declarations._table, "discovered", False)
    monkeypatch.setattr(connector_declarations._table, "failures", {})
    points = [_Point("broken", breaks), _Point("brought", brings)]
    monkeypatch.setattr(
        connector_declarations.metadata,
        "entry_points",
        lambda group: points if group == connector_declarations.ENTRY_POINTS else [],
    )
    try:
        assert source_of("BROUGHT('x')").name == "brought"
        with pytest.raises(DefinitionError) as error:
            ms.connector("broken")
        assert error.value.detail == "the package that offers `broken` cannot be loaded: RuntimeError: no such library"
    finally:
        connector_declarations.forget("brought")


def test_columns_that_are_not_declared_are_found_by_the_connector() -> None:
    ms.register_connector("typed", source=Counter, columns=lambda connector, log: Schema.parse("n BIGINT"))
    try:
        assert registry.columns_of(ms.connector("typed"), None) == Schema.parse("n BIGINT")
        assert registry.columns_of(ms.connector("counter", name="x"), None) is None
    finally:
        connector_declarations.forget("typed")


def test_every_declared_system_can_be_opened_as_declared() -> None:
    import millstream.runtime.wiring  # noqa: F401 - it adds the sink for stored tables

    built_in = [s for s in connector_declarations._table.systems.values() if s.name != "counter"]
    assert {s.name for s in built_in} >= {"files", "log", "generator", "console", "table", "memory", "spark"}
    for system in built_in:
        entry = registry.entry_of(system)
        assert (entry.source is not None) == (system.source is not None), system.name
        assert (entry.sink is not None) == (system.sink is not None) == (system.guarantee is not None), system.name
    with pytest.raises(DefinitionError, match="nothing opens it"):
        registry.entry_of(System("unopened"))
