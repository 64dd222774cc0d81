"""Stored tables, views over them in one flow, and the same tables in DuckDB to compare with; without Spark."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

from millstream.home import Home
from millstream.model.types.duckdb_values import arrow_table
from millstream.plan.planner import plan
from millstream.sql.catalog import Catalog
from millstream.sql.parse import statement_parser
from millstream.sql.parse.statement_values import Create
from millstream.sql.parse.text import Text
from tests.duck import connection
from tests.sql.engine import QueryEngine
from tests.sql.kit import flow_of


class LiveTables:
    """A home whose tables change as those of a DuckDB do."""

    def __init__(
        self,
        path: Path,
        tables: Mapping[str, str],
        views: Mapping[str, str],
        *,
        duck: str = "",
        flow: str = "f",
        types: Mapping[str, str] | None = None,
    ) -> None:
        """`types` are those that DuckDB has other names for. The home has the tables that a view reads."""
        self.path, self.views = path, dict(views)
        read = " ".join(views.values()).lower()
        self.tables = {name: columns for name, columns in tables.items() if name.lower() in read}
        self.duck = connection(as_spark=True)
        for name, columns in tables.items():
            for ours, theirs in (types or {}).items():
                columns = columns.replace(ours, theirs)
            self.duck.execute(f"CREATE TABLE {name} ({columns})")
        if duck:
            self.duck.execute(duck)
        texts = [f"CREATE TABLE {name} ({columns})" for name, columns in self.tables.items()]
        texts += [f"CREATE VIEW {name} WITH (tables = 'live') AS {query}" for name, query in views.items()]
        catalog = Catalog()
        for entry in statement_parser.read(Text(";\n".join(texts))):
            assert isinstance(entry, Create)
            catalog.add(entry)
        self.plan = plan(flow_of(catalog, *views, flow=flow))
        self.put(self.tables)
        self.open()

    def put(self, tables: Iterable[str]) -> None:
        """Store tables as DuckDB has them now."""
        home = Home(self.path) if not hasattr(self, "home") else self.home
        for name in tables:
            home.put_table(name, arrow_table(self.duck.sql(f"SELECT * FROM {name}")))
        if home is not getattr(self, "home", None):
            home.close()

    def open(self) -> None:
        """Start the flow from what is on disk."""
        self.home = Home(self.path)
        self.loop = self.home.loop(self.plan, engine=QueryEngine)

    def close(self) -> None:
        """Stop the flow."""
        self.loop.close()
        self.home.close()

    def change(self, *statements: str) -> None:
        """Change tables, here and there."""
        for statement in statements:
            self.duck.execute(statement)
        said = " ".join(statements).lower()
        self.put(name for name in self.tables if name.lower() in said)

    def tick(self) -> None:
        """Perform epochs until there is nothing to do."""
        while self.loop.step() is not None:
            pass

    def rows(self, view: str) -> list[tuple[Any, ...]]:
        """The rows of a view."""
        return [tuple(r.values()) for r in self.home.query(f"SELECT * FROM {view}").to_dicts()]

    def differences(self) -> dict[str, tuple[list[Any], list[Any]]]:
        """Views whose rows are not those of their query in DuckDB: what they have, and what they should have."""
        found = {}
        for name, query in self.views.items():
            have, should = normal(self.rows(name)), normal(self.duck.execute(query).fetchall())
            if not same(have, should):
                found[name] = (have, should)
        return found


def normal(rows: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Rows in an order of their own, decimals as plain numbers."""
    plain = [tuple(float(v) if isinstance(v, Decimal) else v for v in row) for row in rows]
    return sorted(plain, key=lambda row: [_rounded(v) for v in row])


def _rounded(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else repr(value)


def same(have: list[tuple[Any, ...]], should: list[tuple[Any, ...]]) -> bool:
    """Whether rows are the same, but for the last digits of floating numbers."""
    return len(have) == len(should) and all(
        _alike(a, b) for mine, theirs in zip(have, should, strict=True) for a, b in zip(mine, theirs, strict=True)
    )


def _alike(a: Any, b: Any) -> bool:
    if isinstance(a, float | int) and isinstance(b, float | int):
        return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9)
    return bool(a == b)
