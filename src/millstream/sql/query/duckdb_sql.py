"""Renders SQL for DuckDB, with a bound on its length.

Some functions are rendered as an expression that contains their arguments several times. Nested, they could produce a
text of any length, and exhaust the time and memory of the process.
"""

from __future__ import annotations

import re
from typing import Any

from sqlglot import ErrorLevel, exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.errors import SqlglotError, UnsupportedError
from sqlglot.generators.duckdb import DuckDBGenerator

from millstream.errors import StatementRefused, Unsupported
from millstream.sql.query.casts import spark_cast
from millstream.sql.query.intervals import literal_sql

MOST = 60_000
"""The most nodes of an expression that are rendered."""


_ASKED = "asked"
"""Marks a CAST from the user's query, as opposed to one that the generator adds."""


class _TooLong(Exception):
    """The bound on nodes was exceeded."""


class Duck(DuckDB):
    """DuckDB's dialect, whose generator stops when a text becomes too long."""

    class Generator(DuckDBGenerator):
        """Its generator. It counts the nodes that it renders."""

        _left = MOST

        def sql(self, *arguments: Any, **more: Any) -> str:
            """The text of one node."""
            self._left -= 1
            if self._left < 0:
                raise _TooLong
            return str(super().sql(*arguments, **more))

        def cast_sql(self, expression: exp.Cast, safe_prefix: str | None = None) -> str:
            """A CAST; one from the user's query has Spark's semantics."""
            if _ASKED in expression.meta:
                safe = safe_prefix is not None
                value, kind = self.sql(expression, "this"), self.sql(expression, "to")
                cast = spark_cast(expression.this, value, expression.to, kind, safe=safe)
                if cast is not None:
                    return cast
            return str(super().cast_sql(expression, safe_prefix))

        def interval_sql(self, expression: exp.Interval) -> str:
            """An interval."""
            return literal_sql(expression) or str(super().interval_sql(expression))

        def localtimestamp_sql(self, _: exp.Localtimestamp) -> str:
            """The current time without a zone. DuckDB reads the bare word as a column of that name."""
            return "CAST(NOW() AS TIMESTAMP)"

        def currentdate_sql(self, expression: exp.CurrentDate) -> str:
            """The current date, in parentheses for the same reason."""
            zone = expression.args.get("this")
            return "CAST(NOW() AS DATE)" if zone is None else str(super().currentdate_sql(expression))

        def datatype_sql(self, expression: exp.DataType) -> str:
            """A type; the interval type has no units here."""
            return "INTERVAL" if isinstance(expression.this, exp.Interval) else str(super().datatype_sql(expression))


def duck_sql(node: exp.Expr, *, whole: bool = False, copy: bool = True) -> str:
    """An expression or query in DuckDB's SQL. Rejects one that cannot be expressed there; with `whole`, also one of
    which a part would be lost. Without `copy` the tree is of no use afterwards.
    """
    for cast in node.find_all(exp.Cast):
        cast.meta[_ASKED] = True
    level = ErrorLevel.RAISE if whole else ErrorLevel.IGNORE
    try:
        return Duck().generate(node, copy=copy, identify=True, comments=False, unsupported_level=level)
    except UnsupportedError as error:
        named = ", ".join(re.findall(r"'[^']*'", str(error))) or next(
            iter(re.findall(r"\b[A-Z_]{4,}\w*\b", str(error))), ""
        )
        raise Unsupported(
            "the store does not support a part of the query, and would ignore it",
            detail=named or None,
            hint="leave it out, or compute it in a view and select its column",
        ) from None
    except _TooLong:
        raise StatementRefused(
            "the query becomes too long for the store", hint="use fewer nested array functions"
        ) from None
    except (SqlglotError, ValueError, TypeError, AttributeError, IndexError, KeyError):
        raise StatementRefused(
            "the store cannot run the query", detail="one of its functions has no counterpart there"
        ) from None
