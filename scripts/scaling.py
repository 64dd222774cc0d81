"""What a flow of a given size needs, and what breaks first: ``python scripts/scaling.py``.

Coefficients are measured or, where marked, assumed. Each names the benchmark that measures it, and can be replaced by
an option, as in ``python scripts/scaling.py --events-per-s 1e6 --us-per-row-level 0.3``.
docs/scaling.md explains the model.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass, fields, replace

RUN_BYTES = 120
"""One run in a version, as tasks receive it. M: the runs of `bench driver-cost`."""


@dataclass(frozen=True)
class Workload:
    """What a flow has to do."""

    events_per_s: float = 10e6
    state_bytes: float = 50e12
    levels: int = 3
    """Levels of exchange that every event passes."""
    operators: int = 20
    epoch_s: float = 10.0
    state_row_bytes: float = 100.0
    changed_share: float = 1.0
    """State rows that an epoch writes per event."""


@dataclass(frozen=True)
class Coefficients:
    """What work costs. M: measured, by what is named; A: assumed, until it is measured as named."""

    us_per_row_scan: float = 0.5
    """CPU per event to read and parse it. A; to be measured as cores over the rows/s of `bench levels`, one level."""
    us_per_row_level: float = 1.0
    """CPU per event and level, with kernel and state. A; to be measured as us_per_row_and_level of `bench levels` times
    cores. A prototype without kernels and state needed 0.28.
    """
    ms_per_level: float = 80.0
    """Wall clock of a level without rows. M: a prototype of the exchange needed 35 to 80 on 2 cores."""
    ms_per_task: float = 4.0
    """Driver time to start one task of Spark. A: Spark schedules some hundred tasks per second."""
    ms_per_put: float = 30.0
    """Wall clock of one PUT of a run. A: a usual object store; an emulator on the same machine is no substitute."""
    puts_in_flight: int = 16
    """PUTs that one core has under way at a time. A."""
    driver_ms_per_run: float = 0.016
    """Driver CPU per run that an epoch adds, with six kept runs for each. M: `bench driver-cost`, 1,000 shards (0.32 s
    for 20,000 runs, on a machine with other work: too high rather than too low).
    """
    runs_kept: float = 6.0
    """Runs per shard and operator that compaction leaves. A: as in `bench driver-cost`."""
    compaction_writes: float = 3.0
    """How often compaction writes a row again. A: log 4 of the growth of a run."""
    core_bytes_per_s: float = 97e6
    """State that a core reads and writes per second in a merge. M: `bench state-files`, merged_mb_per_core_s (97 to 129
    on a machine with other work; writing alone is faster).
    """
    cores_per_executor: int = 16
    disk_bytes_per_executor: float = 2e12
    """Local cache of an executor. A."""
    busy: float = 0.6
    """The share of the epoch in which cores may work: the rest is for stragglers and catching up. A."""
    most_shards: int = 4_096
    """Key groups: state/shard.py."""


@dataclass(frozen=True)
class Needs:
    """What a workload needs."""

    cores: float
    shards: int
    executors: int
    executors_for_state: int
    fixed_s: float
    """Time of an epoch that does not shrink with more cores: levels, PUTs and the driver."""
    driver_s: float
    tasks_s: float
    puts_s: float
    version_bytes: float
    compaction_cores: float
    epoch_s: float


def needs(work: Workload, cost: Coefficients) -> Needs:
    """Derive what a workload needs."""
    us_per_event = cost.us_per_row_scan + work.levels * cost.us_per_row_level
    written = work.events_per_s * work.changed_share * work.state_row_bytes
    compaction = written * cost.compaction_writes * 2 / cost.core_bytes_per_s
    cores = (work.events_per_s * us_per_event / 1e6 + compaction + written / cost.core_bytes_per_s) / cost.busy
    shards = min(cost.most_shards, max(1, math.ceil(cores)))
    runs = shards * work.operators
    driver = runs * cost.driver_ms_per_run / 1e3
    tasks = (work.levels + 1) * shards * cost.ms_per_task / 1e3
    puts = work.operators / cost.puts_in_flight * cost.ms_per_put / 1e3
    fixed = (work.levels + 1) * cost.ms_per_level / 1e3 + puts + driver + tasks
    return Needs(
        cores=cores,
        shards=shards,
        executors=math.ceil(cores / cost.cores_per_executor),
        executors_for_state=math.ceil(work.state_bytes / cost.disk_bytes_per_executor),
        fixed_s=fixed,
        driver_s=driver,
        tasks_s=tasks,
        puts_s=puts,
        version_bytes=runs * cost.runs_kept * RUN_BYTES,
        compaction_cores=compaction,
        epoch_s=max(work.epoch_s, fixed / (1 - cost.busy)),
    )


def breaks_first(work: Workload, cost: Coefficients) -> list[tuple[str, float]]:
    """The limits by the factor by which events may still grow before each is reached, the nearest first. A factor below
    one is exceeded already.
    """
    found = needs(work, cost)
    spare = work.epoch_s * (1 - cost.busy)
    return sorted(
        [
            ("starting tasks: driver time for tasks over the time that an epoch leaves", spare / found.tasks_s),
            ("names and versions: driver time for runs over the same", spare / found.driver_s),
            ("shards: key groups over cores", cost.most_shards / found.cores),
            ("the version, sent with the tasks: 1 GB over its size", 1e9 / found.version_bytes),
            ("PUTs: the time that an epoch leaves over their time", spare / found.puts_s),
        ],
        key=lambda limit: limit[1],
    )


def main() -> None:
    """Print what the workload needs, and what breaks first."""
    parser = argparse.ArgumentParser(description=__doc__)
    known = [(owner, f) for owner in (Workload, Coefficients) for f in fields(owner)]
    for owner, field in known:
        parser.add_argument(f"--{field.name.replace('_', '-')}", type=float, default=getattr(owner(), field.name))
    given = vars(parser.parse_args())
    whole = {f.name for _, f in known if f.type == "int"}
    values = {name: int(value) if name in whole else value for name, value in given.items()}
    work = replace(Workload(), **{f.name: values[f.name] for f in fields(Workload)})
    cost = replace(Coefficients(), **{f.name: values[f.name] for f in fields(Coefficients)})
    found = needs(work, cost)
    lines = [f"{field.name:<22} {getattr(found, field.name):>18,.2f}" for field in fields(found)]
    lines += ["", "what breaks first (events may grow by this factor before it does):"]
    lines += [f"  {factor:>8.2f} x  {name}" for name, factor in breaks_first(work, cost)]
    print("\n".join(lines))  # noqa: T201


if __name__ == "__main__":
    main()
