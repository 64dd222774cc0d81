"""Event time, admission and corrections of a source, as values."""

from __future__ import annotations

from dataclasses import dataclass, field

from millstream.model.types.duration import Duration


@dataclass(frozen=True)
class Corrections:
    """How later records revise earlier ones of a source: the columns that name a record, the one that says what is done
    to it, and the one that says which version is newer.
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
    """A condition in Spark SQL: records for which it is true move the watermark, and no others."""
    corrections: Corrections | None = None
    computed_time: str | None = field(default=None, repr=False)
    """The event time in Spark SQL, where it is computed from the columns that are read. (Left out of `repr`, by which
    plans are told apart: `plan/rules/identify.py` adds it where there is one.)
    """
    processing_time: str | None = field(default=None, repr=False)
    """The column that holds the clock of the epoch which read the record, beside an event time. (Left out of `repr` for
    the same reason.)
    """

    @property
    def time_sql(self) -> str | None:
        """Spark SQL for the event time over the columns that are read; NULL where its expression fails."""
        if self.computed_time is None:
            return None if self.event_time is None else f"`{self.event_time}`"
        return f"try_add({self.computed_time}, INTERVAL '0' SECOND)"  # TRY for all that is inside, unlike for numbers
