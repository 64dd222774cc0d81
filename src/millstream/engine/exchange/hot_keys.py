"""Hot keys: which keys have so many rows that one shard would hold an epoch up, and how rows are spread over shards.

Tasks count the keys of the rows that they send, by a sample, and report the most frequent ones. The driver adds the
reports up. EXPLAIN ANALYZE shows the hottest key of each operator. The hot keys of a join are split in the next epoch:
its epoch record names them, so that a rerun does the same. `routes.py` sends their rows, and
`engine/tasks/split_state.py` reads their state. Results never depend on which keys are hot.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl

from millstream.engine.driver.epoch_io import HotKeys, OperatorLoad
from millstream.engine.exchange.graph import Graph
from millstream.plan.operators.operator import Operator

SAMPLE_ROWS = 4_096
"""How many rows of a frame are looked at."""
FREQUENT = 1 / 64
"""The share of the rows of a frame from which a key counts as frequent."""
MOST_KEYS = 16
"""How many keys of a side a task reports, and how many keys of an operator are split."""
SPLIT_ROWS = 10_000
"""A key with fewer rows in an epoch is not split: sending its other side to all shards would cost more."""
SPLIT_SHARE = 0.5
"""A key is split if it has more than this part of what each shard has on average."""


def sampled(count: int) -> np.ndarray:
    """The places of a sample among so many rows: random, because rows may repeat in a pattern, and always the same."""
    if count <= SAMPLE_ROWS:
        return np.arange(count)
    return np.random.default_rng(0).choice(count, SAMPLE_ROWS, replace=False, shuffle=False)


def repeated(hashes: np.ndarray) -> np.ndarray | None:
    """A mask of the rows that are worth combining before they are sent, because their key has many rows here; None if
    there are none.
    """
    sample = hashes[sampled(len(hashes))]
    found, counts = np.unique(sample, return_counts=True)
    is_frequent = counts > max(1, FREQUENT * len(sample))
    others = counts[~is_frequent]
    if len(others) * 2 <= others.sum():  # the other keys repeat, too
        return np.ones(len(hashes), dtype=bool)
    return np.isin(hashes, found[is_frequent]) if is_frequent.any() else None


@dataclass
class KeyCounts:
    """The rows that a task, or all tasks of an epoch, have sent to operators."""

    rows: dict[tuple[int, int], int] = field(default_factory=dict)
    """By view and side: all rows."""
    keys: dict[tuple[int, int], dict[int, int]] = field(default_factory=dict)
    """By view and side: about how many rows the frequent keys have, by their hash."""
    names: dict[int, str] = field(default_factory=dict)
    """The values of frequent keys, by their hash."""

    def note(self, view: int, side: int, hashes: np.ndarray, keys: pl.DataFrame, weights: np.ndarray | None) -> None:
        """Count rows: the hashes of their keys, the keys, and for how many rows each stands."""
        if not len(hashes):
            return
        place = (view, side)
        sample = sampled(len(hashes))
        found, at, inverse = np.unique(hashes[sample], return_index=True, return_inverse=True)
        heights = np.ones(len(inverse)) if weights is None else weights[sample].astype(float)
        counts = np.bincount(inverse, weights=heights)
        total = len(hashes) if weights is None else int(weights.sum())
        self.rows[place] = self.rows.get(place, 0) + total
        scale = total / counts.sum() if counts.sum() else 0.0
        known = self.keys.setdefault(place, {})
        for i in np.argsort(-counts, kind="stable")[:MOST_KEYS].tolist():
            if counts[i] > FREQUENT * counts.sum():
                value = int(found[i])
                known[value] = known.get(value, 0) + round(float(counts[i]) * scale)
                if value not in self.names:
                    row = keys.row(int(sample[at[i]])) if keys.width else ()
                    self.names[value] = ", ".join(str(v) for v in row)

    def add(self, other: KeyCounts) -> None:
        """Add the counts of another task."""
        for place, rows in other.rows.items():
            self.rows[place] = self.rows.get(place, 0) + rows
        for place, keys in other.keys.items():
            mine = self.keys.setdefault(place, {})
            for key, rows in keys.items():
                mine[key] = mine.get(key, 0) + rows
        self.names |= other.names

    def to_json(self) -> dict[str, Any]:
        """Plain data for a parcel."""
        return {
            "rows": [[*place, n] for place, n in self.rows.items()],
            "keys": [[*place, key, n] for place, keys in self.keys.items() for key, n in keys.items()],
            "names": list(self.names.items()),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> KeyCounts:
        """Read what `to_json` wrote."""
        counts = cls({(v, s): n for v, s, n in data["rows"]}, names=dict(map(tuple, data["names"])))  # type: ignore[arg-type]
        for view, side, key, rows in data["keys"]:
            counts.keys.setdefault((view, side), {})[key] = rows
        return counts

    def hottest(self, view: int) -> tuple[str, float] | None:
        """The most frequent key of an operator, and its share of the rows."""
        total = sum(n for (v, _), n in self.rows.items() if v == view)
        together: dict[int, int] = {}
        for (v, _), keys in self.keys.items():
            for key, n in keys.items() if v == view else ():
                together[key] = together.get(key, 0) + n
        if not together or not total:
            return None
        key = min(together, key=lambda k: (-together[k], k))
        return self.names.get(key, ""), together[key] / total

    def to_split(self, view: int, may_split: Sequence[bool], shards: int) -> dict[int, int]:
        """The keys of an operator to split in the next epoch: by hash, the side with more rows."""
        total = sum(n for (v, _), n in self.rows.items() if v == view)
        least = max(SPLIT_ROWS, SPLIT_SHARE * total / shards)
        sides = [self.keys.get((view, side), {}) for side in range(len(may_split))]
        found: dict[int, int] = {}
        for key in set().union(*sides):
            rows = [side.get(key, 0) for side in sides]
            larger = max(range(len(rows)), key=rows.__getitem__)
            if may_split[larger] and rows[larger] >= least:
                found[key] = larger
        chosen = sorted(found, key=lambda k: (-sum(s.get(k, 0) for s in sides), k))[:MOST_KEYS]
        return {key: found[key] for key in chosen}


def loads(
    names: Mapping[int, str], counts: KeyCounts, received: Mapping[int, Sequence[int]]
) -> dict[str, OperatorLoad]:
    """By view: how evenly the rows of its operator were spread, from the rows that each shard received."""
    found = {}
    for view, rows in received.items():
        hottest = counts.hottest(view)
        key, share = hottest or (None, 0.0)
        found[names[view]] = OperatorLoad(sum(rows), max(rows), len(rows), key, share)
    return found


def hot_of_next(hot: HotKeys, graph: Graph, counts: KeyCounts, shards: int) -> HotKeys:
    """The hot keys of the next epoch: what this one has counted. An operator that received nothing keeps its own."""
    seen = {view for view, _ in counts.rows}
    found = {}
    for number, node in graph.nodes.items():
        operator = node.operator
        keys = counts.to_split(number, operator.may_split, shards) if number in seen else hot.get(operator.step, {})
        if keys:
            found[operator.step] = keys
    return found


def split_side(hot: HotKeys, operator: Operator) -> tuple[np.ndarray, np.ndarray]:
    """The hashes of the hot keys of an operator, and the side of each that is split. The operator may have changed
    since the keys were recorded: what it cannot split now is not split.
    """
    may = operator.may_split
    keys = [(k, s) for k, s in sorted(hot.get(operator.step, {}).items()) if s < len(may) and may[s]]
    return np.array([k for k, _ in keys], np.int64), np.array([s for _, s in keys], np.int64)
