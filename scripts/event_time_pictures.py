"""Draw the pictures of the guide's page on event time, from real runs.

    python scripts/event_time_pictures.py [FOLDER]

The ten sales of the page go through real flows, epoch by epoch (with the engine of the tests that needs no Spark). What
is drawn is what came out: the answers, when they were given, and how far the watermark was. The result is plain
text and always the same; a test compares it with `docs/guide/pictures`.
"""

from __future__ import annotations

import importlib.util
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import millstream as ms

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "guide" / "pictures"

SALES = [  # happened, arrived, amount
    ("09:00:30", "09:00:40", 5),
    ("09:01:20", "09:01:30", 7),
    ("09:02:30", "09:02:40", 3),
    ("09:01:50", "09:03:20", 4),
    ("09:03:40", "09:03:50", 8),
    ("09:01:30", "09:04:40", 9),
    ("09:04:30", "09:05:10", 2),
    ("09:06:20", "09:06:30", 6),
    ("09:05:40", "09:07:10", 3),
    ("09:07:30", "09:07:40", 7),
]
NINE = datetime(2026, 1, 1, 9, tzinfo=UTC)
LAST = 480
"""Times here are seconds after nine o'clock; this is when we stop to look."""
MINUTES = 9
"""How much of event time is drawn."""

WINDOW = ms.tumbling("2 minutes")
REFINED = ms.after_watermark(early=ms.every("1 minute", aligned=True))
MODES = {"discarding": ms.discarding(), "accumulating": ms.accumulating(), "retracting": ms.retracting()}

EARLY, ON_TIME, LATE = "early", "on time", "late"


# ---------------------------------------------------------------- what happened


@dataclass(frozen=True)
class Answer:
    """An answer of a window: when it was given, and what it took back."""

    at: int
    start: int
    end: int
    value: int | None
    timing: str = ON_TIME
    instead_of: int | None = None


@dataclass
class Run:
    """What a flow did with the sales."""

    watermark: list[tuple[int, int]] = field(default_factory=list)
    """When it moved, and where to."""
    panes: dict[str, list[Answer]] = field(default_factory=dict)
    changes: dict[str, list[tuple[str, Answer]]] = field(default_factory=dict)
    late: dict[str, set[int]] = field(default_factory=dict)
    """The event times of the sales that came too late for a view."""


def in_batch() -> Run:
    """All sales at once."""

    def define(sales: Any) -> None:
        sales.aggregate(total=ms.sum("amount")).view("everything")
        sales.window(WINDOW).aggregate(total=ms.sum("amount")).view("windows")

    return _run(define, [(h, LAST, a) for h, _, a in _sales()])


def as_they_come() -> Run:
    """One sale after the other."""

    def define(sales: Any) -> None:
        total = ms.sum("amount")
        sales.window(WINDOW, trigger=ms.on_close()).aggregate(total=total).view("closed")
        for name, mode in MODES.items():
            refined = sales.window(WINDOW, trigger=REFINED, accumulation=mode, lateness="2 minutes", panes="1 day")
            refined.aggregate(total=total).view(name)
        busy = sales.window(ms.session("1 minute"), trigger=ms.after_watermark(early=ms.on_change()), panes="1 day")
        busy.aggregate(total=total).view("sessions")

    return _run(define, _sales())


def _run(define: Any, sales: Sequence[tuple[int, int, int]]) -> Run:
    flow, schema = ms.Flow("stall"), "amount BIGINT, ts TIMESTAMP"
    define(flow.source("sales", ms.memory(), schema=schema, event_time="ts", lateness="1 minute"))
    run = Run()
    with tempfile.TemporaryDirectory() as home, _local_script()(flow, home, start=NINE) as script:
        now = 0
        for moment in sorted({arrived for _, arrived, _ in sales} | set(range(0, LAST + 1, 60))):
            script.advance(f"{moment - now} seconds")
            now = moment
            for happened, arrived, amount in sales:
                if arrived == now:
                    script.send("sales", {"amount": amount, "ts": NINE + timedelta(seconds=happened)})
            for report in script.tick():
                _note(run, now, report.output)
            for row in script.home.watermarks():
                if row["watermark"] is not None:
                    run.watermark.append((now, _seconds(row["watermark"])))
    for panes in run.panes.values():
        panes.sort(key=_place)
    for changes in run.changes.values():  # windows of one epoch come in any order
        changes.sort(key=lambda change: _place(change[1]))
    return run


def _place(answer: Answer) -> tuple[int, int, int]:
    return answer.at, answer.start, answer.end


def _note(run: Run, now: int, output: Any) -> None:
    for view, table in output.changes.items():
        before: dict[tuple[int, int], int] = {}
        for row in table.to_pylist():
            answer = _answer(now, row)
            window = answer.start, answer.end
            if row["total"] is None:
                continue  # the sum over no sales
            if row["$op"] == "-U":
                before[window] = row["total"]
            else:
                changed = replace(answer, instead_of=before.get(window))
                run.changes.setdefault(view, []).append((row["$op"], changed))
    for view, table in output.panes.items():
        said = {(a.start, a.end): a.instead_of for _, a in run.changes.get(view, []) if a.at == now}
        for row in table.drop_columns(["watermark"]).to_pylist():
            pane = replace(_answer(now, row), timing=row["timing"])
            run.panes.setdefault(view, []).append(replace(pane, instead_of=said.get((pane.start, pane.end))))
    for view, table in output.late.items():
        run.late.setdefault(view, set()).update(_seconds(t) for t in table["event_time"].to_pylist())


def _answer(now: int, row: dict[str, Any]) -> Answer:
    if "window_start" not in row:
        return Answer(now, 0, MINUTES * 60, row["total"])
    return Answer(now, _seconds(row["window_start"]), _seconds(row["window_end"]), row["total"])


def _local_script() -> Any:
    spec = importlib.util.spec_from_file_location("millstream_tests_local", ROOT / "tests" / "local.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.LocalScript


def _sales() -> list[tuple[int, int, int]]:
    def seconds(text: str) -> int:
        return _seconds(datetime.fromisoformat(f"2026-01-01T{text}Z"))

    return [(seconds(happened), seconds(arrived), amount) for happened, arrived, amount in SALES]


def _seconds(time: datetime) -> int:
    return round((time - NINE).total_seconds())


# ---------------------------------------------------------------- how it is drawn

SANS = "Helvetica, Arial, 'Liberation Sans', sans-serif"
MONO = "Menlo, Consolas, 'DejaVu Sans Mono', monospace"
INK, FAINT, GRID, DOTS = "#1f2933", "#66727f", "#e4e8ec", "#9aa5b1"
WATERMARK, SALE, TOO_LATE, INSIDE = "#0b7a55", "#243b53", "#c2341d", "#2b6cb0"
SHADES = {EARLY: "#b7791f", ON_TIME: "#2b6cb0", LATE: "#c2341d"}


@dataclass
class Panel:
    """One plot: event time to the right, processing time upwards."""

    left: float
    top: float
    minutes: int
    tall: float = 8.5
    across: float = 72
    up: float = 48
    parts: list[str] = field(default_factory=list)

    def x(self, event: float) -> float:
        """Where an event time is."""
        return self.left + event / 60 * self.across

    def y(self, processing: float) -> float:
        """Where a processing time is."""
        return self.top + (self.tall - processing / 60) * self.up

    def axes(self, title: str, *, named: bool = True) -> None:
        """Grid, axes and what stands on them."""
        right, bottom, size = self.x(self.minutes * 60), self.y(0), 11
        for minute in range(self.minutes + 1):
            at = self.x(minute * 60)
            self._line(at, self.top, at, bottom, GRID)
            self.text(at, bottom + 17, f"9:{minute:02d}", size, FAINT, "middle")
        for minute in range(int(self.tall) + 1):
            at = self.y(minute * 60)
            self._line(self.left, at, right, at, GRID)
            if named:
                self.text(self.left - 8, at + 4, f"9:{minute:02d}", size, FAINT, "end")
        self._line(self.left, self.top, self.left, bottom, INK)
        self._line(self.left, bottom, right, bottom, INK)
        short = min(self.minutes, self.tall) * 60
        self._line(self.x(0), self.y(0), self.x(short), self.y(short), DOTS, dash="2 5")
        self.text(self.left, self.top - 14, title, 13, INK, font=MONO)
        self.text(right, bottom + 36, "event time →", 12, INK, "end")
        if named:
            where = f"{self.left - 46:g} {self.top:g}"
            self.parts.append(
                f'<text transform="translate({where}) rotate(-90)" font-family="{SANS}" font-size="12" fill="{INK}" '
                f'text-anchor="end">processing time →</text>'
            )

    def watermark(self, moves: Iterable[tuple[int, int]], until: int) -> None:
        """The watermark: it jumps to the right when records show a later time."""
        points: list[tuple[float, float]] = []
        reached, limit = 0, self.minutes * 60
        for now, moved in moves:
            if moved > reached and now <= until and reached < limit:
                points += [(reached, now), (min(moved, limit), now)]
                reached = min(moved, limit)
        if reached < limit:
            points.append((reached, until))
        path = " ".join(f"{self.x(event):g},{self.y(now):g}" for event, now in points)
        self.parts.append(
            f'<polyline points="{path}" fill="none" stroke="{WATERMARK}" stroke-width="2.5" stroke-linejoin="round"/>'
        )

    def sales(self, late: Iterable[int] = ()) -> None:
        """The sales, each with its amount."""
        for happened, arrived, amount in _sales():
            if happened < self.minutes * 60 and arrived <= self.tall * 60:
                self.circle(self.x(happened), self.y(arrived), str(amount), TOO_LATE if happened in late else SALE)

    def box(self, answer: Answer, since: float, *, waits: bool = False) -> None:
        """A window, from its first record until it answers."""
        x, y = self.x(answer.start) + 2, self.y(answer.at)
        width, height = self.x(answer.end) - x - 2, self.y(since) - y
        shade, opacity, dash = (FAINT, 0.05, ' stroke-dasharray="4 4"') if waits else (INSIDE, 0.12, "")
        self.parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="3" fill="{shade}" '
            f'fill-opacity="{opacity}" stroke="{shade}" stroke-opacity="0.5"{dash}/>'
        )
        if not waits:
            self._line(x, y, x + width, y, SHADES[answer.timing], width=2.5)

    def passed(self, answer: Answer) -> None:
        """The watermark passes the end of a window."""
        self.ring(self.x(answer.end), self.y(answer.at))

    def ring(self, x: float, y: float) -> None:
        """A small ring on the watermark."""
        self.parts.append(f'<circle cx="{x:g}" cy="{y:g}" r="4" fill="#ffffff" stroke="{WATERMARK}" stroke-width="2"/>')

    def flag(self, answer: Answer, words: str, *, right: bool = False) -> None:
        """What a window answers, on its upper edge."""
        big, _, small = words.partition("|")
        shade = SHADES[answer.timing]
        width = 10 + 9.2 * len(big) + 6.6 * len(small) + (4 if big and small else 0)
        x = self.x(answer.end) - 6 - width if right else self.x(answer.start) + 6
        y = self.y(answer.at)
        self.parts.append(f'<rect x="{x:g}" y="{y - 19:g}" width="{width:g}" height="19" rx="3" fill="{shade}"/>')
        if big and small:
            self.text(x + 5, y - 5, big, 14, "#ffffff", bold=True)
            self.text(x + width - 5, y - 5, small, 11, "#ffffff", "end")
        else:
            self.text(x + width / 2, y - 5, words.strip("|"), 14 if big else 11, "#ffffff", "middle", bold=bool(big))

    def circle(self, x: float, y: float, words: str, shade: str) -> None:
        """A record."""
        self.parts.append(f'<circle cx="{x:g}" cy="{y:g}" r="11" fill="{shade}" stroke="#ffffff" stroke-width="1.5"/>')
        self.text(x, y + 4.5, words, 13, "#ffffff", "middle", bold=True)

    def text(
        self, x: float, y: float, words: str, size: int, shade: str, anchor: str = "start", *, bold: bool = False,
        font: str = SANS,
    ) -> None:  # fmt: skip
        """Some words."""
        weight = ' font-weight="bold"' if bold else ""
        escaped = words.replace("&", "&amp;").replace("<", "&lt;")
        self.parts.append(
            f'<text x="{x:g}" y="{y:g}" font-family="{font}" font-size="{size}" fill="{shade}" '
            f'text-anchor="{anchor}"{weight}>{escaped}</text>'
        )

    def legend(self, y: float, *entries: tuple[str, str, str]) -> None:
        """What the signs mean: kind of sign, shade, words."""
        x = self.left
        for kind, shade, words in entries:
            if kind == "sale":
                self.parts.append(f'<circle cx="{x + 8:g}" cy="{y:g}" r="7" fill="{shade}"/>')
            elif kind == "line":
                self._line(x, y, x + 18, y, shade, width=2.5)
            elif kind == "ring":
                self.ring(x + 9, y)
            elif kind == "dots":
                self._line(x, y, x + 18, y, shade, dash="2 5")
            else:
                self.parts.append(f'<rect x="{x:g}" y="{y - 7:g}" width="16" height="14" rx="3" fill="{shade}"/>')
            self.text(x + 24, y + 4, words, 12, INK)
            x += 48 + 6.6 * len(words)

    def _line(
        self, x1: float, y1: float, x2: float, y2: float, shade: str, *, width: float = 1, dash: str = ""
    ) -> None:
        dashed = f' stroke-dasharray="{dash}" stroke-width="1.5"' if dash else f' stroke-width="{width:g}"'
        self.parts.append(f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" stroke="{shade}"{dashed}/>')


def svg(width: int, height: int, about: str, *panels: Panel) -> str:
    """A whole picture; its own white ground makes it legible on a dark page."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img">'
    )
    ground = f'<rect x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="8" fill="#ffffff" stroke="#d5dbe1"/>'
    lines = [head, f"<title>{about}</title>", ground, *(part for panel in panels for part in panel.parts), "</svg>"]
    return "\n".join(lines) + "\n"


# ---------------------------------------------------------------- the pictures

SOLD = ("sale", SALE, "sale, its amount")
NO_DELAY = ("dots", DOTS, "no delay")
MARK = ("line", WATERMARK, "watermark")
CLOSES = ("ring", WATERMARK, "a window closes")


def _panel(title: str) -> Panel:
    panel = Panel(left=76, top=44, minutes=MINUTES)
    panel.axes(title)
    return panel


def _whole(panel: Panel, about: str, *legend: tuple[str, str, str]) -> str:
    panel.legend(panel.y(0) + 66, *legend)
    return svg(752, 540, about, panel)


def _since(answer: Answer) -> float:
    """Where the box of a window begins: at its first record, with room for its circle."""
    return min(arrived for happened, arrived, _ in _sales() if answer.start <= happened < answer.end) - 18


def the_sales() -> str:
    """The stream itself."""
    panel = _panel("ten sales")
    panel.sales()
    return _whole(panel, "Ten sales by event time and processing time", SOLD, NO_DELAY)


def batch(run: Run, view: str, title: str, about: str) -> str:
    """Answers of a batch: all at once, at the end."""
    panel = _panel(title)
    for _, answer in run.changes[view]:
        panel.box(answer, _since(answer))
    panel.sales()
    for _, answer in run.changes[view]:
        panel.flag(answer, str(answer.value))
    return _whole(panel, about, SOLD, NO_DELAY, ("box", SHADES[ON_TIME], "answer"))


def on_close(run: Run) -> str:
    """Each window answers when the watermark passes its end."""
    panel = _panel('window(ms.tumbling("2 minutes"), trigger=ms.on_close())')
    given = [answer for _, answer in run.changes["closed"]]
    for answer in given:
        panel.box(answer, _since(answer))
    for start in set(range(0, 480, 120)) - {a.start for a in given}:
        waits = Answer(LAST, start, start + 120, None)
        panel.box(waits, _since(waits), waits=True)
    panel.watermark(run.watermark, LAST)
    panel.sales(run.late["closed"])
    for answer in given:
        panel.passed(answer)
        panel.flag(answer, str(answer.value))
    late = ("sale", TOO_LATE, "too late")
    return _whole(panel, "Windows that answer once, when the watermark passes their end", SOLD, late, MARK,
                  CLOSES, ("box", SHADES[ON_TIME], "answer"))  # fmt: skip


def refined(run: Run) -> str:
    """Early panes every minute, one on time, late ones as they come."""
    panel = _panel('ms.after_watermark(early=ms.every("1 minute", aligned=True), late=ms.on_change())')
    panes = run.panes["retracting"]
    _panes(panel, run, panes)
    for answer in panes:
        panel.flag(answer, f"{answer.value}|{answer.timing}")
    return _whole(panel, "Early, on-time and late panes", SOLD, MARK, CLOSES, *_timings(*SHADES))


def _timings(*timings: str) -> list[tuple[str, str, str]]:
    return [("box", SHADES[t], t) for t in timings]


def _panes(panel: Panel, run: Run, panes: Sequence[Answer], *, since_last: bool = False) -> None:
    """Boxes one upon the other: each over all before it, or (`since_last`) over what came since."""
    last: dict[tuple[int, int], float] = {}
    for answer in panes:
        window = answer.start, answer.end
        since = last.get(window, _since(answer)) if since_last else _since(answer)
        last[window] = answer.at + 4
        panel.box(answer, since)
    panel.watermark(run.watermark, min(LAST, int(panel.tall * 60)))
    panel.sales()
    for answer in panes:
        if answer.timing == ON_TIME:
            panel.passed(answer)


def modes(run: Run) -> str:
    """The three accumulations side by side."""
    panels = []
    for i, name in enumerate(MODES):
        panel = Panel(left=76 + i * 308, top=44, minutes=4, tall=7, across=67, up=50)
        panel.axes(f"ms.{name}()", named=i == 0)
        shown = [a for a in run.panes[name] if a.end <= 240]
        _panes(panel, run, shown, since_last=name == "discarding")
        for answer in shown:
            panel.flag(answer, _words(name, answer, changed=_changed(run, name, answer)))
        panels.append(panel)
    panels[0].legend(panels[0].y(0) + 66, SOLD, MARK, CLOSES, *_timings(*SHADES))
    return svg(984, 484, "Discarding, accumulating and retracting panes side by side", *panels)


def _changed(run: Run, view: str, answer: Answer) -> bool:
    return any(_place(a) == _place(answer) for _, a in run.changes[view])


def _words(mode: str, answer: Answer, *, changed: bool) -> str:
    if mode == "discarding" and answer.value is None:
        return "|nothing new"
    if mode == "retracting" and answer.instead_of is not None:
        return f"\N{MINUS SIGN}{answer.instead_of} +{answer.value}"
    if mode == "retracting" and changed:
        return f"+{answer.value}"
    return str(answer.value) if changed else f"{answer.value}|no change"


def sessions(run: Run) -> str:
    """Windows that grow and merge."""
    panel = _panel('window(ms.session("1 minute"), trigger=ms.after_watermark(early=ms.on_change()))')
    panes = run.panes["sessions"]
    _panes(panel, run, panes)
    for answer in panes:
        panel.flag(answer, str(answer.value), right=True)
    return _whole(panel, "Sessions that grow and merge", SOLD, MARK, CLOSES, *_timings(EARLY, ON_TIME))


def pictures() -> dict[str, str]:
    """All pictures by name."""
    whole, live = in_batch(), as_they_come()
    return {
        "sales.svg": the_sales(),
        "everything.svg": batch(whole, "everything", 'aggregate(total=ms.sum("amount"))', "One answer over all sales"),
        "windows.svg": batch(whole, "windows", 'window(ms.tumbling("2 minutes"))', "An answer for every two minutes"),
        "on-close.svg": on_close(live),
        "early-and-late.svg": refined(live),
        "accumulation.svg": modes(live),
        "sessions.svg": sessions(live),
    }


def main(folder: Path = FOLDER) -> None:
    """Write them."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pictures().items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(*(Path(a) for a in sys.argv[1:2]))
