"""The state of a join in a shard of an epoch that splits hot keys.

The rows of a hot key on its larger side are spread over all shards; those of the other side reach every shard. A shard
then sees a part of the kept rows of the larger side, and all kept rows of the other: every pair is found in exactly one
shard. Which part is decided by the identity of a row and the number of shards, not by the file that holds it, so a key
may become hot or cold at any time without a change of state.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl

from millstream.clock import Micros
from millstream.kernels.hashing import mixed
from millstream.kernels.outcome import Outcome, StateRows
from millstream.state.shard import StateReader


class SplitState:
    """One side's state in one of `shards`: its own range of hashes, and hot keys. Of hot keys that are split it shows
    its part.
    """

    def __init__(
        self, own: StateReader, hot: Mapping[int, StateReader], split: np.ndarray, part: int, shards: int
    ) -> None:
        self._own, self._hot, self._split = own, hot, split
        self._keys = np.array(list(hot), np.int64)
        self._part, self._shards = part, shards

    def lookup(self, hashes: np.ndarray, after: Micros) -> pl.DataFrame | None:
        """The rows for these hashes that expire after an instant."""
        hot = np.isin(hashes, self._keys)
        parts = [self._own.lookup(hashes[~hot], after)]
        parts += [self._mine(self._hot[key].lookup(np.array([key]), after)) for key in hashes[hot].tolist()]
        found = [p for p in parts if p is not None and len(p)]
        return pl.concat(found, rechunk=False) if found else None

    def due(self, columns: Mapping[str, tuple[int, int]], after: Micros) -> np.ndarray:
        """The hashes of rows that have a number in one of these columns within its range."""
        own = self._own.due(columns, after)
        hot = [key for key, state in self._hot.items() if key in state.due(columns, after)]
        return np.union1d(own[~np.isin(own, self._keys)], np.array(hot, np.int64))

    def scan(self, after: Micros) -> pl.DataFrame | None:
        """Not for joins."""
        raise NotImplementedError

    def first(self) -> Micros:
        """Not for joins."""
        raise NotImplementedError

    def _mine(self, rows: pl.DataFrame | None) -> pl.DataFrame | None:
        if rows is None or not len(self._split):
            return rows
        whole = ~np.isin(rows["$h"].to_numpy(), self._split)
        part = mixed(rows["$a"].to_numpy().view(np.uint64)) % np.uint64(self._shards)
        return rows.filter(pl.Series(whole | (part == np.uint64(self._part))))


def kept(outcome: Outcome, name: str, keys: np.ndarray, hashes: tuple[int, int]) -> list[StateRows]:
    """The state rows of a side that a shard writes: those of its own range of hashes, and separately the rows of hot
    keys, so that other shards need not open the run of the former. `keys` are the hot keys whose rows reach every
    shard: only the shard that they belong to keeps them.
    """
    if name not in outcome.state_rows:
        return []
    rows, expiry = outcome.state_rows[name]
    of_rows = rows["$h"].to_numpy()
    own = (of_rows >= hashes[0]) & (of_rows <= hashes[1])
    parts = [own, ~own & ~np.isin(of_rows, keys)]
    return [StateRows(rows.filter(pl.Series(p)), expiry[p]) for p in parts if p.any()]
