"""The answers that `tests/unit/live/test_casts.py` expects of questions are those of Spark, which computes views."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.live.test_casts import CASTS, REFUSED

pytestmark = pytest.mark.spark


def test_the_expected_casts_are_those_of_spark(spark: Any) -> None:
    asked = ", ".join(f"cast({value} AS {kind}) AS c{i}" for i, (value, kind, _) in enumerate(CASTS))
    found = spark.sql(f"SELECT {asked}").toArrow().to_pylist()[0]
    wrong = [(c, f) for c, f in zip(CASTS, found.values(), strict=True) if c[2] != f]
    assert not wrong


def test_what_is_refused_is_refused_by_spark(spark: Any) -> None:
    asked = ", ".join(f"try_cast({value} AS {kind}) AS c{i}" for i, (value, kind) in enumerate(REFUSED))
    found = spark.sql(f"SELECT {asked}").toArrow().to_pylist()[0]
    assert [v for v in found.values() if v is not None] == []
