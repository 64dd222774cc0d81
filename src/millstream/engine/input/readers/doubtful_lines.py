"""Brings the doubtful lines of JSON files from tasks to the driver (`json_task.py` finds them)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.accumulators import AccumulatorParam
from pyspark.sql import SparkSession

from millstream.engine.input.readers.json_task import DoubtfulLine

MOST_SENT = 4 << 20
"""Bytes of doubtful lines that a task sends to the driver."""


class DoubtfulLines:
    """The doubtful lines that a task sends to the driver; None if they are too many."""

    def __init__(self) -> None:
        self.lines: list[DoubtfulLine] | None = []
        self._room = MOST_SENT

    def __bool__(self) -> bool:
        return self.lines is None or bool(self.lines)

    def add(self, line: DoubtfulLine) -> None:
        """Add a line."""
        self._room -= 200 + len(line.raw) + len(line.text or "")
        if self._room < 0:
            self.lines = None
        elif self.lines is not None:
            self.lines.append(line)


class LinesOfTasks(AccumulatorParam):  # type: ignore[type-arg]
    """Adds lists: the doubtful lines of each task."""

    def zero(self, value: Any) -> Any:
        """No lines."""
        del value
        return []

    def addInPlace(self, value1: Any, value2: Any) -> Any:
        """The lines of further tasks."""
        value1 += value2
        return value1


def received(parts: Sequence[Sequence[DoubtfulLine] | None]) -> list[DoubtfulLine] | None:
    """The doubtful lines of all tasks, once each, although tasks may run again; None if there were too many."""
    found: dict[tuple[str, int], DoubtfulLine] = {}
    for part in parts:
        if part is None:
            return None
        found.update({(line.part.path, line.at): line for line in part})
    return list(found.values())


def accumulator(spark: SparkSession) -> Any:
    """An accumulator to which each task adds its lines, as a list with one element."""
    return spark.sparkContext.accumulator([], LinesOfTasks())
