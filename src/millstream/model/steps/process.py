"""Steps of Python operators that keep state: a process per key, and questions to the outside."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millstream.errors import Origin
from millstream.model.python.process import FAIL, Output
from millstream.model.python.typed_state import TypedState
from millstream.model.types.schema import Field, Schema

if TYPE_CHECKING:
    from millstream.model.steps.step import Named, Step

TO = "$to"
"""The column with the number of the output that a result is for, where there are several."""


@dataclass(frozen=True, eq=False)
class Processed:
    """A function over the rows of each key, in order, with state, timers, and a time to live."""

    input: Step
    keys: Named
    function: Any
    name: str
    outputs: tuple[Output, ...]
    """Its result, then its side outputs."""
    state: TypedState | None = None
    time: str | None = None
    """The column with the event time of a row."""
    ordered: bool = False
    """Whether rows come in the order of event time, all that are before the watermark."""
    ttl: int | None = None
    """For how long, in micros, a key is remembered that nothing comes for."""
    by_clock: bool = False
    """Whether that goes by processing time."""
    errors: str = FAIL
    redact: bool = False
    """Whether messages leave out what is in a row."""
    origin: Origin | None = None

    @property
    def schema(self) -> Schema:
        """Its own columns; where it has side outputs, which one a row is for, and the columns of all."""
        if len(self.outputs) == 1:
            return self.outputs[0].schema
        fields = [Field(column_of(i, f.name), f.type) for i, o in enumerate(self.outputs) for f in o.schema]
        return Schema((Field(TO, pa.int32()), *fields))


def column_of(output: int, name: str) -> str:
    """The name of an output's column among all results of a process."""
    return f"${output}:{name}" if output else name


@dataclass(frozen=True, eq=False)
class Asked:
    """Each row with the answer of a function to some of its columns."""

    input: Step
    on: tuple[str, ...]
    function: Callable[..., Any]
    name: str
    answer: Output
    """The columns that an answer has."""
    required: bool = False
    """Whether rows without an answer go away."""
    batch: int = 100
    parallel: int = 8
    timeout: int | None = None
    """How long one call may take, in micros."""
    retries: int = 3
    cache: int | None = None
    """For how long an answer is good, in micros of processing time; None: for good."""
    errors: str = FAIL
    redact: bool = False
    origin: Origin | None = None

    @property
    def schema(self) -> Schema:
        """The columns of the row, and of its answer."""
        return Schema.of([*self.input.schema, *self.answer.schema])
