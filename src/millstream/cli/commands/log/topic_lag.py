"""The progress of the readers of a topic, for `millstream log list`."""

from __future__ import annotations

from pathlib import Path


def committed(home: Path) -> dict[tuple[str, int], int]:
    """The progress of flows, by the name of their hold and the partition; their holds are further back."""
    from millstream.errors import MillstreamError
    from millstream.reader import Reader

    try:
        with Reader(home) as reader:
            rows = reader.watermarks()
    except (MillstreamError, OSError):  # no flow has run, or the owner is too busy to answer
        return {}
    return {(f"{r['flow']}.{r['source']}", r["partition"]): r["offset"] for r in rows if r.get("offset") is not None}


def lag_text(holds: dict[str, int]) -> str:
    """Readers with their lag in records: those that a flow has to read, or that a checkpoint needs."""
    from millstream.runtime.inspect.lag import CHECKPOINT

    keeps = [r.startswith(f"{CHECKPOINT}.") for r in holds]
    readers = (
        f"{r}: keeps {n:,}" if k else f"{r}: {n:,} behind" for k, (r, n) in zip(keeps, holds.items(), strict=True)
    )
    return ", ".join(readers) or "-"
