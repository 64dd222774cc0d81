"""Accumulation: how the answers of a window relate to those given before."""

from __future__ import annotations

from enum import Enum


class Accumulation(Enum):
    """What a pane answers over, and whether changes carry the row that is no longer true."""

    DISCARDING = "discarding"
    ACCUMULATING = "accumulating"
    RETRACTING = "retracting"

    def __str__(self) -> str:
        return self.value


def discarding() -> Accumulation:
    """Each answer is over the records since the one before it."""
    return Accumulation.DISCARDING


def accumulating() -> Accumulation:
    """Each answer is over all records of the window so far and replaces the one before it."""
    return Accumulation.ACCUMULATING


def retracting() -> Accumulation:
    """As accumulating, and each answer first takes back the one before it (the default)."""
    return Accumulation.RETRACTING
