"""The demo's live screen: figures on top, the top rows of every view below. It only draws its input."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from rich import box
from rich.align import Align
from rich.console import Group, RenderableType
from rich.panel import Panel as Frame
from rich.table import Table
from rich.text import Text

from millstream.cli.demo.flow import PANELS, Panel
from millstream.cli.meter import MeterReading
from millstream.cli.output import format_seconds

Rows = Mapping[str, list[list[Any]]]
"""view -> its top rows."""

ACCENT, QUIET = "cyan", "bright_black"
NARROW, WIDE = 78, 104
"""Below this width, panels form one column; from here on, there is room for all figures and longer bars."""

HEAD, FRAME = 5, 3
"""Lines above the panels; lines of a panel besides its rows."""

LEFT, RIGHT = ("hot_auctions", "seller_sales"), ("category_prices", "bids_per_minute", "newcomers")
SHORT_BAR, LONG_BAR = 6, 14
LESS = {"events", "behind", "p50"}
"""Figures left out where there is little room."""


def draw(rows: Rows, reading: MeterReading, clock: str, width: int, height: int) -> RenderableType:
    """The whole screen."""
    by_view = {p.view: p for p in PANELS}
    room, wide = height - HEAD - 1, width >= WIDE
    if width < NARROW:
        shares = _shares(room, tuple(by_view))
        body: RenderableType = Group(*(_panel(by_view[v], rows.get(v, []), n, wide=False) for v, n in shares.items()))
    else:
        grid = Table.grid(expand=True, padding=(0, 0))
        grid.add_column(ratio=1)
        grid.add_column(ratio=1)
        columns = [
            Group(*(_panel(by_view[v], rows.get(v, []), n, wide=wide) for v, n in _shares(room, views).items()))
            for views in (LEFT, RIGHT)
        ]
        grid.add_row(*columns)
        body = grid
    return Group(_headline(clock), Text(""), _figures(reading, wide=wide), Text(""), body)


def _shares(room: int, views: tuple[str, ...]) -> dict[str, int]:
    """The number of rows of each panel of a column; panels that do not fit are left out."""
    while len(views) > 1 and room < len(views) * (FRAME + 2):
        views = views[:-1]
    rows = max(room - FRAME * len(views), len(views))
    shares = dict.fromkeys(views, rows // len(views))
    shares[views[0]] += rows - sum(shares.values())
    if "category_prices" in shares and len(views) > 1 and shares["category_prices"] != 5:  # there are five categories
        others = [v for v in views if v != "category_prices"]
        spare = rows - 5
        if spare >= 2 * len(others):
            shares = {"category_prices": 5, **dict.fromkeys(others, spare // len(others))}
            shares[others[0]] += spare - (spare // len(others)) * len(others)
    return shares


def _headline(clock: str) -> RenderableType:
    line = Table.grid(expand=True)
    line.add_column()
    line.add_column(justify="right")
    title = Text.assemble((" Millstream", f"bold {ACCENT}"), ("  the auction house, live", QUIET))
    line.add_row(title, Text(f"{clock}   Ctrl-C ends it ", style=QUIET))
    return line


def _figures(reading: MeterReading, *, wide: bool) -> RenderableType:
    mark = f"{reading.watermark:%H:%M:%S}" if reading.watermark else "-"
    columns = [
        ("events/s", f"{reading.rate:,.0f}"),
        ("events", f"{reading.rows:,}"),
        ("watermark", mark),
        ("behind", format_seconds(reading.behind) or "-"),
        ("freshness", format_seconds(reading.freshness) or "-"),
        ("epoch time", format_seconds(reading.last) or "-"),
        ("p50", format_seconds(reading.p50) or "-"),
        ("epochs", f"{reading.epochs:,}"),
        ("late", f"{reading.late:,}"),
        ("errors", f"{reading.errors:,}"),
    ]
    if not wide:
        columns = [f for f in columns if f[0] not in LESS]
    grid = Table.grid(expand=True, padding=(0, 1))
    for _ in columns:
        grid.add_column(justify="center", no_wrap=True, ratio=1)
    alarming = {"late", "errors"}
    grid.add_row(*(Text(label, style=QUIET) for label, _ in columns))
    grid.add_row(*(Text(v, style="bold yellow" if n in alarming and v != "0" else "bold") for n, v in columns))
    return grid


def _panel(panel: Panel, rows: list[list[Any]], count: int, *, wide: bool) -> RenderableType:
    bar = LONG_BAR if wide else SHORT_BAR
    table = Table(box=None, expand=True, pad_edge=False, padding=(0, 1), header_style=QUIET)
    for heading, kind in panel.columns:
        table.add_column(heading, justify="left" if kind in ("id", "text", "minute") else "right", no_wrap=True)
        if kind == "bar":
            table.add_column("", width=bar, no_wrap=True)
    most = {i: max((r[i] or 0 for r in rows), default=0) for i, (_, kind) in enumerate(panel.columns) if kind == "bar"}
    for row in rows[:count]:
        cells: list[RenderableType] = []
        for i, (value, (_, kind)) in enumerate(zip(row, panel.columns, strict=True)):
            cells.append(Text(cell_text(value, kind), style="bold" if i == 0 else ""))
            if kind == "bar":
                cells.append(Text("━" * round(bar * (value or 0) / (most[i] or 1)), style=ACCENT))
        table.add_row(*cells)
    inside: RenderableType = table if rows else Align.center(Text("nothing yet", style=QUIET), vertical="middle")
    title = Text.assemble((panel.title, "bold"), ("  " + panel.how if wide else "", QUIET))
    return Frame(inside, title=title, title_align="left", border_style=QUIET, box=box.ROUNDED, height=count + FRAME)


def cell_text(value: Any, kind: str) -> str:
    """Format a cell as text."""
    if value is None:
        return "-"
    if kind == "minute" and isinstance(value, datetime):
        return f"{value.astimezone(UTC):%H:%M}"
    if kind == "money":
        return money(float(value) / 100)
    if kind in ("number", "bar"):
        return f"{value:,}"
    return str(value)


def money(amount: float) -> str:
    """An amount, short enough for a narrow column.

    >>> [money(a) for a in (12.5, 430_700.4, 98_954_929.0, 4_100_000_000.0)]
    ['$12.50', '$430,700', '$99.0 M', '$4,100 M']
    """
    if amount < 1_000_000:
        return f"${amount:,.2f}" if amount < 1000 else f"${amount:,.0f}"
    return f"${amount / 1e6:,.1f} M" if amount < 1e9 else f"${amount / 1e6:,.0f} M"
