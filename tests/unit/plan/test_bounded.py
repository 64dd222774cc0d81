"""Functions that can make a huge value of a small record get a check of the size; other expressions stay."""

from __future__ import annotations

import pytest

from millstream.errors import Unsupported
from millstream.plan.rules.output_bounds import bounded


@pytest.mark.parametrize(
    "sql",
    [
        "`a` + 1",
        "`repeat (`",
        "SEQUENCE(1, 1000)",
        "REPEAT(`s`, 3)",
        "LPAD(`s`, 12, '0')",
        "ARRAY_REPEAT(1, 5)",
        "FORMAT_NUMBER(`x`, 2)",
    ],
)
def test_what_cannot_grow_much_stays_as_it_is(sql: str) -> None:
    assert bounded(sql) == sql


@pytest.mark.parametrize(
    "sql",
    [
        "sequence(1, `n`)",
        "sequence(1, 3000000000)",
        "sequence(`n`, 1, -1)",
        "sequence(`a`, `b`, INTERVAL '1' SECOND)",
        "repeat('x', `n`)",
        "upper(space(`n`))",
        "lpad(`s`, `n` + 1, 'x')",
        "rpad(`s`, 1000000000)",
        "array_repeat(`s`, `n`)",
        "transform(`a`, x -> repeat('x', 1000))",
        "format_number(`x`, `n`)",
    ],
)
def test_what_can_grow_is_checked_once(sql: str) -> None:
    assert bounded(sql).count("RAISE_ERROR") == 1


def test_calls_inside_one_another_do_not_multiply_the_text() -> None:
    sql = "`s`"
    for _ in range(6):
        sql = f"repeat({sql}, `n`)"
    assert bounded(sql).count("RAISE_ERROR") == 6
    with pytest.raises(Unsupported, match="too many nested functions"):
        bounded("repeat(" * 200 + sql + ", `n`)" * 200)
