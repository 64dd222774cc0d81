"""Typed state of Python operators: dataclass fields as columns, and conversion of their values to and from Arrow."""

from __future__ import annotations

import copy
import dataclasses
import types
import typing
from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from operator import attrgetter
from typing import Annotated, Any

import pyarrow as pa

from millstream.errors import DefinitionError
from millstream.model.origin import here
from millstream.model.types.schema import TIMESTAMP, Schema

Change = Callable[[Any], Any]
"""Converts a value; never called with None."""

_PLAIN: dict[Any, pa.DataType] = {
    bool: pa.bool_(),
    int: pa.int64(),
    float: pa.float64(),
    str: pa.string(),
    bytes: pa.binary(),
    datetime: TIMESTAMP,
    date: pa.date32(),
    timedelta: pa.duration("us"),
}


@dataclass(frozen=True, eq=False)
class Cell:
    """A field of state: name, column type, and how a value is written, read and copied (None means unchanged)."""

    name: str
    type: pa.DataType
    write: Change | None = None
    read: Change | None = None
    copy: Change | None = None


@dataclass(frozen=True, eq=False)
class TypedState:
    """A dataclass whose objects are the state of a key.

    >>> @dataclass
    ... class Visits:
    ...     count: int = 0
    ...     pages: list[str] = dataclasses.field(default_factory=list)
    >>> state = TypedState.of(Visits)
    >>> [(c.name, str(c.type)) for c in state.cells]
    [('count', 'int64'), ('pages', 'list<item: string>')]
    >>> state.build((3, ["home"]))
    Visits(count=3, pages=['home'])
    """

    kind: type
    cells: tuple[Cell, ...]

    @classmethod
    def of(cls, declaration: type | str | Schema) -> TypedState:
        """The state that a dataclass or a schema describes. The fields of a schema start as NULL or empty."""
        if isinstance(declaration, str | Schema):
            return cls._of_schema(declaration if isinstance(declaration, Schema) else Schema.parse(declaration))
        if not dataclasses.is_dataclass(declaration) or not isinstance(declaration, type):
            raise DefinitionError(
                f"{declaration!r} does not describe a state",
                hint='pass a dataclass, or a schema like "count BIGINT, last TIMESTAMP"',
                origin=here(),
            )
        if declaration.__dataclass_params__.frozen:  # type: ignore[attr-defined]
            raise DefinitionError(
                f"the state {declaration.__name__} is frozen, so nothing could change it", origin=here()
            )
        hints = _hints(declaration)
        cells = []
        for field in dataclasses.fields(declaration):
            if not field.init or (field.default is MISSING and field.default_factory is MISSING):
                raise DefinitionError(
                    f"the state {declaration.__name__} has no initial value for `{field.name}`",
                    hint=f"give it a default, e.g. {field.name}: int = 0",
                    origin=here(),
                )
            cells.append(_cell(field.name, hints[field.name], declaration.__name__))
        if not cells:
            raise DefinitionError(f"the state {declaration.__name__} has no fields", origin=here())
        return cls(declaration, tuple(cells))

    @classmethod
    def _of_schema(cls, schema: Schema) -> TypedState:
        fields: list[tuple[str, Any, Any]] = []
        cells = []
        for column in schema:
            assert column.type is not None, "DDL has types"
            kind = column.type
            begins: Any = dataclasses.field(default=None)
            if pa.types.is_map(kind):
                begins = dataclasses.field(default_factory=dict)
                kind = _map(kind.key_type, kind.item_type)
                cells.append(Cell(column.name, kind, _items, _dict, dict))
            elif pa.types.is_list(kind):
                begins = dataclasses.field(default_factory=list)
                cells.append(Cell(column.name, kind, copy=copy.deepcopy))
            else:
                cells.append(Cell(column.name, kind, copy=copy.deepcopy if pa.types.is_struct(kind) else None))
            fields.append((column.name, Any, begins))
        return cls(dataclasses.make_dataclass("State", fields), tuple(cells))

    @property
    def names(self) -> tuple[str, ...]:
        """The field names."""
        return tuple(c.name for c in self.cells)

    def build(self, values: Sequence[Any]) -> Any:
        """The object for these stored values."""
        return self.kind(**dict(zip(self.names, values, strict=True)))

    def maker(self) -> Callable[..., Any]:
        """A function that builds an object from separate values."""
        if any(f.kw_only for f in dataclasses.fields(self.kind)):
            return lambda *values: self.build(values)
        return self.kind

    def getter(self) -> Callable[[Any], tuple[Any, ...]]:
        """A function that extracts the values of an object."""
        names = self.names
        if len(names) > 1:
            return attrgetter(*names)
        take = attrgetter(names[0])
        return lambda held: (take(held),)

    def snapshot(self) -> Callable[[Any], tuple[Any, ...]]:
        """A function that extracts the values such that later changes of the object do not affect them."""
        get, copies = self.getter(), [(i, c.copy) for i, c in enumerate(self.cells) if c.copy is not None]
        if not copies:
            return get

        def taken(held: Any) -> tuple[Any, ...]:
            values = list(get(held))
            for i, change in copies:
                if values[i] is not None:
                    values[i] = change(values[i])
            return tuple(values)

        return taken


def _hints(declaration: type) -> dict[str, Any]:
    try:
        return typing.get_type_hints(declaration, include_extras=True)
    except NameError as error:
        raise DefinitionError(
            f"a type of the state {declaration.__name__} is not known: {error}",
            hint="define the dataclass and the types it names at the top of a module",
            origin=here(),
        ) from None


def _cell(name: str, hint: Any, owner: str) -> Cell:
    kind, write, read, copied = _typed(hint, f"{owner}.{name}")
    return Cell(name, kind, write, read, copied)


def _typed(hint: Any, where: str) -> tuple[pa.DataType, Change | None, Change | None, Change | None]:
    """The column type of an annotation, and how its values are written, read and copied."""
    origin, inside = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated and isinstance(inside[1], str):
        return Schema.parse(f"x {inside[1]}").fields[0].type, None, None, None
    if origin in (typing.Union, types.UnionType):
        some = [a for a in inside if a is not type(None)]
        if len(some) == 1:
            return _typed(some[0], where)
    elif hint in _PLAIN:
        return _PLAIN[hint], None, None, None
    elif origin is list and inside:
        kind, write, read, copied = _typed(inside[0], where)
        return pa.list_(kind), _each(write), _each(read), _each(copied) or list
    elif origin is dict and inside:
        key, value = _typed(inside[0], where), _typed(inside[1], where)
        pair = _map(key[0], value[0])
        return pair, _pairs(key[1], value[1]), _dicts(key[2], value[2]), copy.deepcopy if value[3] else dict
    elif isinstance(hint, type) and dataclasses.is_dataclass(hint):
        inner = TypedState.of(hint)
        return _struct(inner), _record(inner), _object(inner), copy.deepcopy
    what = "Annotated[Decimal, 'DECIMAL(18, 2)']" if hint is Decimal else "int, float, str, bool, datetime"
    raise DefinitionError(
        f"the type of the state {where} cannot be a column: {hint!r}",
        hint=f"use {what}; bytes, date, timedelta, list[...], dict[..., ...], a dataclass, or any of these | None",
        origin=here(),
    )


def _map(key: pa.DataType, value: pa.DataType) -> pa.DataType:
    return pa.list_(pa.struct([("key", key), ("value", value)]))


def _struct(inner: TypedState) -> pa.DataType:
    return pa.struct([(c.name, c.type) for c in inner.cells])


def _some(change: Change | None) -> Change:
    return (lambda v: v) if change is None else (lambda v: None if v is None else change(v))


def _each(change: Change | None) -> Change | None:
    if change is None:
        return None
    one = _some(change)
    return lambda values: [one(v) for v in values]


def _items(values: dict[Any, Any]) -> list[dict[str, Any]]:
    return [{"key": k, "value": v} for k, v in values.items()]


def _dict(items: list[dict[str, Any]]) -> dict[Any, Any]:
    return {i["key"]: i["value"] for i in items}


def _pairs(key: Change | None, value: Change | None) -> Change:
    if key is None and value is None:
        return _items
    one, other = _some(key), _some(value)
    return lambda values: [{"key": one(k), "value": other(v)} for k, v in values.items()]


def _dicts(key: Change | None, value: Change | None) -> Change:
    if key is None and value is None:
        return _dict
    one, other = _some(key), _some(value)
    return lambda items: {one(i["key"]): other(i["value"]) for i in items}


def _record(inner: TypedState) -> Change:
    writes = [(c.name, _some(c.write)) for c in inner.cells]
    return lambda held: {name: write(getattr(held, name)) for name, write in writes}


def _object(inner: TypedState) -> Change:
    reads = [(c.name, _some(c.read)) for c in inner.cells]
    return lambda held: inner.kind(**{name: read(held[name]) for name, read in reads})
