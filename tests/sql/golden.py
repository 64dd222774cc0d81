"""Golden files: cases of SQL with what must come of them.

A file begins with the rows that its sources get, epoch by epoch; then come cases. What is expected is written in
comments behind the statements of a case:

    -- given bids: {"auction": 1, "price": 5, "ts": "2026-01-01T00:00:01Z"}
    -- epoch
    -- given bids: {"auction": 2, "price": 7, "ts": "2026-01-01T00:00:02Z"}

    -- case: bids per auction
    CREATE VIEW per_auction AS SELECT auction, count(*) AS n FROM bids GROUP BY auction;
    -- expect rows per_auction:
    --   {"auction": 1, "n": 1}

``rows`` are those at the end, ``changes`` have the number of the epoch and the operation before them, ``plan`` names
the stages of a view, ``error`` says what is wrong with the last statement and where. All views of a file are computed
in one flow.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from millstream.errors import MillstreamError
from millstream.plan.operators.aggregates.aggregation import Aggregation
from millstream.plan.operators.aggregates.changing_aggregation import ChangingAggregation
from millstream.plan.operators.operator import Operator
from millstream.plan.operators.relations.distinct import DistinctRows
from millstream.plan.operators.relations.pass_through import PassThrough
from millstream.plan.operators.relations.top_n import TopN
from millstream.plan.parts import Project
from millstream.plan.plan import Plan, PlannedView
from millstream.sql.catalog import Catalog
from millstream.sql.parse import statement_parser
from millstream.sql.parse.script import split
from millstream.sql.parse.statement_values import Create
from millstream.sql.parse.text import Text
from tests.sql import kit

HERE = Path(__file__).parent
_EXPECT = re.compile(r"-- expect (rows|changes|plan|error)(?: (\w+))?:\s*")


@dataclass
class Expectation:
    """What must come of a case: of which kind, of which view, and line by line."""

    kind: str
    view: str
    lines: list[str] = field(default_factory=list)


@dataclass
class Case:
    """Statements and what is expected of them."""

    name: str
    sql: str = ""
    expected: list[Expectation] = field(default_factory=list)

    @property
    def views(self) -> list[str]:
        """The views whose rows or changes are looked at."""
        return list(dict.fromkeys(e.view for e in self.expected if e.kind in ("rows", "changes")))


@dataclass
class File:
    """All cases of one file."""

    name: str
    head: str = ""
    epochs: list[list[tuple[str, dict[str, Any]]]] = field(default_factory=lambda: [[]])
    cases: list[Case] = field(default_factory=list)


def files() -> list[str]:
    """The names of the golden files."""
    return sorted(p.stem for p in (HERE / "golden").glob("*.sql"))


def read(name: str) -> File:
    """One golden file."""
    found = File(name)
    for line in (HERE / "golden" / f"{name}.sql").read_text(encoding="utf-8").splitlines():
        case = found.cases[-1] if found.cases else None
        if line.startswith("-- case: "):
            found.cases.append(Case(line[9:].strip()))
        elif case is None:
            found.head += line + "\n"
            if line.startswith("-- epoch"):
                found.epochs.append([])
            elif line.startswith("-- given "):
                source, _, row = line[9:].partition(": ")
                found.epochs[-1].append((source, json.loads(row)))
        elif (expect := _EXPECT.fullmatch(line)) is not None:
            case.expected.append(Expectation(expect[1], expect[2] or ""))
        elif line.startswith("--   ") and case.expected:
            case.expected[-1].lines.append(line[5:])
        elif line.strip():
            case.sql += line + "\n"
    return found


def write(file: File) -> None:
    """Write a file with the expectations that it has now."""
    text = file.head
    for case in file.cases:
        text += f"-- case: {case.name}\n{case.sql}"
        for each in case.expected:
            text += f"-- expect {each.kind}{' ' + each.view if each.view else ''}:\n"
            text += "".join(f"--   {line}\n" for line in each.lines)
        text += "\n"
    (HERE / "golden" / f"{file.name}.sql").write_text(text.rstrip("\n") + "\n", encoding="utf-8")


def catalog_of(case: Case, catalog: Catalog) -> tuple[Catalog, MillstreamError | None]:
    """A catalog with all that a case defines, and what was wrong with its last statement."""
    try:
        found = split(Text(case.sql))
    except MillstreamError as error:
        return catalog, error
    for i, piece in enumerate(found):
        try:
            statement = statement_parser.statement(piece, functions=catalog.functions)
            kit.bound(statement, catalog)
        except MillstreamError as error:
            if i + 1 < len(found):
                raise
            return catalog, error
        if isinstance(statement, Create):
            assert catalog.get(statement.name) is not None
    return catalog, None


def said(error: MillstreamError | None) -> list[str]:
    """An error, line by line."""
    assert error is not None, "the statement was taken"
    at = f" at {error.origin.line}:{error.origin.column}" if error.origin is not None and error.origin.column else ""
    return [f"{error.code}{at}: {error.message}", *([f"hint: {error.hint}"] if error.hint else [])]


# ---------------------------------------------------------------- plans, in few words


def summary(plan: Plan, view: str) -> list[str]:
    """The stages of a view, one line each."""
    last: PlannedView = plan.view(view)
    lines = list(_lines(plan, last))
    if last.post is not None:
        lines.append(f"then {_project(last.post)}")
    kept = [f"kept {last.retention // 1_000_000} s"] if last.retention is not None else []
    sink = [f"into {last.sink}"] if last.sink is not None else []
    return [*lines, "gives " + ", ".join((*last.columns, *kept, *sink))]


def _lines(plan: Plan, view: PlannedView) -> Iterable[str]:
    stage = view.operator
    if stage.reads_scans:
        yield from _stage(plan, stage)
        return
    for side in stage.sides:
        for take in side.takes:
            yield from _lines(plan, plan.view(take.view))
            yield from (f"take {_project(op)}" for op in take.ops if isinstance(op, Project))
    yield _chained(stage)


def _stage(plan: Plan, stage: Operator) -> Iterable[str]:
    for feed in stage.feeds:
        scan = next(s for s in plan.scans if s.id == feed.scan)
        sql = {c.name: c.sql.replace("`", "") for c in scan.columns}
        ops = [f"{type(o).__name__.lower()} {_op(o)}" for o in scan.ops]
        kept = [f"where {sql[feed.keep]}"] if feed.keep else []
        yield " | ".join([f"scan {feed.source}", *ops, *kept, ", ".join(sql[c] for c in feed.columns) or "no columns"])
    if isinstance(stage, PassThrough):
        yield "append " + ", ".join(stage.columns)
        return
    assert isinstance(stage, Aggregation)
    how = stage.windowing
    parts = [f"by {', '.join(stage.keys) or 'nothing'}", f"over {how.window}", str(how.trigger), str(how.accumulation)]
    parts += [f"lateness {how.lateness}"] if how.lateness.micros else []
    yield "aggregate " + " | ".join([*parts, _measures(stage.measures)])


def _chained(stage: Operator) -> str:
    keys = f"by {', '.join(stage.keys) or 'nothing'}"
    if isinstance(stage, ChangingAggregation):
        return f"regroup {keys} | {_measures(stage.measures)}"
    if isinstance(stage, DistinctRows):
        return "once " + ", ".join(stage.columns)
    assert isinstance(stage, TopN)
    order = ", ".join(
        f"{s.column} {'down' if s.descending else 'up'} nulls {'first' if s.nulls_first else 'last'}"
        for s in stage.order
    )
    rank = f" | rank {stage.rank}" if stage.rank else ""
    return f"first {stage.count} {keys} | {order}{rank}"


def _op(op: Any) -> str:
    if isinstance(op, Project):
        return _project(op)
    return ", ".join(str(v).replace("`", "") for v in vars(op).values())


def _project(project: Project) -> str:
    columns = ", ".join(
        c.name if c.sql.strip("`") == c.name else f"{c.name} = {c.sql}".replace("`", "") for c in project.columns
    )
    return columns if project.keep is None else f"{columns} where {project.keep}".replace("`", "")


def _measures(measures: Iterable[Any]) -> str:
    return ", ".join(f"{m.name} = {m.kind}{'' if m.has_argument else '(*)'}" for m in measures)


# ---------------------------------------------------------------- rows


def rows(found: Iterable[dict[str, Any]]) -> list[str]:
    """Rows as lines, in an order of their own."""
    return sorted(json.dumps({k: _plain(v) for k, v in row.items()}, ensure_ascii=False) for row in found)


def changes(epochs: Iterable[list[tuple[str, dict[str, Any]]]]) -> list[str]:
    """Changes as lines, epoch by epoch."""
    lines = []
    for number, found in enumerate(epochs, 1):
        each = ((op, {k: v for k, v in row.items() if not k.startswith("$")}) for op, row in found)
        lines += sorted(f"{number} {op} {rows([row])[0]}" for op, row in each)
    return lines


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S") + (
            f".{value.microsecond}" if value.microsecond else ""
        )
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, float):
        return round(value, 9)
    if isinstance(value, list):
        return [_plain(v) for v in value]
    return {k: _plain(v) for k, v in value.items()} if isinstance(value, dict) else value
