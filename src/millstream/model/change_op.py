"""The kinds of changes. A change is a row with one of them in the column `$op` (`model/reserved.py`)."""

from __future__ import annotations

from enum import StrEnum


class ChangeOp(StrEnum):
    """The kind of a change. The values are part of tables, topics and files, so they never change.

    >>> f"{ChangeOp.INSERT} {ChangeOp.RETRACT} {ChangeOp.UPDATE} {ChangeOp.DELETE}"
    '+I -U +U -D'
    """

    INSERT = "+I"
    """A new row."""
    RETRACT = "-U"
    """The old row of an update."""
    UPDATE = "+U"
    """The new row of an update."""
    DELETE = "-D"
    """A row that no longer exists."""
