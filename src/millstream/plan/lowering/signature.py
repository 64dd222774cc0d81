"""Signatures of steps: two steps with the same signature mean the same rows, so that one operator serves both."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Set
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

import pyarrow as pa

from millstream.errors import Origin
from millstream.model.expression import Expr
from millstream.model.python.process import Output
from millstream.model.steps.relations.join import Joined
from millstream.model.steps.relations.temporal_filter import Temporal
from millstream.model.steps.step import Source, Step
from millstream.model.types.schema import Schema


def signature(step: Step, needed: Mapping[int, Set[str]]) -> str:
    """A name for what a step means. For joins and temporal filters it includes the columns that are read downstream.
    Code equals only itself.
    """
    return hashlib.sha256(repr(_content(step, needed)).encode()).hexdigest()


def _content(value: Any, needed: Mapping[int, Set[str]]) -> Any:
    if isinstance(value, Source):
        return ("source", value.name)
    if isinstance(value, Expr):
        return value.spark()
    if isinstance(value, Output):
        return (value.name, repr(value.schema))  # the columns of code do not follow from anything else
    if isinstance(value, Origin | Schema):
        return None  # the origin in the source text; columns, which follow from the rest
    if isinstance(value, tuple | list):
        return [_content(v, needed) for v in value]
    if is_dataclass(value) and not isinstance(value, type):
        read = sorted(needed.get(id(value), ())) if isinstance(value, Joined | Temporal) else ()
        return (type(value).__name__, [(f.name, _content(getattr(value, f.name), needed)) for f in fields(value)], read)
    if value is None or isinstance(value, bool | int | float | str | bytes | Enum | pa.DataType):
        return repr(value)
    return (type(value).__qualname__, id(value))
