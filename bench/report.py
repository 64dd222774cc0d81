"""What was measured, for people (a table) and for programs (bench/results/<case>.json)."""

from __future__ import annotations

import json
import os
import platform
import statistics
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench import data
from bench.cases import HERE, Comparison, OwnCase
from bench.contests import Contest
from bench.rounds import Runs, middle, ours_of

RESULTS = HERE / "results"


def comparison(case: Comparison, results: list[Runs], console: Console, keep: bool) -> None:
    """Show the results of one comparison, and keep them if asked to."""
    ours = ours_of(results)
    rows = [_row(case, runs, ours) for runs in results]
    table = Table(title=f"{case.name}: {case.title}", title_justify="left")
    for name in ("system", "version", "M events/s", "spread", "ours / it", "spread", "goal", "answer"):
        table.add_column(name, justify="left" if name in ("system", "version", "answer") else "right")
    for row in rows:
        table.add_row(
            row["system"],
            row["version"],
            _number(row["events_per_second"], 1e6, 3),
            _span(row["events_per_second_all"], 1e6, 3),
            _number(row["ours_over_it"], 1, 2),
            _span(row["ours_over_it_all"], 1, 2),
            "" if row["goal"] is None else f"{row['goal']:.1f}" + _mark(row["ours_over_it"], row["goal"]),
            row["fault"] or "right",
        )
    console.print(table)
    if not keep:
        return
    settings = {
        "key": case.key,
        "size_s": case.size,
        "slide_s": case.slide,
        "gap_s": case.gap,
        "lateness_s": case.lateness,
    }
    _write(case.name, {"case": case.title, "settings": {**settings, "format": case.format}, "systems": rows})


def own(case: OwnCase, figures: dict[str, Any], console: Console, keep: bool) -> None:
    """Show the figures of one case of our own, and keep them if asked to. A figure may come with its goal, and with
    what it is the median of: {"value": 81, "goal": 100, "all": [80, 81, 95]}; ``at_least`` is a goal from below.
    """
    table = Table(title=f"{case.name}: {case.title}", title_justify="left")
    for name in ("figure", "value", "goal"):
        table.add_column(name, justify="left" if name == "figure" else "right")
    for name, figure in figures.items():
        value, goal = (figure["value"], figure.get("goal")) if isinstance(figure, dict) else (figure, None)
        shown = f"{value:,.3f}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
        least = figure.get("at_least") if isinstance(figure, dict) else None
        met = "" if goal is None else f"at most {goal:,}" + (" ok" if value <= goal else " MISSED")
        met = met if least is None else f"at least {least:,}" + (" ok" if value >= least else " MISSED")
        table.add_row(name.replace("_", " "), shown, met)
    console.print(table)
    if keep:
        _write(case.name, {"case": case.title, "figures": figures})


def contest(case: Contest, results: list[Runs], console: Console, keep: bool) -> None:
    """Show the results of one contest, and keep them if asked to."""
    ours = ours_of(results)
    rows = [_row(case, runs, ours) for runs in results]
    table = Table(title=f"{case.name}: {case.title}", title_justify="left")
    for name in ("system", "events", "seconds", "events/s", "peak MiB", "ours / it", "spread", "goal", "answer"):
        table.add_column(name, justify="left" if name in ("system", "answer") else "right")
    for row in rows:
        table.add_row(
            row["system"],
            f"{row['events']:,}",
            _number(middle([s for s in row["seconds"] if s]), 1, 2),
            _number(row["events_per_second"], 1, 0),
            _number(row["peak_mib"], 1, 0),
            _number(row["ours_over_it"], 1, 2),
            _span(row["ours_over_it_all"], 1, 2),
            "" if row["goal"] is None else f"{row['goal']:.1f}" + _mark(row["ours_over_it"], row["goal"]),
            row["fault"] or ("right" if case.compares else "not compared"),
        )
    console.print(table)
    if keep:
        settings = {"ours": case.ours, **case.dialects, "lateness_s": case.lateness, "kinds": case.kinds}
        _write(case.name, {"case": case.title, "settings": settings, "systems": rows})


def geometric(ratios: dict[str, float | None], goal: float, console: Console, keep: bool) -> None:
    """Show the geometric mean of ours / Flink over the queries that were asked, and the queries that miss 1.0."""
    known = {name: ratio for name, ratio in ratios.items() if ratio}
    if not known:
        return
    mean = statistics.geometric_mean(known.values())
    behind = ", ".join(f"{name} {ratio:.2f}" for name, ratio in known.items() if ratio < 1) or "none"
    void = ", ".join(name for name, ratio in ratios.items() if not ratio) or "none"
    console.print(f"nexmark: ours / flink over {len(known)} queries, geometric mean {mean:.2f} (goal {goal})")
    console.print(f"  below 1.0: {behind}; without a ratio: {void}")
    if keep:
        figures = {"geometric_mean": {"value": mean, "at_least": goal}, "ours_over_flink": ratios}
        _write("nexmark", {"case": "ours / flink on the queries of Nexmark", "figures": figures})


def _row(case: Comparison | Contest, runs: Runs, ours: Runs | None) -> dict[str, Any]:
    ratios = runs.ratios(ours) if ours and runs is not ours else []
    return {
        "system": runs.peer.name,
        "version": runs.said.get("version", ""),
        "events": runs.events,
        "events_sha256": runs.sha256,
        "seconds": runs.seconds,
        "events_per_second": middle(runs.rates),
        "events_per_second_all": runs.rates,
        "ours_over_it": middle(ratios),
        "ours_over_it_all": ratios,
        "goal": case.goals.get(runs.peer.name),
        "peak_mib": middle([peak for peak in runs.peaks if peak]),
        "peak_mib_all": runs.peaks,
        "fault": runs.faults[0] if runs.faults else None,
        "inside_the_time": runs.said.get("inside", ""),
        "said": {k: v for k, v in runs.said.items() if k not in ("seconds", "inside", "version", "peak_mib")},
    }


def _number(value: float | None, unit: float, digits: int) -> str:
    return "" if value is None else f"{value / unit:.{digits}f}"


def _span(values: list[float], unit: float, digits: int) -> str:
    return f"{min(values) / unit:.{digits}f}-{max(values) / unit:.{digits}f}" if values else ""


def _mark(ratio: float | None, goal: float) -> str:
    return "" if ratio is None else " ok" if ratio >= goal else " MISSED"


def _write(name: str, content: dict[str, Any]) -> None:
    RESULTS.mkdir(exist_ok=True)
    whole = {
        "name": name,
        **content,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "generator": {"rate": data.RATE, "seed": data.SEED, "version": data.VERSION},
        "machine": machine(),
        "versions": {p: version(p) for p in ("pyspark", "pyarrow", "polars", "duckdb", "numpy")},
    }
    (RESULTS / f"{name}.json").write_text(json.dumps(whole, indent=1) + "\n")


def machine() -> dict[str, Any]:
    """Where this ran. Seconds of two machines, or of two days, are not to be compared; ratios are."""
    info = Path("/proc/cpuinfo")
    models = [line for line in info.read_text().splitlines() if line.startswith("model name")] if info.exists() else []
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpu": models[0].split(":", 1)[1].strip() if models else platform.processor(),
        "cores": os.cpu_count(),
        "memory_gib": round(memory / 2**30, 1),
        "load_before": os.getloadavg()[0],
        "python": platform.python_version(),
        "system": platform.platform(),
    }
