"""SQL for DuckDB, with a bound on its length.

Some functions are written there as an expression that holds their arguments several times. Inside one another they
would make a text of any length, and take all the time and memory of the process that writes it.
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
"""Parts of an expression that are written at most."""


_ASKED = "asked"
"""Marks a CAST that somebody wrote, and not the generator."""


class _TooLong(Exception):
    """More parts than the bound."""


class Duck(DuckDB):
    """DuckDB's dialect, whose generator gives up on texts that become too long."""

    class Generator(DuckDBGenerator):
        """Its generator. It counts the parts that it writes."""

        _left = MOST

        def sql(self, *given: Any, **more: Any) -> str:
            """The text of one part."""
            self._left -= 1
            if self._left < 0:
                raise _TooLong
            return str(super().sql(*given, **more))

        def cast_sql(self, expression: exp.Cast, safe_prefix: str | None = None) -> str:
            """A CAST; one that stands in the question itself has Spark's meaning."""
            if _ASKED in expression.meta:
                safe = safe_prefix is not None
                value, kind = self.sql(expression, "this"), self.sql(expression, "to")
                made = spark_cast(expression.this, value, expression.to, kind, safe=safe)
                if made is not None:
                    return made
            return str(super().cast_sql(expression, safe_prefix))

        def interval_sql(self, expression: exp.Interval) -> str:
            """An interval."""
            return literal_sql(expression) or str(super().interval_sql(expression))

        def localtimestamp_sql(self, _: exp.Localtimestamp) -> str:
            """The present time without a zone. DuckDB takes the bare word for a column of that name."""
            return "CAST(NOW() AS TIMESTAMP)"

        def currentdate_sql(self, expression: exp.CurrentDate) -> str:
            """The present day, in brackets for the same reason."""
            zone = expression.args.get("this")
            return "CAST(NOW() AS DATE)" if zone is None else str(super().currentdate_sql(expression))

        def datatype_sql(self, expression: exp.DataType) -> str:
            """A type; that of intervals has no units here."""
            return "INTERVAL" if isinstance(expression.this, exp.Interval) else str(super().datatype_sql(expression))


def duck_sql(node: exp.Expr, *, whole: bool = False) -> str:
    """An expression or query in DuckDB's SQL. Refuses one that cannot be written there; with `whole`, also one of which
    a part would be left out.
    """
    for cast in node.find_all(exp.Cast):
        cast.meta[_ASKED] = True
    level = ErrorLevel.RAISE if whole else ErrorLevel.IGNORE
    try:
        return Duck().generate(node, identify=True, comments=False, unsupported_level=level)
    except UnsupportedError as error:
        named = ", ".join(re.findall(r"'[^']*'", str(error))) or next(
            iter(re.findall(r"\b[A-Z_]{4,}\w*\b", str(error))), ""
        )
        raise Unsupported(
            "a part of the query cannot be answered by the store, and would be ignored",
            detail=named or None,
            hint="leave it out, or compute it in a view and ask for its column",
        ) from None
    except _TooLong:
        raise StatementRefused(
            "the question becomes too long for the store", hint="fewer functions of arrays inside one another"
        ) from None
    except (SqlglotError, ValueError, TypeError, AttributeError, IndexError, KeyError):
        raise StatementRefused(
            "the question cannot be asked of the store", detail="one of its functions has no counterpart there"
        ) from None
