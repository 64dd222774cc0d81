"""Options of a source as values: event time, admission and corrections."""

from __future__ import annotations

from dataclasses import dataclass, field

from millstream.model.types.duration import Duration


@dataclass(frozen=True)
class Corrections:
    """How later records revise earlier ones of a source: the columns that identify a record, the column with the
    operation, and the column with the version.
    """

    key: tuple[str, ...]
    op: str | None = None
    version: str | None = None


@dataclass(frozen=True)
class SourceOptions:
    """Event time and admission of a source."""

    event_time: str | None
    lateness: Duration
    future_bound: Duration
    idle_timeout: Duration | None
    max_rows: int | None
    punctuation: str | None = None
    """A condition in Spark SQL: only records for which it is true advance the watermark."""
    corrections: Corrections | None = None
    computed_time: str | None = field(default=None, repr=False)
    """The event time in Spark SQL, if it is computed from the columns that are read. (Excluded from `repr`, which
    identifies plans: `plan/rules/identify.py` adds it where there is one.)
    """
    processing_time: str | None = field(default=None, repr=False)
    """The column with the clock of the epoch that read the record, in addition to an event time. (Excluded from `repr`
    for the same reason.)
    """

    @property
    def time_sql(self) -> str | None:
        """Spark SQL for the event time over the columns that are read; NULL if its expression fails."""
        if self.computed_time is None:
            return None if self.event_time is None else f"`{self.event_time}`"
        return f"try_add({self.computed_time}, INTERVAL '0' SECOND)"  # TRY for everything inside, unlike for numbers
