"""Which builds of sqlglot Millstream can extend."""

from __future__ import annotations

import pytest
from sqlglot.parsers.spark import SparkParser

from millstream.errors import Unsupported
from millstream.sql.parse.text import check_extensible


class Compiled:
    parse = len
    """Not a function of Python, as the methods of a compiled class."""


def test_a_compiled_sqlglot_is_refused_with_what_to_do() -> None:
    check_extensible(SparkParser)
    with pytest.raises(Unsupported, match="compiled build of sqlglot") as refused:
        check_extensible(Compiled)
    assert "pip uninstall sqlglotc" in str(refused.value)
