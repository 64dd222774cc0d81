"""The table of results in the README: `make bench-table` writes it from bench/results; no figure is typed by hand.

A row of `ROWS` belongs to a result file. Comparisons and contests have one form; a case of our own engine has a text
with places for its figures: ``{epoch_p50_ms:ms}``.
"""

from __future__ import annotations

import json
import string
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.cases import HERE

RESULTS = HERE / "results"
README = HERE.parent / "README.md"
BEGIN, END = "<!-- bench-table: written by `make bench-table` -->", "<!-- /bench-table -->"
HEAD = "| case | size | result | measured | `make bench` with |\n|---|---|---|---|---|"
TIMES = "\N{MULTIPLICATION SIGN}"
SYSTEMS = {"spark": "Spark", "flink": "Flink", "pathway": "Pathway", "bytewax": "Bytewax", "spark-process": "Spark"}


@dataclass(frozen=True)
class Row:
    """One row: the case, what it is called, and for a case of our own engine its size and its result."""

    case: str
    title: str
    size: str = ""
    result: str = ""


ROWS = (
    Row("tumbling-json", "tumbling count, JSON lines"),
    Row("tumbling-parquet", "tumbling count, Parquet"),
    Row("hopping-json", "hopping windows, 60 s every second, JSON lines"),
    Row("hopping-parquet", "hopping windows, 60 s every second, Parquet"),
    Row("sessions-json", "session windows, JSON lines"),
    Row("sessions-parquet", "session windows, Parquet"),
    Row("interval-join", "join of bids to auctions within 10 s"),
    Row("pattern", "`MATCH_RECOGNIZE`, three variables"),
    Row("process", "`process`, a Python function with one value of state per key"),
    Row("nexmark", "Nexmark, JSON lines, against Flink", "see `bench/results`", ""),
    Row(
        "bad-lines",
        "JSON with 20 % NULLs and 0.1 % bad lines against clean JSON",
        "{bids:count} bids",
        "{bad_over_clean:x} the time",
    ),
    Row(
        "ten-views",
        "ten views against one, one source",
        "{bids:count} bids",
        "{json_ten_over_one:x} the time from JSON lines, {parquet_ten_over_one:x} from Parquet",
    ),
    Row(
        "steady",
        "steady load",
        "{events_per_second:count} events/s for 75 s",
        "an epoch takes {epoch_p50_ms:ms} (p50), {epoch_p99_ms:ms} (p99); an event is in the view after "
        "{latency_p50_ms:ms} (p50), {latency_p99_ms:ms} (p99)",
    ),
    Row(
        "state",
        "large state",
        "{keys_held:count} keys, {keys_touched_per_epoch:count} touched per epoch",
        "kernels and state: {kernel_and_state_p50_ms:ms} (p50); {python_mib:mib}",
    ),
    Row(
        "live-windows",
        "live windows with early panes",
        "{windows_held:count}, {windows_touched_per_epoch:count} touched per epoch",
        "kernels and state: {kernel_and_state_p50_ms:ms} (p50)",
    ),
    Row(
        "early-panes",
        "early panes every second against windows that emit on close",
        "{bids:count} bids, {live_keys:count} live keys",
        "{early_over_on_close:x} the time; with retractions {early_retracting_over_on_close:x}",
    ),
    Row(
        "guarantees",
        "exactly once against at most once, with a sink",
        "{bids:count} bids, {epochs:count} epochs",
        "{exactly_over_at_most_seconds:x} the time",
    ),
    Row(
        "memory",
        "memory over time",
        "{epochs:count} epochs of 500 bids",
        "the process grows by {python_growth_mib:mib}",
    ),
    Row(
        "log",
        "append to the log, durable",
        "fsync takes {fsync_ms_p50:tenths} ms",
        "{records_per_s:count} records/s of 1 KB; {rows_per_s:count} rows/s in Arrow batches",
    ),
    Row("log-read", "read a topic", "{bids:count} bids", "{topic_over_parquet:x} the speed of plain Parquet"),
    Row(
        "insert",
        "rows of 16 columns into a stored table",
        "{values_rows:count} by VALUES, {file_rows:count} by COPY",
        "VALUES {values_cpu_s:s}, CSV {csv_cpu_s:s}, JSON lines {json_cpu_s:s}, Parquet {parquet_cpu_s:s} of one core",
    ),
    Row(
        "recovery",
        "time until the next result after a failure",
        "2,000 records/s",
        "worker {worker_s:s}, active standby {active_s:s}, passive standby {passive_s:s}, Java process {java_s:s}, "
        "restart {restart_s:s}",
    ),
    Row(
        "questions",
        "query a view while its flow runs",
        "{rows:count} rows",
        "by key {by_key_p50_ms:ms} (p50), {by_key_p99_ms:ms} (p99); aggregate over all rows {aggregate_p50_ms:ms}, "
        "{aggregate_p99_ms:ms}",
    ),
)


def main() -> None:
    """Write the table into the README."""
    text = README.read_text(encoding="utf-8")
    new = inserted(text, table(results(RESULTS)))
    README.write_text(new, encoding="utf-8")
    sys.stdout.write(f"{README.name}: the table is {'as it was' if new == text else 'new'}\n")


def results(folder: Path) -> dict[str, dict[str, Any]]:
    """What was measured, by case."""
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))}


def inserted(text: str, rows: str) -> str:
    """The text of a document, with the table between its two marks."""
    before, mark, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not mark or not end:
        raise SystemExit(f"{README.name} has no place for the table: {BEGIN} ... {END}")
    return f"{before}{BEGIN}\n\n{rows}\n\n{END}{after}"


def table(measured: Mapping[str, Mapping[str, Any]]) -> str:
    """One line for each row that has a result."""
    return "\n".join([HEAD, *(_line(row, measured[row.case]) for row in ROWS if row.case in measured)])


def _line(row: Row, measured: Mapping[str, Any]) -> str:
    if "systems" in measured:
        size, result = _compared(measured["systems"])
    elif row.case == "nexmark":
        size, result = row.size, _nexmark(measured["figures"])
    else:
        fill = Figures(measured["figures"])
        size, result = fill.format(row.size), fill.format(row.result)
    return f"| {row.title} | {size} | {result} | {measured['date'][:10]} | `ARGS={row.case}` |"


def _compared(systems: list[Mapping[str, Any]]) -> tuple[str, str]:
    """Size and result of a comparison or contest: our rate, then ours / each peer."""
    ours, *peers = systems
    size = f"{_count(ours['events'])} events"
    if ours["fault"] or not ours["events_per_second"]:
        return size, f"no result: {ours['fault']}"
    rounds = len(ours["seconds"])
    said = f"{_count(ours['events_per_second'])} events/s"
    ratios = [_ratio(ours, peer) for peer in peers]
    return f"{size}, {rounds} round{'s' * (rounds > 1)}", ": ".join([said, ", ".join(ratios)]) if ratios else said


def _ratio(ours: Mapping[str, Any], peer: Mapping[str, Any]) -> str:
    name = SYSTEMS[peer["system"]]
    if peer["ours_over_it"] is None:
        return f"{name} without a result"
    share = "" if peer["events"] == ours["events"] else f" (on {_count(peer['events'])})"
    slower = f" (**{name} is faster**)" if peer["ours_over_it"] < 1 else ""
    return f"{_times(peer['ours_over_it'])} {name}{share}{slower}"


def _nexmark(figures: Mapping[str, Any]) -> str:
    by_query = figures["ours_over_flink"]
    each = ", ".join(f"{q} {'none' if ratio is None else f'{ratio:.2g}'}" for q, ratio in by_query.items())
    return f"geometric mean {_times(figures['geometric_mean']['value'])} Flink: {each}"


def _count(value: float) -> str:
    if value >= 1e6:
        return f"{value / 1e6:.3g} M"
    return f"{value:,.0f}" if value < 1e5 else f"{value / 1e3:.0f} k"


def _times(value: float) -> str:
    return f"{value:.2g} {TIMES}" if value < 10 else f"{value:.0f} {TIMES}"


UNITS: Mapping[str, Callable[[float], str]] = {
    "count": _count,
    "x": lambda value: f"{value:.2f} {TIMES}",
    "ms": lambda value: f"{value:.0f} ms",
    "tenths": lambda value: f"{value:.1f}",
    "s": lambda value: f"{value:.1f} s",
    "mib": lambda value: f"{value:,.0f} MiB",
}


class Figures(string.Formatter):
    """Fills a text with figures of a result, each in its unit."""

    def __init__(self, figures: Mapping[str, Any]) -> None:
        self.figures = figures

    def format(self, text: str) -> str:  # type: ignore[override]
        return self.vformat(text, (), self.figures)

    def format_field(self, value: Any, format_spec: str) -> str:
        return UNITS[format_spec](value["value"] if isinstance(value, dict) else value)


if __name__ == "__main__":
    main()
