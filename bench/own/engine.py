"""The one place of these benchmarks that knows how a running flow tells about its epochs."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import millstream as ms
from bench.own import feed


@dataclass(frozen=True)
class Epoch:
    """How long one committed epoch took, and how much of it was kernels and state (on the executors: 0)."""

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


def start(home: ms.Home, flow: ms.Flow, then: Callable[[], None] = lambda: None) -> tuple[ms.Run, Told]:
    """Start a flow and listen to it; `then` is called after every epoch, before the next one."""
    told = Told()

    def on_epoch(report: Any) -> None:
        told.epochs.append(Epoch(report.rows, report.seconds, report.parts["scan"], report.parts["operators"]))
        then()

    running = home.start(flow, on_epoch=on_epoch)
    while running.loop is None and running.error is None:
        time.sleep(0.01)
    return running, told


def parts(epochs: Sequence[Epoch], goal: float) -> dict[str, Any]:
    """How long epochs took, and their parts; `goal` is for kernels and state, in ms."""
    work_ms = [1e3 * epoch.kernel_and_state_s for epoch in epochs]
    whole_ms = [1e3 * epoch.seconds for epoch in epochs]
    third = max(len(whole_ms) // 3, 1)
    return {
        "kernel_and_state_p50_ms": {"value": feed.percentile(work_ms, 0.5), "goal": goal},
        "kernel_and_state_p99_ms": feed.percentile(work_ms, 0.99),
        "scan_p50_ms": feed.percentile([1e3 * epoch.scan_s for epoch in epochs], 0.5),
        "epoch_p50_ms": feed.percentile(whole_ms, 0.5),
        "epoch_p99_ms": feed.percentile(whole_ms, 0.99),
        "epoch_last_third_over_first": {
            "value": feed.percentile(whole_ms[-third:], 0.5) / feed.percentile(whole_ms[:third], 0.5),
            "goal": 1.2,
        },
    }


def scalar(home: ms.Home, query: str) -> Any:
    """The one value that a query gives; None for no row."""
    rows = home.query(query).to_dicts()
    return next(iter(rows[0].values())) if rows else None
