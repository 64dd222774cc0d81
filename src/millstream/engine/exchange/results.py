"""What the driver receives of a job: counts of scans, runs, the changes of operators and views, and parts of sinks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import orjson
import polars as pl
import pyarrow as pa

from millstream.connect.port import SinkPart
from millstream.engine.driver.epoch_io import polars
from millstream.engine.exchange.hot_keys import KeyCounts
from millstream.engine.exchange.parcels import (
    ANSWERS,
    CHANGES,
    COUNTS,
    DROPPED,
    FAILURES,
    FILE,
    FINAL,
    KEYS,
    PANES,
    PART,
    REFUSED,
    ROWS,
    RUNS,
    Parcel,
    joined,
    parcels_of,
)
from millstream.errors import SinkError
from millstream.kernels.intake import Intake, Tally
from millstream.kernels.outcome import Dropped, Failure
from millstream.state.run_block import RunBlock
from millstream.state.storage import Storage

_BY_VIEW = ("late", "applied", "filtered")


@dataclass
class OperatorResult:
    """What an operator gave on the executors."""

    runs: RunBlock | None = None
    changes: list[pl.DataFrame] = field(default_factory=list)
    """Changes for operators in the driver."""
    final: list[pa.Table] = field(default_factory=list)
    """Finished changes of its view."""
    small: list[memoryview] = field(default_factory=list)
    """Finished changes that came in parcels, as they were sent."""
    parts: list[SinkPart] = field(default_factory=list)
    """What tasks have written to the sink of its view instead."""
    panes: list[pl.DataFrame] = field(default_factory=list)
    dropped: list[Dropped] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    skipped: int = 0
    answers: list[str] = field(default_factory=list)
    """The files with the results of lookups that tasks have used."""

    def close_small(self) -> None:
        """Add the changes that came in parcels to the others: all at once, because every conversion costs."""
        if self.small:
            self.final.append(polars(joined(self.small)).to_arrow())
            self.small = []


@dataclass
class Results:
    """The results of a job: the intake of each scan, and the result of each operator by the number of its view."""

    intakes: dict[int, Intake] = field(default_factory=dict)
    partials: dict[int, int] = field(default_factory=dict)
    """By scan: how many rows were left after combining."""
    rows: dict[int, list[pl.DataFrame]] = field(default_factory=dict)
    """Rows of scans for operators in the driver."""
    operators: dict[int, OperatorResult] = field(default_factory=dict)
    counts: KeyCounts = field(default_factory=KeyCounts)
    """The keys of the rows that tasks have sent to operators."""
    received: dict[int, list[int]] = field(default_factory=dict)
    """By operator: the rows that each of its tasks received, if not none."""


def opened(batches: Iterable[pa.RecordBatch], files: Storage | None = None) -> Results:
    """Open the parcels that arrived in the driver, in an order that does not depend on the shuffle. Raises the
    SinkError of a task that could not write to a sink.
    """
    results = Results()
    parcels = sorted(parcels_of(batches), key=lambda p: p.place)
    done: list[dict[str, Any]] = []
    counts: dict[int, list[dict[str, Any]]] = {}
    for parcel in parcels:
        if parcel.kind == COUNTS:
            counts.setdefault(parcel.view, []).append(orjson.loads(parcel.payload))
        elif parcel.kind == ROWS:
            results.rows.setdefault(parcel.view, []).append(parcel.rows())
        elif parcel.kind == RUNS:
            done.append(orjson.loads(parcel.payload))
        elif parcel.kind == KEYS:
            results.counts.add(KeyCounts.from_json(orjson.loads(parcel.payload)))
        elif parcel.view >= 0:
            _add(_of(results, parcel.view), parcel, files)
    for scan, of_tasks in counts.items():
        _count(results, scan, of_tasks)
    _written(results, done)
    for result in results.operators.values():
        result.close_small()
    if files is not None:
        files.delete(bytes(p.payload).decode() for p in parcels if p.kind == FILE)  # the mappings stay
    return results


def forget_changes(files: Storage, epoch: int) -> None:
    """Remove the files of changes that earlier epochs, or earlier attempts at this one, have left."""
    files.delete(n for n in files.names() if int(n.lstrip(".").partition("-")[0]) <= epoch)


def _count(results: Results, scan: int, counts: Sequence[Mapping[str, Any]]) -> None:
    """The intake of a scan, from the counts of all of its tasks."""
    tally = Tally()
    for task in counts:
        tally.add(Tally.from_json(task["tally"]))
    by_view = ({int(v): n for v, n in _sums(c[name] for c in counts).items()} for name in _BY_VIEW)
    results.intakes[scan] = Intake(tally, {}, *by_view)
    results.partials[scan] = sum(c["partials"] for c in counts)


def _sums(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for by_name in counts:
        for name, number in by_name.items():
            total[name] = total.get(name, 0) + number
    return total


def _written(results: Results, done: Sequence[Mapping[str, Any]]) -> None:
    """The runs that all tasks wrote, and the rows that each of their operators received."""
    for task in done:
        for view, rows in task["rows"].items():
            results.received.setdefault(int(view), []).append(rows)
    views = np.array([view for task in done for view in task["views"]], np.int64)
    if len(views):
        runs = RunBlock.from_columns([task["runs"] for task in done if task["views"]])
        order = np.argsort(views, kind="stable")
        edges = np.flatnonzero(np.diff(views[order])) + 1
        for index in np.split(order, edges):
            _of(results, int(views[index[0]])).runs = runs.take(index)


def _of(results: Results, view: int) -> OperatorResult:
    result = results.operators.get(view)
    if result is None:
        result = results.operators[view] = OperatorResult()
    return result


def _add(result: OperatorResult, parcel: Parcel, files: Storage | None) -> None:
    kind = parcel.kind
    if kind == CHANGES:
        result.changes.append(parcel.rows())
    elif kind == FINAL:
        result.small.append(parcel.payload)
    elif kind == FILE:
        assert files is not None
        result.close_small()
        result.final.append(pa.ipc.open_file(files.map(bytes(parcel.payload).decode())).read_all())
    elif kind == PART:
        result.parts.append(SinkPart(**orjson.loads(parcel.payload)))
    elif kind == REFUSED:
        refused = orjson.loads(parcel.payload)
        raise SinkError(refused["message"], detail=refused["detail"], hint=refused["hint"])
    elif kind == PANES:
        result.panes.append(parcel.rows())
    elif kind == DROPPED:
        result.dropped += [_dropped(d) for d in orjson.loads(parcel.payload)]
    elif kind == FAILURES:
        failed = orjson.loads(parcel.payload)
        result.failures += [Failure(*f) for f in failed["failures"]]
        result.skipped += failed["skipped"]
    elif kind == ANSWERS:
        result.answers += orjson.loads(parcel.payload)


def _dropped(values: Sequence[Any]) -> Dropped:
    dropped = Dropped(*values)
    return dropped if dropped.place is None else dropped._replace(place=(dropped.place[0], dropped.place[1]))
