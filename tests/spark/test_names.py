"""Hostile names through Spark: files of every format, views of several kinds, topics and files as sinks."""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import millstream as ms
from millstream import col
from millstream.model.types.schema import TIMESTAMP
from millstream.testing.script import Script

pytestmark = pytest.mark.spark

PLAIN = {n: n for n in ("k", "v", "s", "t", "o", "p", "x")}
HOSTILE = [
    {
        "k": "op",
        "v": "epoch",
        "s": "_metadata",
        "t": "class",
        "o": "Op_",
        "p": "record",
        "x": 'it\'s "a.b" \\n größe 🦆',
    },
    {"k": "select", "v": "value", "s": "key", "t": "current_date", "o": "op", "p": "raw", "x": "a.b,c;d"},
]  # fmt: skip
ROWS = [(1, 5, "a", 1), (2, 7, "b", 2), (1, 9, "a", 3), (3, 1, "c", 30), (2, 2, "b", 31), (1, 3, "a", 2)]
FORMS = ("json", "csv", "parquet")


def write(folder: Path, form: str, names: Mapping[str, str]) -> None:
    """The records in two files; of JSON and CSV the first has a line that is none."""
    folder.mkdir(parents=True)
    heads = [names[c] for c in ("k", "v", "s", "t", "x")]
    for number, rows in enumerate((ROWS[:4], ROWS[4:])):
        values = [(k, v, s, f"2026-01-01T00:00:{t:02d}Z", s * 2) for k, v, s, t in rows]
        path = folder / f"{number}.{form}"
        if form == "parquet":
            table = pa.table([pa.array(c) for c in zip(*values, strict=True)], names=heads)
            pq.write_table(table.set_column(3, heads[3], table[3].cast(pa.string()).cast(TIMESTAMP)), path)
        elif form == "json":
            bad = ["{no json"] if not number else []
            lines = [json.dumps(dict(zip(heads, row, strict=True)), ensure_ascii=False) for row in values]
            path.write_text("\n".join([*lines, *bad]) + "\n", encoding="utf-8")
        else:
            with path.open("w", encoding="utf-8", newline="") as file:
                out = csv.writer(file)
                out.writerows([heads, *values, *([("no number", 1, "a", values[0][3], "a")] if not number else [])])


def flow_of(folder: Path, names: Mapping[str, str], forms: Sequence[str]) -> ms.Flow:
    flow = ms.Flow("named")
    k, v, s, t, x, o, p = (names[c] for c in ("k", "v", "s", "t", "x", "o", "p"))
    kinds = [(k, pa.int64()), (v, pa.int64()), (s, pa.string()), (t, TIMESTAMP), (x, pa.string())]
    for form in forms:
        files = ms.files(str(folder / form), format=form, bounded=True)
        rows = flow.source(form, files, schema=pa.schema(kinds), event_time=t, lateness="0 seconds", max_rows=4)
        rows.where(col(v) > 1).view(f"{form}_rows")
        named = rows.with_columns(**{o: col(v) * 2})
        named.key_by(col(s)).aggregate(**{o: ms.sum(col(o)), p: ms.last(col(k))}).view(
            f"{form}_group", changes_to=ms.log(f"{form}_topic")
        )
        windows = rows.key_by(col(k)).window(ms.tumbling("10 seconds")).aggregate(**{o: ms.count(), p: ms.avg(col(v))})
        windows.view(f"{form}_windows", changes_to=ms.files(str(folder / f"{form}_out"), format="json"))
        windows.select(**{k: col(o), v: col(k), o: col(p) + 1}).where(col(v) > 1).view(f"{form}_after")
        rows.join(named.select(col(k), col(o), **{p: col(x)}).distinct(), on=k).view(f"{form}_join")
    return flow


def run(
    folder: Path, names: Mapping[str, str], placement: str = "inline", forms: Sequence[str] = FORMS
) -> dict[str, Counter[Any]]:
    for form in forms:
        write(folder / form, form, names)
    found: dict[str, Counter[Any]] = {}
    flow = flow_of(folder, names, forms)
    with Script(flow, folder / "home", placement=placement, start="2026-01-01T00:01:00Z") as script:
        script.tick()
        for form in forms:
            for kind in ("rows", "group", "windows", "after", "join"):
                rows = script.rows(f"{form}_{kind}")
                found[f"{form} {kind}"] = Counter(tuple(r.values()) for r in rows)
            found[f"{form} topic"] = Counter(tuple(r.values()) for r in script.written(f"{form}_topic"))
            out = [json.loads(line) for f in (folder / f"{form}_out").iterdir() for line in f.read_text().splitlines()]
            found[f"{form} files"] = Counter(tuple(r.values()) for r in out)
            found[f"{form} errors"] = Counter((r["reason"], r["offset"]) for r in script.rows(f"{form}$errors"))
            late = [tuple(json.loads(r["record"]).values()) for r in script.rows(f"{form}_windows$late")]
            found[f"{form} late"] = Counter(late)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("placement", ["inline", "spread"])
def test_names_change_nothing_in_spark(spark: object, tmp_path: Path, placement: str) -> None:
    expected = run(tmp_path / "plain", PLAIN)
    assert all(expected[f"{form} {what}"] for form in FORMS for what in ("rows", "join", "topic", "files", "after"))
    assert expected["json errors"] and expected["csv errors"]
    if placement == "inline":
        compare(run(tmp_path / "inline", HOSTILE[0]), expected)
    else:
        compare(run(tmp_path / "spread", HOSTILE[1], "spread", ["json"]), expected)


def compare(found: Mapping[str, Counter[Any]], expected: Mapping[str, Counter[Any]]) -> None:
    for what, rows in found.items():
        assert rows == expected[what], what
