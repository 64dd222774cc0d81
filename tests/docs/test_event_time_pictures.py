"""The pictures of the guide's page on event time show what the product does, with the sales of that page."""

from __future__ import annotations

import ast
import re
import runpy
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "guide" / "event-time.md"
PICTURES = ROOT / "docs" / "guide" / "pictures"


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "scripts" / "event_time_pictures.py"), run_name="pictures")


def test_the_committed_pictures_are_what_a_run_gives(script: dict[str, Any], tmp_path: Path) -> None:
    script["main"](tmp_path)
    drawn = {p.name: p.read_text(encoding="utf-8") for p in sorted(tmp_path.iterdir())}
    committed = {p.name: p.read_text(encoding="utf-8") for p in sorted(PICTURES.iterdir())}
    assert sorted(drawn) == sorted(committed)
    differing = [name for name, text in drawn.items() if committed[name] != text]
    assert not differing, f"{differing} differ: look at them, then run python scripts/event_time_pictures.py"


def test_the_page_and_the_pictures_have_the_same_sales(script: dict[str, Any]) -> None:
    listed = re.search(r"^SALES = (\[.*?^\])", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert listed is not None
    assert ast.literal_eval(listed[1]) == script["SALES"]


def test_the_page_shows_every_picture() -> None:
    shown = re.findall(r"\]\(pictures/([\w-]+\.svg)\)", PAGE.read_text(encoding="utf-8"))
    assert sorted(shown) == sorted(p.name for p in PICTURES.iterdir())
