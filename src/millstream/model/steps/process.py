"""Keyed processes: functions over the ordered rows of each key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millstream.errors import Origin
from millstream.model.python.process import FAIL, Output
from millstream.model.python.typed_state import TypedState
from millstream.model.types.schema import Field, Schema

if TYPE_CHECKING:
    from millstream.model.steps.columns import Named
    from millstream.model.steps.step import Step

TO = "$to"
"""The column with the number of the output that a result is for, if there are several."""


@dataclass(frozen=True, eq=False)
class Processed:
    """A function over the ordered rows of each key, with state, timers, and a time to live."""

    input: Step
    keys: Named
    function: Any
    name: str
    outputs: tuple[Output, ...]
    """Its main output, then its side outputs."""
    state: TypedState | None = None
    time: str | None = None
    """The column with the event time of a row."""
    ordered: bool = False
    """Whether rows are processed in event-time order, once the watermark has passed them."""
    ttl: int | None = None
    """How long, in micros, a key without new rows is kept."""
    by_clock: bool = False
    """Whether the time to live is in processing time."""
    errors: str = FAIL
    redact: bool = False
    """Whether messages omit the values of a row."""
    origin: Origin | None = None

    @property
    def schema(self) -> Schema:
        """Its own columns; with side outputs, the number of the output of a row and the columns of all outputs."""
        if len(self.outputs) == 1:
            return self.outputs[0].schema
        fields = [Field(column_of(i, f.name), f.type) for i, o in enumerate(self.outputs) for f in o.schema]
        return Schema((Field(TO, pa.int32()), *fields))


def column_of(output: int, name: str) -> str:
    """The name of an output's column among all results of a process."""
    return f"${output}:{name}" if output else name
