"""Expression templates in the store's dialect, filled with parts of a query."""

from __future__ import annotations

from sqlglot import exp, parse_one


def written(sql: str, **parts: exp.Expr) -> exp.Expr:
    """An expression in the store's dialect, with placeholders replaced by parts."""
    tree = parse_one(sql.format(**{n: f"_of_{n}" for n in parts}), dialect="duckdb")
    for column in list(tree.find_all(exp.Column)):
        if column.name.startswith("_of_"):
            column.replace(parts[column.name.removeprefix("_of_")].copy())
    return tree
