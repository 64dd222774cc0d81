"""Explains query errors: messages name columns and types as users wrote them, never the engine."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable

from millstream.errors import QueryError, ViewNotFound
from millstream.model.reserved import OF
from millstream.model.types.duckdb_values import MONTHS
from millstream.model.types.unknown_column import no_column


def explained(message: str) -> QueryError:
    """Return the error for a query that DuckDB could not answer."""
    gone = re.search(r"Table with name (\S+) does not exist", message)
    if gone is not None:  # it existed when the query was validated
        return ViewNotFound(f"there is no view or table `{gone[1]}`", detail="it was dropped meanwhile")
    unknown = re.search(r"Function with name (\S+) does not exist", message)
    if unknown is not None:
        return QueryError(
            f"the function `{unknown[1]}` cannot be used in a query",
            detail="Spark computes it in views; the store that answers queries does not have it",
            hint="compute it in a view, and select its column",
        )
    if MONTHS in message:
        return QueryError(
            "the result contains an interval of months or years",
            detail="its length depends on where it is added, so it cannot be a value",
            hint="add it to a date or time, or select a number of months",
        )
    if "expression depth limit" in message:
        return QueryError(
            "the query is nested too deeply",
            hint="split it: a view can read from another view",
        )
    for pattern, say in _EXPLAINED:
        match = re.search(pattern, message, re.DOTALL)
        if match is not None:
            return say(match)
    return QueryError(
        "the query failed",
        detail=next(iter(message.strip().splitlines()), None),
        hint="check the values and types that the query uses; DESCRIBE name shows the types",
    )


_TYPES = {
    "VARCHAR": "STRING", "STRING_LITERAL": "STRING", "INTEGER_LITERAL": "INT", "INTEGER": "INT", "HUGEINT": "BIGINT",
    "INT8": "TINYINT", "INT16": "SMALLINT", "INT32": "INT", "INT64": "BIGINT", "INT128": "DECIMAL", "BOOL": "BOOLEAN",
    "TIMESTAMP WITH TIME ZONE": "TIMESTAMP", "TIMESTAMP": "TIMESTAMP_NTZ", "BLOB": "BINARY",
    "INTERVAL": "INTERVAL DAY TO SECOND",
}  # fmt: skip
"""Types of the store, by their names in Spark SQL."""


_ONE = r"(?:TIMESTAMP WITH TIME ZONE|\w+(?:\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\))?)(?:\[\d*\])*"
"""A type of the store in a message, e.g. ``DECIMAL(10,2)``, ``BIGINT[]`` or ``MAP(VARCHAR, BIGINT)``."""
_NAMES = {"~~": "LIKE", "!~~": "NOT LIKE", "array_extract": "[]", "list_contains": "array_contains",
          "list_value": "array", "map_extract_value": "[]", "regexp_matches": "regexp_like"}  # fmt: skip
"""Functions of the store, by their names in Spark SQL."""


def _split(text: str) -> list[str]:
    """Split a list at its commas, except inside brackets."""
    parts, depth = [""], 0
    for c in text:
        depth += (c == "(") - (c == ")")
        if c == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += c
    return [p.strip() for p in parts]


def _type(text: str) -> str:
    if re.fullmatch(_ONE, text) is None:
        return text
    if text.endswith("]"):
        return f"ARRAY<{_type(text[: text.rindex('[')])}>"
    name, bracket, inner = text.partition("(")
    if bracket and name == "MAP":
        return f"MAP<{_types(inner[:-1])}>"
    if bracket and name == "STRUCT":
        fields = (f.partition(" ") for f in _split(inner[:-1]))
        return f"STRUCT<{', '.join(f'{n}: {_type(k)}' for n, _, k in fields)}>"
    return _TYPES.get(text, text.replace(",", ", ") if bracket else text)


def _types(text: str) -> str:
    return ", ".join(_type(t) for t in _split(text))


def _called(match: re.Match[str]) -> QueryError:
    return QueryError(
        f"`{_NAMES.get(match[1], match[1])}` cannot be computed of {_types(match[2])}",
        hint="CAST the value to the type that is needed",
    )


def _no_column(match: re.Match[str]) -> QueryError:
    near = [n for n in re.findall(r'"([^"]+)"', match[2] or "") if not n.startswith(OF)]
    close = difflib.get_close_matches(match[1].lower(), [n.lower() for n in near], n=1)
    return QueryError(
        no_column(match[1]),
        hint=f"did you mean `{close[0]}`?"
        if close
        else "DESCRIBE name lists the columns; a string is written in single quotes",
    )


def _failed(message: str, hint: str) -> Callable[[re.Match[str]], QueryError]:
    """Build a message from the matched parts, e.g. ``{1}``; types are named as in Spark SQL."""

    def say(match: re.Match[str]) -> QueryError:
        parts = [_type(g or "") for g in (match[0], *match.groups())]
        return QueryError(message.format(*parts), hint=hint.format(*parts))

    return say


_EXPLAINED: tuple[tuple[str, Callable[[re.Match[str]], QueryError]], ...] = (
    (r'Referenced column "([^"]+)"[^\n]*not found(?:.*?[Cc]andidate bindings: ([^\n]*))?', _no_column),
    (r'Values list "[^"]*" does not have a column named "([^"]+)"()', _no_column),
    (r'Table "[^"]*" does not have a column named "([^"]+)"(?:.*?Candidate bindings: : ?([^\n]*))?', _no_column),
    (
        r'Referenced table "([^"]+)" not found(?:.*?Candidate tables: "([^"]+)")?',
        lambda m: QueryError(
            f"there is no relation `{m[1]}` here",
            hint=f"did you mean `{m[2]}`?" if m[2] else "name a relation of FROM, or its alias, before the dot",
        ),
    ),
    (
        r'Ambiguous reference to column name "([^"]+)" \(use: ([^)]*)\)',
        lambda m: QueryError(
            f"`{m[1]}` is a column of several relations",
            hint=f"say which: {re.sub(r'[^ .,]+[.](?=[^ .,]+[.])', '', m[2].replace(chr(34), ''))}",
        ),
    ),
    (
        r"No function matches the given name and argument types '([^'(]+)\(([^'\n]*)\)'",
        _called,
    ),
    (
        rf"Cannot compare values of type ({_ONE}) and (?:type )?({_ONE})",
        lambda m: QueryError(
            f"{_types(m[1])} and {_types(m[2])} cannot be compared", hint="CAST one of them to the type of the other"
        ),
    ),
    (
        r'extract specifier "([^"]+)" not recognized',
        lambda m: QueryError(
            f"`{m[1].lower()}` is not a part of a time",
            hint="year, quarter, month, week, day, dayofweek, doy, hour, minute or second",
        ),
    ),
    (
        r'column "?([^"\n]+?)"? must appear in the GROUP BY clause',
        lambda m: QueryError(
            f"`{m[1]}` is neither grouped by nor inside an aggregate",
            hint=f"add it to GROUP BY, or take one of its values: max({m[1]})",
        ),
    ),
    (
        r"WHERE clause cannot contain aggregates",
        lambda _: QueryError("an aggregate is not allowed in WHERE", hint="write it in HAVING, after GROUP BY"),
    ),
    (
        r"WHERE clause cannot contain window functions",
        lambda _: QueryError("a window function is not allowed in WHERE", hint="write it in QUALIFY"),
    ),
    (
        r"aggregate function calls cannot be nested",
        lambda _: QueryError(
            "an aggregate cannot be inside another",
            hint="compute the inner one in a subquery: SELECT max(n) FROM (SELECT count(*) AS n ... GROUP BY ...)",
        ),
    ),
    (
        r"(ORDER|GROUP BY) term out of range[^\n]*?between 1 and (\d+)",
        lambda m: QueryError(
            f"the result has no column with the number in {m[1].split()[0]} BY: it has {m[2]}",
            hint="name the column, or count from 1",
        ),
    ),
    (
        r"(?:Subquery returns (\d+) columns - expected (\d+)|[Ss]ubquery has too many columns)",
        lambda _: QueryError(
            "a subquery returns more columns than are compared", hint="select as many columns as there are before it"
        ),
    ),
    (
        r"More than one row returned by a subquery",
        lambda _: QueryError(
            "a scalar subquery returned more than one row",
            hint="an aggregate gives one, e.g. (SELECT max(x) ...), or ORDER BY ... LIMIT 1; or use IN or EXISTS",
        ),
    ),
    (
        r"Set operations can only apply to expressions with the same number of result columns",
        lambda _: QueryError(
            "the parts of a UNION, INTERSECT or EXCEPT have different numbers of columns",
            hint="select the same number of columns in both; NULL AS name fills one in",
        ),
    ),
    (
        r"(`[^`]*` cannot become [^\n]+)",
        lambda m: QueryError(m[1], hint="try_cast(value AS type) gives NULL where a value does not fit"),
    ),
    (
        rf"Could not convert string ['\"](.*?)['\"] to ({_ONE})",
        lambda m: QueryError(
            f"`{m[1]}` cannot become {_types(m[2])}",
            hint="try_cast(value AS type) gives NULL where a value does not fit",
        ),
    ),
    (
        rf"Unimplemented type for cast \(({_ONE}) -> ({_ONE})\)",
        lambda m: QueryError(f"{_types(m[1])} cannot become {_types(m[2])}", hint="CAST it to STRING first"),
    ),
    (
        r'Column "([^"]+)" does not exist on \w+ side of join',
        _failed(
            "USING ({1}): one side has no such column", "write ON a.x = b.y where the columns have different names"
        ),
    ),
    (r"LIMIT/OFFSET cannot be negative", _failed("LIMIT and OFFSET cannot be negative", "write a number from 0 on")),
    (r"[Dd]ivision by zero", _failed("division by zero", "try_divide(a, b) and nullif(b, 0) give NULL instead")),
    (
        rf"Overflow in \w+ of ({_ONE})",
        _failed("the result does not fit into {1}", "CAST one of the values to DECIMAL(38, 0) or DOUBLE first"),
    ),
    (
        rf"Type ({_ONE}) with value (\S+) can't be cast because the value is out of range for the destination "
        rf"type ({_ONE})",
        _failed("`{2}` does not fit into {3}", "CAST to a wider type; try_cast gives NULL where a value does not fit"),
    ),
    (
        rf"Cannot mix values of type ({_ONE}) and ({_ONE}) in (\w+)",
        _failed("{1} and {2} cannot be mixed in {3}", "CAST one of them to the type of the other"),
    ),
    (
        rf"Cannot (?:combine types of|concatenate types) ({_ONE}) and ({_ONE})",
        _failed("{1} and {2} cannot be combined", "CAST one of them to the type of the other"),
    ),
    (
        rf"Cannot deduce template type .*?in function: '(\w+)\(.*?- '({_ONE})', from.*?- '({_ONE})', which",
        lambda m: QueryError(
            f"`{_NAMES.get(m[1], m[1])}` cannot be computed of {_types(m[2])} and {_types(m[3])}",
            hint="CAST one of them to the type of the other",
        ),
    ),
    (
        rf"Type ({_ONE}) with value '(.*?)' can't be cast to the destination type ({_ONE})",
        _failed("`{2}` cannot become {3}", "try_cast(value AS type) gives NULL where a value does not fit"),
    ),
    (
        rf"Could not cast value (\S+) to ({_ONE})",
        _failed("`{1}` does not fit into {2}", "CAST to a wider type; try_cast gives NULL where a value does not fit"),
    ),
    (
        r"Invalid Input Error: ((?:missing|invalid|unexpected|no argument for|bad|trailing|pattern) [^\n]*)",
        lambda m: QueryError(
            f"a regular expression cannot be read: {m[1]}",
            hint="write a backslash before a character that is meant literally",
        ),
    ),
    (
        r'(?:invalid timestamp field format|invalid date field format|date field value out of range)[^"]*"([^"]*)"',
        _failed("`{1}` is not a time or date", "write it like '2026-01-31' or '2026-01-31 12:00:00'"),
    ),
    (
        rf"UNNEST\(\) can only be applied to lists, structs and NULL, not ({_ONE})",
        _failed("explode needs an array, not {1}", "split(text, ',') makes an array of a text"),
    ),
    (
        r"Could not find key \"([^\"]+)\" in struct",
        _failed("there is no field `{1}`", "DESCRIBE name shows the fields of a STRUCT"),
    ),
    (
        r"(?:Macro|Table Macro) \"?(\w+)\"?\(?\)? does not support the supplied arguments",
        _failed("`{1}` cannot be called with these arguments", "docs/guide/steps.md shows how functions are called"),
    ),
    (
        r"window expressions cannot be volatile",
        _failed(
            "a division is not allowed in PARTITION BY or ORDER BY of a window in a query",
            "compute it in a subquery: SELECT ... OVER (ORDER BY x) FROM (SELECT a / b AS x ...)",
        ),
    ),
    (
        r"subqueries in lambda expressions are not supported",
        _failed("a subquery is not allowed inside a lambda", "explode the array, and join its elements"),
    ),
    (
        r"[Ww]indow functions are not (?:supported|allowed) (?:here|in)",
        _failed("a window function needs OVER (...)", "row_number() OVER (PARTITION BY a ORDER BY b)"),
    ),
)
"""DuckDB's messages and their replacements, which name columns and types as users wrote them."""
