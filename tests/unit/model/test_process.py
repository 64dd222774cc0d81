"""Python operators as they are written: what is refused before anything runs, and contexts as they are told."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any

import pyarrow as pa
import pytest

from millstream.errors import DefinitionError
from millstream.model.python.process import Context, Hooks, Output, Process, rows_of
from millstream.model.python.typed_state import TypedState
from millstream.model.types.schema import TIMESTAMP, Schema


@dataclass
class Point:
    x: float = 0.0


@dataclass
class Wide:
    a: int = 0
    b: float | None = None
    c: str = ""
    d: bool = False
    e: datetime | None = None
    f: date | None = None
    g: timedelta | None = None
    h: bytes = b""
    i: Annotated[Decimal, "DECIMAL(10, 2)"] = Decimal(0)
    j: list[list[int]] = field(default_factory=list)
    k: dict[str, Point] = field(default_factory=dict)
    m: Point = field(default_factory=Point)


def test_the_fields_of_a_dataclass_are_columns() -> None:
    state = TypedState.of(Wide)
    point = pa.struct([("x", pa.float64())])
    assert {c.name: c.type for c in state.cells} == {
        "a": pa.int64(),
        "b": pa.float64(),
        "c": pa.string(),
        "d": pa.bool_(),
        "e": TIMESTAMP,
        "f": pa.date32(),
        "g": pa.duration("us"),
        "h": pa.binary(),
        "i": pa.decimal128(10, 2),
        "j": pa.list_(pa.list_(pa.int64())),
        "k": pa.list_(pa.struct([("key", pa.string()), ("value", point)])),
        "m": point,
    }


def test_what_is_written_is_read_again() -> None:
    state = TypedState.of(Wide)
    held = Wide(a=1, j=[[1], []], k={"p": Point(2.0)}, m=Point(3.0))
    values = [
        c.write(v) if c.write and v is not None else v for c, v in zip(state.cells, state.getter()(held), strict=True)
    ]
    columns = [pa.array([v], c.type).to_pylist()[0] for v, c in zip(values, state.cells, strict=True)]
    read = [c.read(v) if c.read and v is not None else v for c, v in zip(state.cells, columns, strict=True)]
    assert state.build(read) == held


def test_a_snapshot_does_not_follow_the_object() -> None:
    state = TypedState.of(Wide)
    held = Wide(j=[[1]], k={"p": Point(1.0)})
    before = state.snapshot()(held)
    held.a, held.m.x = 5, 5.0
    held.j[0].append(2)
    held.k["p"].x = 9.0
    assert state.build(before) == Wide(j=[[1]], k={"p": Point(1.0)})


@dataclass
class NoDefault:
    a: int


@dataclass(frozen=True)
class Frozen:
    a: int = 0


@dataclass
class Vague:
    a: Any = None


@dataclass
class Money:
    a: Decimal = Decimal(0)


@dataclass
class Empty:
    pass


@dataclass(kw_only=True)
class Named:
    a: int = 0
    b: int = 0


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (NoDefault, "has no initial value for `a`"),
        (Frozen, "is frozen"),
        (Vague, "Vague.a cannot be a column"),
        (Money, r"Annotated\[Decimal"),
        (Empty, "has no fields"),
        (int, "does not describe a state"),
    ],
)
def test_state_that_cannot_be_columns_is_refused(given: Any, said: str) -> None:
    with pytest.raises(DefinitionError, match=said):
        TypedState.of(given)


def test_fields_may_be_given_by_name_only() -> None:
    assert TypedState.of(Named).maker()(1, 2) == Named(a=1, b=2)


def test_what_is_no_process_is_refused() -> None:
    class Nothing(Process):
        pass

    class Row(Process):
        def on_row(self, row: Any, state: Any, ctx: Context) -> None: ...

    for given, said in (
        (Nothing(), "Nothing is not a process: it needs on_row"),
        (Row, "Row is a class"),
        (7, "int is not a process"),
    ):
        with pytest.raises(DefinitionError, match=said):
            Hooks.of(given)
    hooks = Hooks.of(Row())
    assert hooks.on_row is not None
    assert hooks.on_timer is None
    assert Hooks.of(lambda row, state, ctx: None).on_row is not None


def test_a_context_can_be_used_in_a_test_of_a_process() -> None:
    ctx = Context([Output("", Schema.parse("k BIGINT"))], now=5_000_000)
    with pytest.raises(TypeError, match="no event time"):
        _ = ctx.time
    assert ctx.watermark is None
    assert ctx.now.second == 5


def test_columns_whose_names_no_attribute_can_have_are_reached_by_number() -> None:
    (row,) = rows_of(["class", "two words", "a"], [[1], [2], [3]])
    assert (row[0], row[1], row.a) == (1, 2, 3)
