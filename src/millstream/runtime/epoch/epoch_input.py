"""Builds the engine's input for an epoch from its record. The owner of a flow and an active standby share it."""

from __future__ import annotations

from millstream.engine.driver.epoch_io import EpochInput
from millstream.runtime.epoch.records import EpochRecord
from millstream.runtime.epoch.stored_tables import Tables


def input_of(record: EpochRecord, tables: Tables) -> EpochInput:
    """Return what the record of an epoch says about its input."""
    return EpochInput(
        record.epoch,
        record.slices,
        record.now,
        record.watermarks,
        record.before,
        {name: tables.path(name, version) for name, version in record.tables.items()},
        since=record.since,
        fractions={s: {float(f): w for f, w in by.items()} for s, by in record.fractions.items()},
        without=record.excluded,
        hot=record.hot,
    )
