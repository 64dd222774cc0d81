"""The one place of these benchmarks that knows how a running flow tells about its epochs."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import millstream as ms


@dataclass(frozen=True)
class Epoch:
    """How long one committed epoch took, and how much of it was kernels and state (0 if it was not told)."""

    rows: int
    seconds: float
    scan_s: float
    kernel_and_state_s: float


@dataclass
class Told:
    """The epochs of a run, oldest first. A run itself remembers only its latest ones."""

    epochs: list[Epoch] = field(default_factory=list)

    @property
    def seconds(self) -> list[float]:
        """How long every epoch that took rows lasted."""
        return [epoch.seconds for epoch in self.epochs if epoch.rows]


def start(home: ms.Home, flow: ms.Flow) -> tuple[ms.Run, Told]:
    """Start a flow and listen to it."""
    told, phases = Told(), dict[str, float]()

    def on_epoch(report: Any) -> None:
        scan, kernels = phases.pop("scan", 0.0), phases.pop("kernels", 0.0)
        told.epochs.append(Epoch(report.rows, report.seconds, scan, kernels))

    running = home.start(flow, on_epoch=on_epoch)
    while running.loop is None and running.error is None:
        time.sleep(0.01)
    if running.loop is not None:
        # A report leaves the engine's output out, and with it how long the engine's phases took.
        engine: Any = running.loop.engine
        perform = engine.run

        def timed(*arguments: Any) -> Any:
            output = perform(*arguments)
            phases.update(output.seconds)
            return output

        engine.run = timed
    return running, told


def scalar(home: ms.Home, query: str) -> Any:
    """The one value that a query gives; None for no row."""
    rows = home.query(query).rows()
    return next(iter(rows[0].values())) if rows else None
