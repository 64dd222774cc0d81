"""The columns that state has for a window of the pane kernel, in addition to its identity and its partials.

Further columns: ``$n`` records that its result covers, ``$end`` its end, ``$t0..`` the state of its trigger, ``^name``
the results that the view shows for it, ``$gone`` for a window that was merged into another, ``$x`` when it leaves
state, and the columns of `kernels.outcome.due_columns`. The names are part of the format of state files.
"""

from __future__ import annotations

from typing import Final

UNSHOWN: Final = "$p"
"""The number of records that no pane has shown."""
FIRST_UNSHOWN: Final = "$f"
"""The processing time at which the first of those records arrived."""
PANES: Final = "$i"
"""The number of panes emitted."""
ON_TIME_PAST: Final = "$o"
"""Whether the time of its on-time pane is past."""
VISIBLE: Final = "$v"
"""Whether the view shows a result for it."""

PANE_STATE: Final = (UNSHOWN, FIRST_UNSHOWN, PANES, ON_TIME_PAST, VISIBLE)
FLAGS: Final = (ON_TIME_PAST, VISIBLE)

# The following exist only within an epoch.
NEW_RECORDS: Final = "$new"
"""The number of records that the window received in this epoch, with those of windows that were merged into it."""
ARRIVED_AT: Final = "$when"
"""The processing time at which the first of those records arrived."""
MERGED_UNSHOWN: Final = "$mp"
"""The number of unshown records of the windows that were merged into it."""
MERGED_FIRST: Final = "$mf"
"""The processing time at which the first of those records arrived."""


def trigger_columns(width: int) -> list[str]:
    """The columns with the state of a trigger."""
    return [f"$t{i}" for i in range(width)]


def shown_column(name: str) -> str:
    """The column with the shown value of a result column."""
    return f"^{name}"
