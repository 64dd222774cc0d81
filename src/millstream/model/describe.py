"""How flows, streams and views are displayed in a prompt or a notebook: name, columns with types, inputs."""

from __future__ import annotations

from collections.abc import Sequence

from millstream.display import Column, columns_line, schema_html
from millstream.errors import SchemaError
from millstream.model.types.schema import Schema, ddl_type


def columns_of(schema: Schema) -> list[Column]:
    """The columns with their SQL types; the type is empty if only the engine knows it."""
    return [(field.name, _type_name(field.type)) for field in schema]


def title(kind: str, name: str, reads: Sequence[str], more: str = "") -> str:
    """``View hot_auctions, reads bids``."""
    named = f"{kind} {name}" if name else kind
    parts = [named, *([more] if more else []), *([f"reads {', '.join(reads)}"] if reads else [])]
    return ", ".join(parts)


def line(heading: str, schema: Schema) -> str:
    """A one-line description: ``<View hot_auctions, reads bids: auction BIGINT, bids BIGINT>``."""
    return f"<{heading}: {columns_line(columns_of(schema))}>"


def html(heading: str, schema: Schema) -> str:
    """An HTML table with a row per column, for notebooks."""
    return schema_html(heading, columns_of(schema))


def _type_name(kind: object) -> str:
    if kind is None:
        return ""
    try:
        return ddl_type(kind)
    except SchemaError:
        return str(kind)
