"""Large epochs on the executors: combine where the rows are, exchange by key group, and run kernels next to the state.

Tasks exchange a table of parcels (kind, view, shard, payload). The payload is an Arrow stream, so one shuffle serves
operators with any columns, and Spark plans, retries and places the tasks. The driver receives changes, counts and the
names of runs.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

import orjson
import polars as pl
import pyarrow as pa

from millstream.engine.driver.driver import states_of, write_outcome
from millstream.kernels.intake import Intake, Tally, gather, take_in
from millstream.kernels.kernel import advance
from millstream.kernels.outcome import Dropped, OperatorClock
from millstream.kernels.scan_input import Role
from millstream.plan.operators.operator import Operator
from millstream.state.run import StateRun
from millstream.state.shard import RunCache, shard_of, shard_range
from millstream.state.version import Version

PARCEL = "kind STRING, view INT, shard INT, payload BINARY"
_SCHEMA = pa.schema([("kind", pa.string()), ("view", pa.int32()), ("shard", pa.int32()), ("payload", pa.binary())])
_FOLD_ROWS = 400_000

Batches = Iterator[pa.RecordBatch]


@dataclass(frozen=True)
class KernelTask:
    """What a task needs to run the kernels of one shard."""

    root: str
    epoch: int
    attempt: int
    shards: int
    version: Version
    operators: dict[int, tuple[Operator, OperatorClock]]


def pack(frame: pl.DataFrame) -> bytes:
    """A frame as an Arrow stream."""
    sink = io.BytesIO()
    frame.write_ipc_stream(sink)
    return sink.getvalue()


def unpack(data: bytes) -> pl.DataFrame:
    """Read what `pack` wrote."""
    return pl.read_ipc_stream(io.BytesIO(data))


def scan_task(
    roles: list[Role], future: int, shards: int, known: Mapping[int, int] | None = None
) -> Callable[[Batches], Batches]:
    """A task that takes in the rows of a scan and sends parcels of partials, one per view and shard."""

    def run(batches: Batches) -> Batches:
        total = Intake()
        for batch in batches:
            if not batch.num_rows:
                continue
            rows = pl.from_arrow(pa.Table.from_batches([batch]))
            total.add(take_in(rows, roles, future, known))  # type: ignore[arg-type]
            _shrink(total, roles)
        for role in roles:
            frames = total.frames.get(role.view)
            if not frames:
                continue
            if role.operator.keyed_scan:
                partial = _whole(role.operator, frames)
                owner = pl.Series(shard_of(partial["$h"].to_numpy(), shards))
                for shard in owner.unique().to_list():
                    yield _parcel("rows", role.view, shard, pack(partial.filter(owner == shard)))
            else:
                yield _parcel("rows", role.view, 0, pack(pl.concat(frames)))
        counted = {"late": total.late, "applied": total.applied, "filtered": total.filtered}
        counts = {"tally": asdict(total.tally), **counted}
        yield _parcel("counts", -1, 0, orjson.dumps(counts, option=orjson.OPT_NON_STR_KEYS))

    return run


def kernel_task(task: KernelTask) -> Callable[[Batches], Batches]:
    """A task that runs the kernels of one shard over its parcels. Other parcels pass through."""

    def run(batches: Batches) -> Batches:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        shard, attempt = context.partitionId(), context.taskAttemptId()
        frames: dict[int, list[pl.DataFrame]] = {}
        for batch in batches:
            for parcel in batch.to_pylist():
                if parcel["kind"] == "rows" and parcel["view"] in task.operators:
                    frames.setdefault(parcel["view"], []).append(unpack(parcel["payload"]))
                else:
                    yield _parcel(parcel["kind"], parcel["view"], shard, parcel["payload"])
        cache = RunCache(Path(task.root), verify=False)
        for view, (operator, clock) in task.operators.items():
            states = states_of(cache, operator, task.version, shard_range(shard, task.shards))
            inputs = {"rows": gather(operator, frames.get(view, []))}
            outcome = advance(operator, inputs, states, clock)
            name = f"{task.epoch:012d}-{task.attempt}-{shard}-{attempt}"
            for written in write_outcome(cache.root, operator, outcome, name):
                yield _parcel("run", view, shard, orjson.dumps(written.to_json()))
            if outcome.changes is not None:
                yield _parcel("changes", view, shard, pack(outcome.changes))
            if outcome.panes is not None:
                yield _parcel("panes", view, shard, pack(outcome.panes))
            if outcome.dropped:
                yield _parcel("dropped", view, shard, orjson.dumps([list(d) for d in outcome.dropped]))

    return run


@dataclass
class Opened:
    """What the driver receives in parcels: rows and counts, and the outcomes of kernels by view."""

    intake: Intake = field(default_factory=Intake)
    changes: dict[int, list[pl.DataFrame]] = field(default_factory=dict)
    panes: dict[int, list[pl.DataFrame]] = field(default_factory=dict)
    dropped: dict[int, list[Dropped]] = field(default_factory=dict)
    runs: dict[int, list[StateRun]] = field(default_factory=dict)


def opened(parcels: pa.Table) -> Opened:
    """Open the parcels that arrived in the driver."""
    found = Opened()
    for parcel in parcels.sort_by([("view", "ascending"), ("shard", "ascending")]).to_pylist():
        kind, view, payload = parcel["kind"], parcel["view"], parcel["payload"]
        if kind == "rows":
            found.intake.frames.setdefault(view, []).append(unpack(payload))
        elif kind == "changes":
            found.changes.setdefault(view, []).append(unpack(payload))
        elif kind == "panes":
            found.panes.setdefault(view, []).append(unpack(payload))
        elif kind == "dropped":
            found.dropped.setdefault(view, []).extend(Dropped(*d) for d in orjson.loads(payload))
        elif kind == "run":
            found.runs.setdefault(view, []).append(StateRun.from_json(orjson.loads(payload)))
        else:
            counts = orjson.loads(payload)
            found.intake.add(
                Intake(
                    Tally.from_json(counts["tally"]),
                    late={int(v): n for v, n in counts["late"].items()},
                    applied={int(v): n for v, n in counts["applied"].items()},
                    filtered={int(v): n for v, n in counts["filtered"].items()},
                )
            )
    return found


def _shrink(intake: Intake, roles: list[Role]) -> None:
    """Fold the intake so far, so that a task holds about one row per key."""
    for role in roles:
        frames = intake.frames.get(role.view)
        if frames and len(frames) > 1 and role.operator.keyed_scan and sum(map(len, frames)) > _FOLD_ROWS:
            intake.frames[role.view] = [_whole(role.operator, frames)]


def _whole(operator: Operator, frames: list[pl.DataFrame]) -> pl.DataFrame:
    if "$n" not in frames[0].columns:
        return pl.concat(frames)
    folded = gather(operator, frames)
    assert folded is not None
    return folded


def _parcel(kind: str, view: int, shard: int, payload: bytes) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(
        [{"kind": kind, "view": view, "shard": shard, "payload": payload}], schema=_SCHEMA
    )
