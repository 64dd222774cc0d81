"""Aggregates the reports of epochs, for the lines and screens that show progress.

Fed by the threads of the runs, read by the thread of the command.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass
from datetime import UTC, datetime

from millstream.cli.output import format_instant, format_seconds, plural
from millstream.clock import ALL_READ, BEGINNING
from millstream.runtime.epoch.loop import EpochReport

RATE_SECONDS = 5.0
"""The rate shown is that of about the last so many seconds."""


@dataclass(frozen=True)
class MeterReading:
    """The values of a meter at a moment. Seconds, rows per second; None where nothing is known yet."""

    epochs: int
    epoch: int
    rows: int
    late: int
    errors: int
    rate: float
    last: float | None
    p50: float | None
    p99: float | None
    watermark: datetime | None
    all_read: bool
    behind: float | None
    """How far the watermark lags behind the clock."""
    freshness: float | None
    """How long ago the last epoch began."""

    def line(self) -> str:
        """One line for a person."""
        if not self.epochs:
            return "waiting for the first rows"
        parts = [
            f"epoch {self.epoch:,}",
            plural(self.rows, "row"),
            f"{self.rate:,.0f} rows/s",
        ]
        if self.late:
            parts.append(f"{self.late:,} late")
        if self.errors:
            parts.append(plural(self.errors, "error"))
        parts += [
            f"last epoch {format_seconds(self.last)}",
            "all read" if self.all_read else f"watermark {format_instant(self.watermark)}",
        ]
        return " · ".join(parts)


class Meter:
    """Takes `EpochReport`s, gives `MeterReading`s."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._recent: deque[tuple[float, int, float]] = deque()
        self._seconds: deque[float] = deque(maxlen=10_000)
        self._last: EpochReport | None = None
        self._rows = self._late = self._errors = self._epochs = 0

    def take(self, report: EpochReport) -> None:
        """Count an epoch; passed to `Home.start` as `on_epoch`."""
        now = time.monotonic()
        with self._lock:
            self._epochs += 1
            self._rows += report.rows
            self._late += report.late
            self._errors += report.errors
            self._last = report
            if report.rows:
                self._seconds.append(report.seconds)
                self._recent.append((now, report.rows, report.seconds))

    def read(self) -> MeterReading:
        """The current values."""
        with self._lock:
            last, now = self._last, time.time_ns() // 1000
            mark = last.watermark if last else BEGINNING
            known = BEGINNING < mark < ALL_READ
            return MeterReading(
                epochs=self._epochs,
                epoch=last.number if last else 0,
                rows=self._rows,
                late=self._late,
                errors=self._errors,
                rate=self._rate(),
                last=self._seconds[-1] if self._seconds else None,
                p50=percentile(self._seconds, 0.5),
                p99=percentile(self._seconds, 0.99),
                watermark=datetime.fromtimestamp(mark / 1e6, UTC) if known else None,
                all_read=mark >= ALL_READ,
                behind=max(0.0, (now - mark) / 1e6) if known else None,
                freshness=max(0.0, (now - last.now) / 1e6) if last else None,
            )

    def _rate(self) -> float:
        """Rows of the last seconds over the time from the first of their epochs' beginnings."""
        now = time.monotonic()
        while len(self._recent) > 1 and self._recent[0][0] < now - RATE_SECONDS:
            self._recent.popleft()
        if not self._recent or self._recent[-1][0] < now - RATE_SECONDS:
            return 0.0
        first, _, took = self._recent[0]
        return sum(rows for _, rows, _ in self._recent) / max(now - (first - took), 0.001)


def percentile(values: deque[float] | list[float], share: float) -> float | None:
    """The value that this share of all values does not exceed; None of none.

    >>> percentile([3.0, 1.0, 2.0], 0.5)
    2.0
    """
    if not values:
        return None
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
