"""Accumulation: how the results of a window relate to its earlier results."""

from __future__ import annotations

from enum import Enum


class Accumulation(Enum):
    """Which records a pane covers, and whether changes include the row that is no longer valid."""

    DISCARDING = "discarding"
    ACCUMULATING = "accumulating"
    RETRACTING = "retracting"

    def __str__(self) -> str:
        return self.value


def discarding() -> Accumulation:
    """Each result covers the records since the previous result."""
    return Accumulation.DISCARDING


def accumulating() -> Accumulation:
    """Each result covers all records of the window so far and replaces the previous result."""
    return Accumulation.ACCUMULATING


def retracting() -> Accumulation:
    """As accumulating, and each result first retracts the previous result (the default)."""
    return Accumulation.RETRACTING
