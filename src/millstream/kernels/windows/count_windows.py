"""Count windows: the rows of a key, numbered by event time, partition and offset.

A late row may shift all later rows of its key by one, so rows are kept until the windows over them have expired. Each
key has one additional row, the **head** (``$part`` -1): how many rows were dropped before the first kept one
(``$base``), the next window (``$j``), and the position of the last row of the last expired window (``$ts``, ``$fp``,
``$fq``). Rows up to that position are late. The pane kernel receives the windows that changed.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from millstream.clock import ALL_READ, BEGINNING
from millstream.kernels.aggregates.combine import combine, group_columns
from millstream.kernels.frames import concat_rows
from millstream.kernels.outcome import BEHIND, Dropped, OperatorClock, State
from millstream.kernels.windows.window_state import NEW_RECORDS
from millstream.model.windows.kinds import CountWindow
from millstream.plan.operators.aggregates.aggregation import Aggregation

_HEAD = ("$base", "$j", "$fp", "$fq")


def keys_of(
    spec: Aggregation, records: State, clock: OperatorClock, expired: pl.DataFrame | None, arrivals: pl.DataFrame | None
) -> CountedKeys | None:
    """The keys that an epoch touches, through expired windows or new rows; None if there are none."""
    by = ["$h", *spec.keys]
    touched = [f.select(by) for f in (expired, arrivals) if f is not None and len(f)]
    if not touched:
        return None
    keys = pl.concat(touched).unique()
    state_rows = records.lookup(keys["$h"].unique().sort().to_numpy(), clock.before)
    if state_rows is not None:
        state_rows = state_rows.filter(~pl.col("$gone")).join(keys, on=by, how="semi", nulls_equal=True)
    return CountedKeys(spec, by, keys, state_rows)


class CountedKeys:
    """The rows and heads of some keys."""

    def __init__(self, spec: Aggregation, by: list[str], keys: pl.DataFrame, state_rows: pl.DataFrame | None) -> None:
        assert isinstance(spec.window, CountWindow)
        self.spec, self.by, self.window = spec, by, spec.window
        zero = {"$ts": BEGINNING, "$base": 0, "$j": 0, "$fp": -1, "$fq": -1}
        fresh = keys.with_columns(pl.lit(v, pl.Int64).alias(c) for c, v in zero.items())
        self.rows: pl.DataFrame | None = None
        self.heads = fresh
        if state_rows is not None:
            heads = state_rows.filter(pl.col("$part") == -1).select(fresh.columns)
            self.heads = pl.concat([heads, fresh.join(heads, on=by, how="anti", nulls_equal=True)])
            self.rows = state_rows.filter(pl.col("$part") >= 0).drop(*_HEAD, "$gone", "$x")
        self.gone: list[pl.DataFrame] = []
        self.new: pl.DataFrame | None = None

    def let_go(self, expired: pl.DataFrame) -> None:
        """Drop the rows that only expired windows covered."""
        size, slide = self.window.size, self.window.slide
        last = expired.group_by(self.by).agg(pl.col("$s").max().alias("$last"))
        heads = self.heads.join(last, on=self.by, how="left", nulls_equal=True, maintain_order="left")
        start = ((pl.col("$last") + 2) * slide - size).clip(lower_bound=0)
        heads = heads.with_columns(pl.max_horizontal("$base", start.fill_null(0)).alias("$start"))
        if self.rows is not None and len(self.rows):
            numbered = self._numbered(self.rows, heads.select(*self.by, "$base", "$start", "$last"))
            edge = numbered.filter(pl.col("$r") == (pl.col("$last") + 1) * slide - 1)
            places = edge.select(*self.by, "$ts", "$part", "$pos").rename({"$ts": "$et", "$part": "$ep", "$pos": "$eq"})
            heads = heads.join(places, on=self.by, how="left", nulls_equal=True, maintain_order="left")
            heads = heads.with_columns(
                pl.coalesce("$et", "$ts").alias("$ts"),
                pl.coalesce(pl.col("$ep").cast(pl.Int64), "$fp").alias("$fp"),
                pl.coalesce("$eq", "$fq").alias("$fq"),
            ).drop("$et", "$ep", "$eq")
            whole = self.rows.columns
            self.gone.append(numbered.filter(pl.col("$r") < pl.col("$start")).select(whole))
            self.rows = numbered.filter(pl.col("$r") >= pl.col("$start")).select(whole)
        self.heads = heads.with_columns(
            pl.col("$start").alias("$base"), pl.max_horizontal("$j", pl.col("$last") + 1).alias("$j")
        ).drop("$start", "$last")

    def take(self, arrivals: pl.DataFrame) -> list[Dropped]:
        """Add rows, except those that fall into an expired window."""
        arrivals = arrivals.drop("$s", "$e", strict=False)
        fronts = self.heads.select(*self.by, pl.col("$ts").alias("$ft"), "$fp", "$fq")
        marked = arrivals.join(fronts, on=self.by, how="left", nulls_equal=True, maintain_order="left")
        equal_time, equal_part = pl.col("$ts") == pl.col("$ft"), pl.col("$part") == pl.col("$fp")
        late = (pl.col("$ts") < pl.col("$ft")) | (
            equal_time & ((pl.col("$part") < pl.col("$fp")) | (equal_part & (pl.col("$pos") <= pl.col("$fq"))))
        )
        refused = marked.filter(late)
        self.new = marked.filter(~late).drop("$ft", "$fp", "$fq")
        self.rows = self.new if self.rows is None else pl.concat([self.rows.select(self.new.columns), self.new])
        marks = refused.select("$h", "$ts", "$ft", "$part", "$pos")
        return [Dropped(h, ts, ts + 1, BEHIND, front, 1, (p, o)) for h, ts, front, p, o in marks.iter_rows()]

    def contents(self) -> pl.DataFrame | None:
        """The windows that changed, each with its complete contents. ``$new`` counts the rows it did not have before:
        new rows, and rows shifted into it from the previous window.
        """
        if self.rows is None or not len(self.rows):
            return None
        size, slide = self.window.size, self.window.slide
        old = len(self.rows) - (0 if self.new is None else len(self.new))  # new rows are at the end
        marked = self.rows.with_columns(pl.Series("$came", np.arange(len(self.rows)) >= old))
        rows = self._numbered(marked, self.heads.select(*self.by, "$base", "$j"))
        rows = rows.with_columns((pl.col("$r") - pl.col("$came").cast(pl.Int64).cum_sum().over(self.by)).alias("$was"))
        number = rows["$r"].to_numpy()
        first = np.maximum(rows["$j"].to_numpy(), number // slide)
        counts = np.maximum((number + size) // slide - first, 0)
        chosen = np.repeat(np.arange(len(rows)), counts)
        places = np.arange(len(chosen)) - np.repeat(np.cumsum(counts) - counts, counts)
        windows = pl.Series("$s", first[chosen] + places, dtype=pl.Int64)
        rows = rows[pl.Series(chosen, dtype=pl.UInt32)].with_columns(windows, windows.alias("$e"))
        where = group_columns(self.spec)
        new = pl.col("$came") | (pl.col("$was") < (pl.col("$s") + 1) * slide - size)
        edges = rows.group_by(where).agg(
            pl.col("$ts").min().alias("$from"),
            pl.col("$ts").max().alias("$to"),
            new.cast(pl.Int64).sum().alias(NEW_RECORDS),
        )
        changed = edges.filter(pl.col(NEW_RECORDS) > 0)
        if not len(changed):
            return None
        partials = combine(self.spec, rows.join(changed, on=where, how="semi", nulls_equal=True))
        partials = partials.join(changed, on=where, how="left", nulls_equal=True, maintain_order="left")
        full = pl.min_horizontal(pl.lit(size), (pl.col("$s") + 1) * slide)
        end = pl.when(pl.col("$n") >= full).then(pl.col("$to") + 1).otherwise(ALL_READ)
        return partials.with_columns(end.cast(pl.Int64).alias("$end"))

    def changed(self) -> pl.DataFrame | None:
        """The rows and heads to write."""
        place = ["$h", "$part", "$pos", *self.spec.keys]
        gone, new = concat_rows([g.select(self.gone[0].columns) for g in self.gone]), self.new
        if gone is not None and new is not None:
            both = gone.join(new, on=place, how="semi", nulls_equal=True)
            new = new.join(both, on=place, how="anti", nulls_equal=True)
            gone = gone.join(both, on=place, how="anti", nulls_equal=True)
        template = next((f for f in (new, gone, self.rows) if f is not None), None)
        if template is None:
            return None
        blank = [pl.lit(None, t).alias(c) for c, t in template.schema.items() if c not in self.heads.columns]
        heads = self.heads.with_columns(
            *(b for b in blank if b.meta.output_name() not in ("$part", "$pos")),
            pl.lit(-1).cast(template.schema["$part"]).alias("$part"),
            pl.lit(-1, pl.Int64).alias("$pos"),
            pl.lit(value=False).alias("$gone"),
        )
        written = [heads]
        for frame, dead in ((new, False), (gone, True)):
            if frame is not None and len(frame):
                none = [pl.lit(0, pl.Int64).alias(c) for c in _HEAD]
                written.append(frame.with_columns(*none, pl.lit(dead).alias("$gone")))
        whole = pl.concat([f.select(heads.columns) for f in written])
        return whole.with_columns(pl.lit(ALL_READ, pl.Int64).alias("$x"))

    def _numbered(self, rows: pl.DataFrame, heads: pl.DataFrame) -> pl.DataFrame:
        ordered = rows.sort([*self.by, "$ts", "$part", "$pos"])
        joined = ordered.join(heads, on=self.by, how="left", nulls_equal=True, maintain_order="left")
        rank = pl.int_range(pl.len(), dtype=pl.Int64).over(self.by)
        return joined.with_columns((pl.col("$base") + rank).alias("$r"))
