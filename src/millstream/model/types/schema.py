"""Schemas: columns and their types.

A schema is written as Spark DDL (``"auction BIGINT, ts TIMESTAMP"``) and stored as Arrow types, which every part of the
system shares. The type of a computed column may be unknown (None) until the engine has bound the plan.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa
import sqlglot
from sqlglot import exp

from millstream.errors import Origin, SchemaError, Unsupported
from millstream.model.origin import here
from millstream.model.reserved import check_column, folded
from millstream.model.types import scalars
from millstream.model.types.scalars import BY_SPELLING, DAY_TIME, INTERVAL, LISTED, LOCAL_TIMESTAMP, NAMES
from millstream.model.types.unknown_column import unknown_column

TIMESTAMP = scalars.TIMESTAMP

_QUOTED_OR_LOCAL = re.compile(
    r"""('(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.)*"|`[^`]*`)|\bTIMESTAMP\s+WITHOUT\s+TIME\s+ZONE\b""",
    re.IGNORECASE | re.DOTALL,
)
"""Quoted text, or the long name of TIMESTAMP_NTZ, which the parser would read as TIMESTAMP."""

LENGTHS = frozenset(exp.DataType.Type[k] for k in ("DECIMAL", "ARRAY", "MAP", "STRUCT"))
"""Types that may have arguments in parentheses."""
_TEXTS = frozenset(exp.DataType.Type[k] for k in ("VARCHAR", "CHAR", "TEXT", "NVARCHAR", "NCHAR"))

_PARTS = {"ARRAY": (1, "ARRAY<BIGINT>"), "MAP": (2, "MAP<STRING, BIGINT>"), "STRUCT": (0, "STRUCT<name: BIGINT>")}
"""The number of type arguments of a nested type (0: any number, at least one), and an example."""


@dataclass(frozen=True)
class Field:
    """A column: its name, and its type if known."""

    name: str
    type: pa.DataType | None = None


@dataclass(frozen=True)
class Schema:
    """Columns in order, with distinct names.

    >>> Schema.parse("auction BIGINT, ts TIMESTAMP").names
    ('auction', 'ts')
    """

    fields: tuple[Field, ...]

    @classmethod
    def parse(cls, ddl: str) -> Schema:
        """Parse Spark DDL."""
        if not isinstance(ddl, str):
            raise _unreadable(ddl, "it is not text")
        return cls._parsed(ddl)

    @classmethod
    @lru_cache(maxsize=1024)
    def _parsed(cls, ddl: str) -> Schema:
        """The same; a definition is read again whenever its catalog is."""
        try:
            statements = sqlglot.parse(f"CREATE TABLE t ({plain_names(ddl)}\n)", dialect="spark")
            table = statements[0]
            if len(statements) != 1 or not isinstance(table, exp.Create) or table.args.get("properties"):
                raise _unreadable(ddl, "it contains more than columns")
            columns = table.this.expressions if isinstance(table.this, exp.Schema) else []
            return cls.of(_column(ddl, column) for column in columns)
        except sqlglot.errors.ParseError as error:
            problem = str(error.errors[0].get("description") or "") if error.errors else ""
            raise _unreadable(ddl, None if "<class" in problem else problem or None) from None
        except sqlglot.errors.SqlglotError:
            raise _unreadable(ddl, "is a quote left open?") from None
        except RecursionError:
            raise _unreadable(ddl, "the types are nested too deeply") from None

    @classmethod
    def of(cls, fields: Iterable[Field]) -> Schema:
        """Create a schema; rejects duplicate, empty and reserved names."""
        schema = cls(tuple(fields))
        seen: dict[str, str] = {}
        for field in schema.fields:
            check_column(field.name)
            there = seen.get(folded(field.name))
            if there is not None:
                raise SchemaError(
                    f"the column `{field.name}` appears twice",
                    detail=None
                    if there == field.name
                    else f"the other is spelled `{there}`: names are compared "
                    "without regard to case and Unicode composition",
                    hint="give one of the two another name",
                    origin=here(),
                )
            seen[folded(field.name)] = field.name
        if not schema.fields:
            raise SchemaError("a schema needs at least one column", origin=here())
        return schema

    @classmethod
    def from_arrow(cls, schema: pa.Schema, *, exact: bool = False) -> Schema:
        """Names and types from an Arrow schema; times become UTC microseconds. With `exact`, times without a zone are
        TIMESTAMP_NTZ: use it for Millstream's own schemas. In other schemas they are usually instants in UTC.
        """
        return cls.of(Field(f.name, _plain(f.type)) for f in (schema if exact else zoned(schema)))

    @property
    def names(self) -> tuple[str, ...]:
        """The column names, in order."""
        return tuple(f.name for f in self.fields)

    def __iter__(self) -> Iterator[Field]:
        return iter(self.fields)

    def __contains__(self, name: str) -> bool:
        return any(f.name == name for f in self.fields)

    def field(self, name: str, *, origin: Origin | None = None) -> Field:
        """The column of this name, or a SchemaError that lists the existing columns."""
        for field in self.fields:
            if field.name == name:
                return field
        raise self.unknown(name, origin)

    def unknown(self, name: str, origin: Origin | None = None) -> SchemaError:
        """The error for an unknown column."""
        return unknown_column(name, self.names, origin=origin or here())

    def to_arrow(self) -> pa.Schema:
        """The Arrow schema; requires that all types are known."""
        return pa.schema([(f.name, f.type) for f in self.fields])


def arrow_type(node: exp.DataType | None) -> pa.DataType:
    """The Arrow type of a parsed sqlglot type."""
    if node is None:
        raise SchemaError("a column has no type", hint='e.g. "price BIGINT"', origin=here())
    if isinstance(node.this, exp.Interval) or node.this is exp.DataType.Type.INTERVAL:
        return _interval(node)
    kind = node.this.name if isinstance(node.this, exp.DataType.Type) else str(node.this)
    if kind == "DECIMAL":
        return _decimal(node)
    if kind in _PARTS:
        _check_parts(kind, node)
    if kind == "ARRAY":
        return pa.list_(arrow_type(node.expressions[0]))
    if kind == "MAP":
        return pa.map_(arrow_type(node.expressions[0]), arrow_type(node.expressions[1]))
    if kind == "STRUCT":
        return pa.struct([(c.this.name, arrow_type(c.kind or c.args.get("kind"))) for c in node.expressions])
    if kind in BY_SPELLING:
        return BY_SPELLING[kind]
    raise SchemaError(
        f"unknown type `{node.sql(dialect='spark')}`",
        detail=f"known types: {LISTED}",
        origin=here(),
    )


def _interval(node: exp.DataType) -> pa.DataType:
    """A day-time interval, or an interval of one of these units; all are stored as microseconds."""
    unit = node.this.args.get("unit") if isinstance(node.this, exp.Interval) else None
    units = [unit.this, unit.expression] if isinstance(unit, exp.IntervalSpan) else [unit]
    unit_names = [u.name.upper().rstrip("S") if u is not None else "" for u in units]
    if all(u in DAY_TIME for u in unit_names) and unit_names == sorted(unit_names, key=DAY_TIME.index):
        return INTERVAL
    if unit_names == [""]:
        raise SchemaError(
            "an INTERVAL needs its units", hint="write INTERVAL DAY TO SECOND: a number of microseconds", origin=here()
        )
    raise SchemaError(
        f"`{_shown(node)}` is not supported as the type of a column",
        detail="years and months have no fixed length",
        hint="write INT for a number of months, and add_months(day, months) in a view; "
        "or INTERVAL DAY TO SECOND for a fixed length",
        origin=here(),
    )


def _decimal(node: exp.DataType) -> pa.DataType:
    digits = [p.name for p in node.expressions] or ["10", "0"]
    numbers = [int(d) if d.isascii() and d.isdecimal() and len(d) < 3 else -1 for d in digits]
    precision, scale = (*numbers, 0)[:2]
    if len(numbers) > 2 or not (1 <= precision <= 38 and 0 <= scale <= precision):
        raise SchemaError(
            f"`{_shown(node)}` is not a type",
            detail="DECIMAL(p, s) has p digits, from 1 to 38, and s of them, at most p, after the point",
            hint="e.g. DECIMAL(10, 2)",
            origin=here(),
        )
    return pa.decimal128(precision, scale)


def _check_parts(kind: str, node: exp.DataType) -> None:
    """Reject a nested type without its type arguments, and a STRUCT with two fields of the same name."""
    count, form = _PARTS[kind]
    parts = node.expressions
    if not parts or (count and len(parts) != count):
        raise SchemaError(f"`{_shown(node)}` is not a type", hint=f"write it like {form}", origin=here())
    if kind == "STRUCT":
        for part in parts:
            if not isinstance(part, exp.ColumnDef) or part.kind is None:
                raise SchemaError(
                    f"the field `{_shown(part)}` in `{_shown(node)}` has no name or no type",
                    hint=f"write it like {form}",
                    origin=here(),
                )
        names = [folded(part.this.name) for part in parts]
        if twice := [name for name in names if names.count(name) > 1]:
            raise SchemaError(
                f"the field `{twice[0]}` is twice in `{_shown(node)}`",
                hint="give one of the two another name",
                origin=here(),
            )


def _column(ddl: str, node: exp.Expr) -> Field:
    """A column of a schema."""
    if isinstance(node, exp.ColumnDef):
        _refuse_what_is_not_kept(node)
        return Field(node.name, arrow_type(node.kind))
    if isinstance(node, exp.Identifier | exp.Column):
        raise SchemaError(f"the column `{node.name}` has no type", hint='e.g. "price BIGINT"', origin=here())
    raise _unreadable(ddl, f"`{_shown(node)}` is not a column")


def _refuse_what_is_not_kept(column: exp.ColumnDef) -> None:
    """Reject NOT NULL, DEFAULT and similar clauses, and types with a length: a schema has only names and types."""
    for constraint in column.find_all(exp.ColumnConstraint):
        kind = constraint.kind
        plain = isinstance(kind, exp.NotNullColumnConstraint) and kind.args.get("allow_null")
        if not plain and not isinstance(kind, exp.CommentColumnConstraint):
            raise Unsupported(
                f"`{_shown(constraint)}` of the column `{column.name}` is not supported in a schema",
                hint="leave it out, and let a view select the rows: WHERE column IS NOT NULL",
                origin=here(),
            )
    for part in column.find_all(exp.DataType):
        if part.expressions and part.this not in LENGTHS:
            name = part.this.name if isinstance(part.this, exp.DataType.Type) else str(part.this)
            name = "TIMESTAMP_NTZ" if name == "TIMESTAMPNTZ" else name
            name = "TIMESTAMP" if name.startswith("TIMESTAMP") and name != "TIMESTAMP_NTZ" else name
            named = "STRING" if part.this in _TEXTS else name
            length = ", ".join(e.name or e.sql() for e in part.expressions)
            raise Unsupported(
                f"the length in `{name}({length})` of the column `{column.name}` is not supported",
                hint=f"write {named}" + (": it holds text of any length" if named == "STRING" else ""),
                origin=here(),
            )


def _shown(node: exp.Expr) -> str:
    return node.sql(dialect="spark")[:60]


def _unreadable(ddl: object, why: str | None) -> SchemaError:
    text = repr(ddl)
    return SchemaError(
        f"the schema cannot be read: {text if len(text) <= 200 else text[:200] + '...'}",
        detail=why,
        hint='write it like "auction BIGINT, name STRING, ts TIMESTAMP"',
        origin=here(),
    )


def type_from_sqlglot(node: exp.DataType | None) -> pa.DataType | None:
    """The Arrow type of an annotated expression, or None if sqlglot does not know it."""
    if node is None or node.is_type(exp.DataType.Type.UNKNOWN, exp.DataType.Type.NULL):
        return None
    known = node.copy()
    for part in list(known.find_all(exp.DataType)):
        if part.this is exp.DataType.Type.INTERVAL:  # see `interval_types.py`
            part.set("this", exp.Interval(unit=exp.var("SECOND")))
    try:
        return arrow_type(known)
    except SchemaError:
        return None


def ddl_type(kind: pa.DataType) -> str:
    """The Spark DDL of an Arrow type."""
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision}, {kind.scale})"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"ARRAY<{ddl_type(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"MAP<{ddl_type(kind.key_type)}, {ddl_type(kind.item_type)}>"
    if pa.types.is_struct(kind):
        return "STRUCT<" + ", ".join(f"`{f.name}`: {ddl_type(f.type)}" for f in kind) + ">"
    if pa.types.is_timestamp(kind):
        return NAMES[TIMESTAMP if kind.tz else LOCAL_TIMESTAMP]
    if pa.types.is_duration(kind):
        return NAMES[INTERVAL]
    if kind in NAMES:
        return NAMES[kind]
    raise SchemaError(f"the type {kind} has no SQL name", origin=here())


def plain_names(text: str) -> str:
    """A text in which the long name TIMESTAMP WITHOUT TIME ZONE is replaced by TIMESTAMP_NTZ."""
    return _QUOTED_OR_LOCAL.sub(lambda found: found[1] or "TIMESTAMP_NTZ", text)


def zoned(schema: pa.Schema) -> pa.Schema:
    """A schema in which every timestamp is in UTC."""
    return pa.schema([f.with_type(_zoned(f.type)) for f in schema])


def _zoned(kind: pa.DataType) -> pa.DataType:
    """A type in which every timestamp is in UTC."""
    if pa.types.is_timestamp(kind):
        return TIMESTAMP
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_zoned(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([f.with_type(_zoned(f.type)) for f in kind])
    return pa.map_(_zoned(kind.key_type), _zoned(kind.item_type)) if pa.types.is_map(kind) else kind


def _plain(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind):
        return pa.binary()
    if pa.types.is_unsigned_integer(kind):
        return pa.int64()
    if pa.types.is_timestamp(kind):
        return TIMESTAMP if kind.tz else LOCAL_TIMESTAMP
    return INTERVAL if pa.types.is_duration(kind) else kind
