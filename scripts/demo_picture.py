"""Draw the picture of the demo that README shows, from a real run of `millstream demo`.

    python scripts/demo_picture.py [--for 150s] [--out docs/images/demo.svg]

The command runs in a pseudo-terminal of a fixed size. The last screen that it draws before it ends is rendered as an
SVG. The picture differs from run to run, because the run is real: look at it before you commit it.
"""

from __future__ import annotations

import argparse
import fcntl
import io
import os
import pty
import struct
import subprocess
import sys
import termios
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "images" / "demo.svg"
COLUMNS, LINES = 108, 32

SCREEN_START, SCREEN_END = "\x1b[?1049h", "\x1b[?1049l"
"""What a terminal program writes to enter and to leave the alternate screen."""
HOME = "\x1b[H"
"""Moves the cursor to the top left corner; every frame of the demo starts with it."""

THEME = TerminalTheme(
    background=(22, 27, 34),
    foreground=(201, 209, 217),
    normal=[
        *((72, 79, 88), (255, 123, 114), (63, 185, 80), (210, 153, 34)),
        *((88, 166, 255), (188, 140, 255), (57, 197, 207), (177, 186, 196)),
    ],
    bright=[
        *((110, 118, 129), (255, 161, 152), (86, 211, 100), (227, 179, 65)),
        *((121, 192, 255), (210, 168, 255), (86, 212, 221), (240, 246, 252)),
    ],
)

FONT = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
SVG = (
    """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<title>The screen of millstream demo: figures of the flow, and the top rows of its five views</title>
<style>
.{unique_id}-matrix {{ font-family: FONT; font-size: {char_height}px; line-height: {line_height}px; }}
.{unique_id}-title {{ font-family: FONT; font-size: 18px; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""
).replace("FONT", FONT)
"""Rich's own template loads fonts from the network; this one uses the fonts that the reader has."""


def main() -> None:
    """Run the demo, then write the picture."""
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument(
        "--for", dest="duration", default="150s", help="how long the demo runs (default: %(default)s)"
    )
    arguments.add_argument("--out", type=Path, default=PICTURE, help="the file to write (default: %(default)s)")
    options = arguments.parse_args()
    command = [str(Path(sys.executable).with_name("millstream")), "demo", "--for", options.duration]
    picture = svg(last_frame(terminal_output(command)))
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(picture, encoding="utf-8")
    sys.stdout.write(f"wrote {options.out} ({len(picture) / 1024:.0f} KiB)\n")


def terminal_output(command: list[str]) -> str:
    """Everything that a command writes to a terminal of `COLUMNS` by `LINES`."""
    controller, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    environment = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR")}
    environment |= {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
    process = subprocess.Popen(command, stdin=terminal, stdout=terminal, stderr=terminal, env=environment)
    os.close(terminal)
    chunks = []
    try:
        while chunk := os.read(controller, 65536):
            chunks.append(chunk)
    except OSError:  # Linux reports the end of a pseudo-terminal as an I/O error
        pass
    finally:
        os.close(controller)
    output = b"".join(chunks).decode(errors="replace")
    if process.wait() != 0:
        raise SystemExit(f"{' '.join(command)} failed:\n{output}")
    return output


def last_frame(output: str) -> str:
    """The last whole screen that was drawn, as text with colour codes."""
    screen = output.partition(SCREEN_START)[2].partition(SCREEN_END)[0]
    frames = [frame for frame in screen.split(HOME) if frame.strip()]
    if not frames:
        raise SystemExit("the demo drew no screen")
    return frames[-1].replace("\r\n", "\n").replace("\r", "")


def svg(frame: str) -> str:
    """A frame as an SVG that needs nothing from outside."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    for line in frame.rstrip("\n").split("\n"):
        console.print(Text.from_ansi(line), no_wrap=True, overflow="crop", crop=True)
    picture = console.export_svg(title="millstream demo", theme=THEME, code_format=SVG, unique_id="demo")
    return "".join(f"{line.strip()}\n" for line in picture.splitlines() if line.strip())


if __name__ == "__main__":
    main()
