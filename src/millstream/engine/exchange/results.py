"""What the driver receives of a job: counts of scans, runs, the changes of operators and views, and parts of sinks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson
import polars as pl
import pyarrow as pa

from millstream.connect.port import SinkPart
from millstream.engine.exchange.parcels import (
    CHANGES,
    COUNTS,
    DROPPED,
    FAILURES,
    FILE,
    FINAL,
    PANES,
    PART,
    REFUSED,
    ROWS,
    RUN,
    Parcel,
    parcels_of,
)
from millstream.errors import SinkError
from millstream.kernels.intake import Intake, Tally
from millstream.kernels.outcome import Dropped, Failure
from millstream.state.run import StateRun
from millstream.state.storage import Storage


@dataclass
class OperatorResult:
    """What an operator gave on the executors."""

    runs: list[StateRun] = field(default_factory=list)
    changes: list[pl.DataFrame] = field(default_factory=list)
    """Changes for operators in the driver."""
    final: list[pa.Table] = field(default_factory=list)
    """Finished changes of its view."""
    parts: list[SinkPart] = field(default_factory=list)
    """What tasks have written to the sink of its view instead."""
    panes: list[pl.DataFrame] = field(default_factory=list)
    dropped: list[Dropped] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    skipped: int = 0


@dataclass
class Results:
    """The results of a job: the intake of each scan, and the result of each operator by the number of its view."""

    intakes: dict[int, Intake] = field(default_factory=dict)
    partials: dict[int, int] = field(default_factory=dict)
    """By scan: how many rows were left after combining."""
    rows: dict[int, list[pl.DataFrame]] = field(default_factory=dict)
    """Rows of scans for operators in the driver."""
    operators: dict[int, OperatorResult] = field(default_factory=dict)


def opened(batches: Iterable[pa.RecordBatch], files: Storage | None = None) -> Results:
    """Open the parcels that arrived in the driver, in an order that does not depend on the shuffle. Raises the
    SinkError of a task that could not write to a sink.
    """
    results = Results()
    parcels = sorted(parcels_of(batches), key=lambda p: p.place)
    for parcel in parcels:
        if parcel.kind == COUNTS:
            _count(results, parcel)
        elif parcel.kind == ROWS:
            results.rows.setdefault(parcel.view, []).append(parcel.rows())
        elif parcel.view >= 0:
            _add(results.operators.setdefault(parcel.view, OperatorResult()), parcel, files)
    if files is not None:
        files.delete(bytes(p.payload).decode() for p in parcels if p.kind == FILE)  # the mappings stay
    return results


def forget_changes(files: Storage, epoch: int) -> None:
    """Remove the files of changes that earlier epochs, or earlier attempts at this one, have left."""
    files.delete(n for n in files.names() if int(n.lstrip(".").partition("-")[0]) <= epoch)


def _count(results: Results, parcel: Parcel) -> None:
    counts = orjson.loads(parcel.payload)
    by_view = ({int(v): n for v, n in counts[name].items()} for name in ("late", "applied", "filtered"))
    results.intakes.setdefault(parcel.view, Intake()).add(Intake(Tally.from_json(counts["tally"]), {}, *by_view))
    results.partials[parcel.view] = results.partials.get(parcel.view, 0) + counts["partials"]


def _add(result: OperatorResult, parcel: Parcel, files: Storage | None) -> None:
    kind = parcel.kind
    if kind == RUN:
        result.runs.append(StateRun.from_json(orjson.loads(parcel.payload)))
    elif kind == CHANGES:
        result.changes.append(parcel.rows())
    elif kind == FINAL:
        result.final.append(parcel.rows().to_arrow())
    elif kind == FILE:
        assert files is not None
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


def _dropped(values: Sequence[Any]) -> Dropped:
    dropped = Dropped(*values)
    return dropped if dropped.place is None else dropped._replace(place=(dropped.place[0], dropped.place[1]))
