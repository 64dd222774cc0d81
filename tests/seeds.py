"""The seed of a run: slow tests choose other cases in every run, and the same ones again where a run is replayed."""

from __future__ import annotations

import os


def run_seed() -> int:
    """MILLSTREAM_SEED, which `make test-slow` sets and prints; 0 without it."""
    return int(os.environ.get("MILLSTREAM_SEED") or 0)
