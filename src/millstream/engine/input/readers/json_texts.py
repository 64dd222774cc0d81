"""Keeps the spelling of values that are not text but belong to a text column: ``{"id": 1.50}`` with ``id STRING``.

Spark's file reader keeps the characters of such a value. Its function `from_json` formats the value again (``1.5``). So
in a line for `from_json`, these values become JSON strings first.
"""

from __future__ import annotations

import json
import re
from json.decoder import scanstring  # type: ignore[attr-defined]

import pyarrow as pa

_SPACE = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()


def has_texts(kind: pa.DataType) -> bool:
    """Whether a type is text, or contains one."""
    if pa.types.is_struct(kind):
        return any(has_texts(field.type) for field in kind)
    if pa.types.is_list(kind):
        return has_texts(kind.value_type)
    return bool(pa.types.is_string(kind))


def with_exact_texts(line: str, schema: pa.Schema) -> str:
    """A line in which all values of text columns are strings. A line that Python cannot read stays as it is."""
    try:
        parts: list[str] = []
        end = _rewrite(line, _after_space(line, 0), pa.struct(list(schema)), parts)
    except (ValueError, IndexError, RecursionError):
        return line
    return "".join(parts) + line[end:]


def _after_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    assert found is not None
    return found.end()


def _rewrite(text: str, at: int, kind: pa.DataType | None, parts: list[str]) -> int:
    """Add the value that begins at a place to the parts. Returns where it ends."""
    first = text[at]
    if kind is not None and first == "{" and pa.types.is_struct(kind):
        return _rewrite_members(text, at, kind, parts)
    if kind is not None and first == "[" and pa.types.is_list(kind):
        return _rewrite_elements(text, at, kind.value_type, parts)
    _, end = _DECODER.raw_decode(text, at)
    value = text[at:end]
    as_text = kind is not None and pa.types.is_string(kind) and first != '"' and value != "null"
    parts.append(json.dumps(value, ensure_ascii=False) if as_text else value)
    return end


def _rewrite_members(text: str, at: int, kind: pa.StructType, parts: list[str]) -> int:
    """An object, with all that is between its members."""
    kinds = {field.name: field.type for field in kind}
    parts.append("{")
    at = _after_space(text, at + 1)
    while text[at] != "}":
        if text[at] != '"':
            raise ValueError("a name is missing")
        name, end = scanstring(text, at + 1)
        end = _after_space(text, end)
        if text[end] != ":":
            raise ValueError("a colon is missing")
        parts.append(text[at : end + 1])
        at = _after_space(text, _rewrite(text, _after_space(text, end + 1), kinds.get(name), parts))
        at = _next(text, at, "}", parts)
    parts.append("}")
    return at + 1


def _rewrite_elements(text: str, at: int, kind: pa.DataType, parts: list[str]) -> int:
    parts.append("[")
    at = _after_space(text, at + 1)
    while text[at] != "]":
        at = _after_space(text, _rewrite(text, at, kind, parts))
        at = _next(text, at, "]", parts)
    parts.append("]")
    return at + 1


def _next(text: str, at: int, last: str, parts: list[str]) -> int:
    """The place of the next member, or of the end."""
    if text[at] == last:
        return at
    if text[at] != ",":
        raise ValueError("a comma is missing")
    parts.append(",")
    at = _after_space(text, at + 1)
    if text[at] == last:
        raise ValueError("a member is missing")
    return at
