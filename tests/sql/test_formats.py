"""Formats that a function is given reach the plan."""

from __future__ import annotations

import pytest

from tests.sql.kit import told, view_plan


@pytest.mark.parametrize("call", ["to_char(ts, 'yyyy/MM')", "date_format(ts, 'yyyy/MM')"])
def test_a_format_is_part_of_the_plan(call: str) -> None:
    assert "'yyyy/MM'" in told(view_plan(f"SELECT auction, {call} AS c FROM bids"))
