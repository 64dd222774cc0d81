"""For the end of any test: nothing vanished without a count."""

from __future__ import annotations

from millstream.home import Home


def assert_balanced(home: Home) -> None:
    """Every record that the sources of a home have given is accounted for in every view."""
    rows = home.accounting()
    assert rows, "no flow has run here"
    wrong = [row for row in rows if row["balanced"] is False]
    assert not wrong, "\n".join(map(str, wrong))
