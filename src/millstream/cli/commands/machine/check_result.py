"""The result of one check of the doctor."""

from __future__ import annotations

from dataclasses import dataclass

OK, LOW, BROKEN = "ok", "low", "problem"


@dataclass(frozen=True)
class CheckResult:
    """One line of the report, and perhaps a table after it."""

    what: str
    state: str
    text: str
    repair: str = ""
    table: tuple[tuple[str, ...], ...] = ()
    """Headings, then rows."""
