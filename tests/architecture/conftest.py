"""Lists the long modules after the tests, so that growth is seen before it is a failure."""

from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "src" / "millstream"
LONG = 300


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    lengths = {p: len(p.read_text(encoding="utf-8").splitlines()) for p in PACKAGE.rglob("*.py")}
    long = sorted(((n, p) for p, n in lengths.items() if n > LONG), reverse=True)
    if long:
        names = ", ".join(f"{path.relative_to(PACKAGE)} {lines}" for lines, path in long)
        terminalreporter.write_line(f"{len(long)} of {len(lengths)} modules above {LONG} lines: {names}")
