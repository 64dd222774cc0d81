"""The output of matches: values at their rows and totals over them, as columns. The pattern kernel emits them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from millstream.errors import RunError
from millstream.kernels.aggregates.interval_sums import SPAN, is_span, mean, micros
from millstream.kernels.patterns.search import FoundMatches, PatternRows
from millstream.model.steps.pattern import TIMED_OUT
from millstream.plan.operators.patterns.pattern import PatternMatch
from millstream.plan.operators.patterns.terms import MatchOutput

_FIT = 9.2e18


def outputs(
    match: PatternMatch, keys: tuple[str, ...], rows: PatternRows, matches: FoundMatches, numbers: np.ndarray
) -> pl.DataFrame:
    """One row per match, or per row of a match. `numbers` are those of the matches."""
    first = np.array(matches.first, dtype=np.int64)
    if match.all_rows:
        visible = np.flatnonzero(~matches.hidden)
        base, of = matches.rows[visible], matches.match[visible]
    else:
        visible, base, of = None, first, np.arange(len(first))
    view = _View(match, rows, matches, visible, of, len(first))
    at = pl.Series(base, dtype=pl.UInt32)
    columns = [rows.frame[name].gather(at) for name in (*keys, *match.shown)]
    columns += [view.column(o, numbers) for o in match.outputs]
    if match.timeouts:
        columns.append(pl.Series(TIMED_OUT, np.array(matches.timed_out, dtype=bool)[of]))
    return pl.DataFrame(columns)


@dataclass
class _View:
    match: PatternMatch
    rows: PatternRows
    found_matches: FoundMatches
    visible: np.ndarray | None
    """The positions in `found` of the rows that are shown; None: one row per match."""
    of: np.ndarray
    """The match of each result."""
    matches: int

    def column(self, output: MatchOutput, numbers: np.ndarray) -> pl.Series:
        """The values of an output."""
        if output.kind == "number":
            return pl.Series(output.name, numbers[self.of], dtype=pl.Int64)
        if output.kind == "classifier":
            return self._classifier(output)
        chosen, upto, before = self._chosen(output)
        if output.kind == "at":
            return self._at(output, chosen, upto, before)
        return self._total(output, chosen, upto, before)

    def _classifier(self, output: MatchOutput) -> pl.Series:
        """The variable of the row that is shown, or of the last one."""
        matches = self.found_matches
        if self.visible is not None and output.running:
            at = self.visible
        else:
            counts = np.bincount(matches.match, minlength=self.matches)
            at = (np.cumsum(counts) - 1)[self.of]
        names = pl.Series(list(self.match.variables), dtype=pl.String)
        return names[pl.Series(matches.variable[at], dtype=pl.UInt32)].alias(output.name)

    def _chosen(self, output: MatchOutput) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The rows that an output refers to; and for each result, how many of them are visible and how many belong to
        earlier matches.
        """
        matches = self.found_matches
        chosen = np.isin(matches.variable, output.of) if output.of else np.ones(len(matches.rows), dtype=bool)
        counts = np.bincount(matches.match[chosen], minlength=self.matches)
        before = (np.cumsum(counts) - counts)[self.of]
        if self.visible is not None and output.running:
            upto = np.cumsum(chosen)[self.visible] - before
        else:
            upto = counts[self.of]
        return np.flatnonzero(chosen), upto, before

    def _at(self, output: MatchOutput, chosen: np.ndarray, upto: np.ndarray, before: np.ndarray) -> pl.Series:
        assert output.column is not None
        place = before + (output.offset if output.first else upto - 1 - output.offset)
        there = upto > output.offset
        rows = np.zeros(len(upto), dtype=np.int64)
        rows[there] = self.found_matches.rows[chosen[place[there]]]
        if output.shift:
            key = np.searchsorted(self.rows.starts, rows, side="right") - 1
            rows += output.shift
            there = there & (rows >= self.rows.starts[key]) & (rows < self.rows.ends[key])
        return _gathered(self.rows.frame[output.column], rows, there).alias(output.name)

    def _total(self, output: MatchOutput, chosen: np.ndarray, upto: np.ndarray, before: np.ndarray) -> pl.Series:
        if output.column is None:
            return pl.Series(output.name, upto, dtype=pl.Int64)
        rows = pl.Series(self.found_matches.rows[chosen], dtype=pl.UInt32)
        arguments = self.rows.frame[output.column].gather(rows)
        span = output.kind in ("sum", "avg") and is_span(arguments.dtype)
        values = pl.DataFrame({"m": self.found_matches.match[chosen], "v": micros(arguments) if span else arguments})
        aggregate = _of_spans(output.kind) if span else _cumulated(output.kind, values.schema["v"])
        running = values.select(aggregate.alias("t"))["t"]
        if output.kind in ("sum", "avg") and values.schema["v"].is_integer():
            rough = values.select(pl.col("v").cast(pl.Float64).fill_null(0).cum_sum().over("m"))["v"].abs()
            if (output.kind == "sum" or span) and len(rough) and rough.max() > _FIT:  # type: ignore[operator]
                raise RunError(
                    "a sum over the rows of a match does not fit into 64 bits", hint="sum CAST(... AS DOUBLE)"
                )
        if output.kind == "sum" and isinstance(values.schema["v"], pl.Decimal):
            rough = values.select(pl.col("v").cast(pl.Float64).fill_null(0).cum_sum().over("m"))["v"].abs()
            if len(rough) and rough.max() >= 10.0 ** (38 - values.schema["v"].scale):  # type: ignore[operator]
                raise RunError("a sum over the rows of a match has more than 38 digits", hint="sum CAST(... AS DOUBLE)")
        there = upto > 0
        totals = _gathered(running, np.where(there, before + upto - 1, 0), there)
        return (totals.fill_null(0) if output.kind == "count" else totals).alias(output.name)


def _cumulated(kind: str, of: pl.DataType) -> pl.Expr:
    """A running total over the rows of a match; NULL until the first value."""
    value = pl.col("v")
    known = value.is_not_null().cast(pl.Int64).cum_sum().over("m")
    if kind == "count":
        return known
    if kind in ("min", "max"):
        extreme = value.cum_min() if kind == "min" else value.cum_max()
        return extreme.forward_fill().over("m")
    if kind == "avg":
        total = value.cast(pl.Float64).fill_null(0).cum_sum().over("m")
        return pl.when(known > 0).then(total / known)
    wide = value.cast(pl.Int64) if of.is_integer() else value if of.is_decimal() else value.cast(pl.Float64)
    return pl.when(known > 0).then(wide.fill_null(0).cum_sum().over("m"))


def _of_spans(kind: str) -> pl.Expr:
    """A sum or mean of intervals, from microseconds."""
    known = pl.col("v").is_not_null().cast(pl.Int64).cum_sum().over("m")
    total = pl.col("v").fill_null(0).cum_sum().over("m")
    return mean(total, known) if kind == "avg" else pl.when(known > 0).then(total).cast(SPAN)


def _gathered(values: pl.Series, at: np.ndarray, there: np.ndarray) -> pl.Series:
    """The values at some positions; NULL where they do not exist."""
    if not len(values):
        return pl.Series([None], dtype=values.dtype).new_from_index(0, len(at))
    gathered = values.gather(pl.Series(np.where(there, at, 0), dtype=pl.UInt32))
    if there.all():
        return gathered
    return gathered.to_frame("v").select(pl.when(pl.Series(there)).then(pl.col("v")))["v"]
