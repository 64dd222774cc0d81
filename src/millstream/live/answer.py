"""What a statement gives: a sentence, rows, a text, or changes for as long as somebody listens."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from millstream.result import Result


@dataclass(frozen=True)
class Answer:
    """The answer to one statement; which of its parts is there depends on the statement."""

    message: str = ""
    """A sentence for a person: ``created the view hot_auctions``."""
    result: Result | None = None
    """Rows."""
    text: str = ""
    """Several lines: a plan."""
    unchanged: bool = False
    """Whether a definition was there already."""
    changes: Iterator[Changes] | None = field(default=None, repr=False)
    """Of SUBSCRIBE: one after the other, without end; closing the iterator ends the subscription."""


@dataclass(frozen=True)
class Changes:
    """What one epoch changed in a view, or records of a topic. The first column, `op` (`_op` where the view has an `op`
    of its own), is the kind of change. Nothing (None) says that the line is alive.
    """

    epoch: int
    table: pa.Table | None
    snapshot: bool = False
    """Whether these are the rows that were there when the subscription began."""
    resume: str = ""
    """The statement that continues the subscription after these changes."""
