"""README shows the picture of the demo, and the picture needs nothing from outside."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PICTURE = ROOT / "docs" / "images" / "demo.svg"


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "scripts" / "demo_picture.py"), run_name="picture")


def test_the_readme_shows_the_picture() -> None:
    assert "](docs/images/demo.svg)" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_committed_picture_is_small_and_loads_nothing() -> None:
    text = PICTURE.read_text(encoding="utf-8")
    assert re.findall(r"https?://[^\"]*", text) == ["http://www.w3.org/2000/svg"]
    assert "@font-face" not in text
    assert len(text) < 100_000
    for shown in ("Millstream", "Hot&#160;auctions", "watermark"):
        assert shown in text


def test_the_last_whole_frame_of_the_screen_is_drawn(script: dict[str, Any]) -> None:
    frames = "\x1b[Hfirst\r\n\x1b[H\x1b[1mlast\x1b[0m\r\nline\r\n"
    output = f"starting ...\r\n\x1b[?1049h{frames}\x1b[?1049lIt was open for 1 s\r\n"
    frame = script["last_frame"](output)
    assert frame == "\x1b[1mlast\x1b[0m\nline\n"
    picture = script["svg"](frame)
    assert "font-weight: bold" in picture
    assert [word for word in ("first", "last", "line", "open") if f">{word}</text>" in picture] == ["last", "line"]


def test_a_command_runs_in_a_terminal_of_a_fixed_size(script: dict[str, Any]) -> None:
    code = "import os, sys; print(sys.stdout.isatty(), *os.get_terminal_size())"
    assert script["terminal_output"]([sys.executable, "-c", code]) == "True 108 32\r\n"


def test_a_command_that_fails_is_reported_with_its_output(script: dict[str, Any]) -> None:
    with pytest.raises(SystemExit, match="no Java"):
        script["terminal_output"]([sys.executable, "-c", "raise SystemExit('no Java')"])


def test_output_without_a_screen_is_reported(script: dict[str, Any]) -> None:
    with pytest.raises(SystemExit, match="no screen"):
        script["last_frame"]("starting Spark ...\r\n")
