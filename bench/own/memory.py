"""2,000 epochs of 500 bids: does memory stay flat, and does an epoch take as long at the end as at the start?

Every epoch is one file, caught up with before the next one comes. Windows close and leave the state all the
time.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import millstream as ms
from bench.own import engine, feed

EPOCHS, PER_EPOCH = 2_000, 500
WARM_UP_EPOCHS, SAMPLE_EVERY = 200, 50


def measure(work: Path, events: int | None) -> dict[str, Any]:
    number = (events or EPOCHS * PER_EPOCH) // PER_EPOCH
    folder = feed.Folder(work / "bids", "json")
    flow = ms.Flow("memory")
    bids = feed.source(flow, folder.path, "json")
    bids.key_by("auction").window(ms.tumbling("10 seconds")).aggregate(bids=ms.count()).view(
        "counts", retention="1 minute"
    )
    samples: list[dict[str, float]] = []
    with ms.open(str(work / "home")) as home:
        running, told = engine.start(home, flow)
        for i in range(number):
            folder.release(folder.stage(feed.bids(i * PER_EPOCH, PER_EPOCH)))
            running.catch_up()
            if i % SAMPLE_EVERY == SAMPLE_EVERY - 1:
                samples.append(feed.memory())
        running.stop()
    times = [1e3 * seconds for seconds in told.seconds]
    steady = samples[min(WARM_UP_EPOCHS // SAMPLE_EVERY, len(samples) - 1) :]
    tenth = max(len(times) // 10, 1)
    early, late = times[tenth : 2 * tenth], times[-tenth:]
    return {
        "epochs": len(times),
        "python_mib_first": steady[0]["python"],
        "python_mib_last": steady[-1]["python"],
        "python_growth_mib": {"value": steady[-1]["python"] - steady[0]["python"], "goal": 64.0},
        "jvm_and_workers_mib_first": steady[0]["children"],
        "jvm_and_workers_mib_last": steady[-1]["children"],
        "epoch_p50_ms_second_tenth": feed.percentile(early, 0.5),
        "epoch_p50_ms_last_tenth": feed.percentile(late, 0.5),
        "epoch_last_over_second_tenth": {
            "value": feed.percentile(late, 0.5) / feed.percentile(early, 0.5),
            "goal": 1.2,
        },
        "samples": str([round(sample["python"]) for sample in samples]),
    }
