"""The result of a statement: a message, rows, a text, or a stream of changes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from millstream.result import Result


@dataclass(frozen=True)
class Answer:
    """The result of one statement; which of its parts are set depends on the statement."""

    message: str = ""
    """A message for the user: ``created the view hot_auctions``."""
    result: Result | None = None
    """Rows."""
    text: str = ""
    """Several lines: a plan."""
    unchanged: bool = False
    """Whether a definition existed already."""
    changes: Iterator[Changes] | None = field(default=None, repr=False)
    """The changes of a SUBSCRIBE, without end; closing the iterator ends the subscription."""


@dataclass(frozen=True)
class Changes:
    """What one epoch changed in a view, or records of a topic. The first column, `op` (`_op` where the view has a
    column `op`), is the kind of change. None is a keep-alive.
    """

    epoch: int
    table: pa.Table | None
    snapshot: bool = False
    """Whether these are the rows that existed when the subscription began."""
    resume: str = ""
    """The statement that continues the subscription after these changes."""
