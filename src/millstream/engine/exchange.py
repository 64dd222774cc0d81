"""Large epochs on the executors: combine where the rows are, exchange by key group, and run kernels where the state is.

What travels between tasks is a table of parcels (kind, view, shard, payload), the payload being an Arrow stream; so one
shuffle serves stages of any shape, and Spark plans, retries and places the tasks.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

import orjson
import polars as pl
import pyarrow as pa

from millstream.kernels.aggregate import StageClock, advance
from millstream.kernels.combine import group_columns
from millstream.kernels.intake import Intake, Role, Tally, gather, take_in
from millstream.plan.stages import Aggregation
from millstream.state.run import Run, write_run
from millstream.state.shard import RunCache, StateReader, shard_of, shard_range

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
    stages: dict[int, tuple[Aggregation, StageClock, tuple[Run, ...]]] = field(default_factory=dict)


def pack(frame: pl.DataFrame) -> bytes:
    """A frame as an Arrow stream."""
    sink = io.BytesIO()
    frame.write_ipc_stream(sink)
    return sink.getvalue()


def unpack(data: bytes) -> pl.DataFrame:
    """Read what `pack` wrote."""
    return pl.read_ipc_stream(io.BytesIO(data))


def scan_task(roles: list[Role], future: int, shards: int) -> Callable[[Batches], Batches]:
    """A task that takes in the rows of a scan and sends parcels of partials, one per view and shard."""

    def run(batches: Batches) -> Batches:
        total = Intake()
        for batch in batches:
            if not batch.num_rows:
                continue
            rows = pl.from_arrow(pa.Table.from_batches([batch]))
            total.add(take_in(rows, roles, future))  # type: ignore[arg-type]
            _shrink(total, roles)
        for role in roles:
            frames = total.frames.get(role.view)
            if not frames:
                continue
            if isinstance(role.stage, Aggregation):
                partial = _whole(role.stage, frames)
                owner = pl.Series(shard_of(partial["$h"].to_numpy(), shards))
                for shard in owner.unique().to_list():
                    yield _parcel("rows", role.view, shard, pack(partial.filter(owner == shard)))
            else:
                yield _parcel("rows", role.view, 0, pack(pl.concat(frames)))
        counts = {"tally": asdict(total.tally), "late": total.late, "applied": total.applied}
        yield _parcel("counts", -1, 0, orjson.dumps(counts, option=orjson.OPT_NON_STR_KEYS))

    return run


def kernel_task(task: KernelTask) -> Callable[[Batches], Batches]:
    """A task that runs the kernels of one shard over the parcels sent to it; other parcels pass through."""

    def run(batches: Batches) -> Batches:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        shard, attempt = context.partitionId(), context.taskAttemptId()
        frames: dict[int, list[pl.DataFrame]] = {}
        for batch in batches:
            for parcel in batch.to_pylist():
                if parcel["kind"] == "rows" and parcel["view"] in task.stages:
                    frames.setdefault(parcel["view"], []).append(unpack(parcel["payload"]))
                else:
                    yield _parcel(parcel["kind"], parcel["view"], shard, parcel["payload"])
        cache = RunCache(Path(task.root), verify=False)
        for view, (stage, clock, runs) in task.stages.items():
            state = StateReader(cache, runs, group_columns(stage), shard_range(shard, task.shards))
            outcome = advance(stage, gather(stage, frames.get(view, [])), state, clock)
            if outcome.rows is not None:
                name = f"{stage.step}/{task.epoch:012d}-{task.attempt}-{shard}-{attempt}.arrow"
                run_ = write_run(cache.root, name, outcome.rows, outcome.expiry)
                yield _parcel("run", view, shard, orjson.dumps(run_.to_json()))
            if outcome.changes is not None:
                yield _parcel("changes", view, shard, pack(outcome.changes))

    return run


def opened(parcels: pa.Table) -> tuple[Intake, dict[int, list[pl.DataFrame]], dict[int, list[Run]]]:
    """What the driver gets from the parcels: rows and counts, changes, and the runs that were written."""
    intake = Intake()
    changes: dict[int, list[pl.DataFrame]] = {}
    runs: dict[int, list[Run]] = {}
    for parcel in parcels.sort_by([("view", "ascending"), ("shard", "ascending")]).to_pylist():
        kind, view, payload = parcel["kind"], parcel["view"], parcel["payload"]
        if kind == "rows":
            intake.frames.setdefault(view, []).append(unpack(payload))
        elif kind == "changes":
            changes.setdefault(view, []).append(unpack(payload))
        elif kind == "run":
            runs.setdefault(view, []).append(Run.from_json(orjson.loads(payload)))
        else:
            counts = orjson.loads(payload)
            tally = counts["tally"]
            tally["newest"] = {int(p): t for p, t in tally["newest"].items()}
            intake.add(
                Intake(
                    Tally(**tally),
                    late={int(v): n for v, n in counts["late"].items()},
                    applied={int(v): n for v, n in counts["applied"].items()},
                )
            )
    return intake, changes, runs


def _shrink(intake: Intake, roles: list[Role]) -> None:
    """Fold what was taken in so far, so that a task holds about one row per key."""
    for role in roles:
        frames = intake.frames.get(role.view)
        if frames and len(frames) > 1 and isinstance(role.stage, Aggregation) and sum(map(len, frames)) > _FOLD_ROWS:
            intake.frames[role.view] = [_whole(role.stage, frames)]


def _whole(stage: Aggregation, frames: list[pl.DataFrame]) -> pl.DataFrame:
    if "$n" not in frames[0].columns:
        return pl.concat(frames)
    folded = gather(stage, frames)
    assert folded is not None
    return folded


def _parcel(kind: str, view: int, shard: int, payload: bytes) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(
        [{"kind": kind, "view": view, "shard": shard, "payload": payload}], schema=_SCHEMA
    )
