"""What the tests of the language share: definitions to speak of, and the way from a text to plans, without Spark."""

from __future__ import annotations

import functools

from millstream.connect.nexmark_source import nexmark
from millstream.model.flow import Flow
from millstream.model.python.function import Function
from millstream.plan.explain.plan_tree import explain, text
from millstream.plan.plan import Plan
from millstream.plan.planner import plan
from millstream.sql.bind.binder import Binder
from millstream.sql.catalog import Catalog
from millstream.sql.parse import statement_parser
from millstream.sql.parse.statement_values import (
    Ask,
    Create,
    CreateFunction,
    CreateSink,
    CreateSource,
    CreateView,
    Explain,
    Insert,
    Statement,
)
from millstream.sql.parse.text import Text
from millstream.sql.query import store_query

GENERATORS = {"nexmark": nexmark}

BIDS = """CREATE SOURCE bids (
    auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, tags ARRAY<STRING>, ts TIMESTAMP,
    WATERMARK FOR ts AS ts - INTERVAL '4' SECOND
) FROM LOG('bids');
"""
OTHERS = """CREATE SOURCE clicks (bidder BIGINT, page STRING, home STRUCT<city: STRING, zip: BIGINT>,
    m MAP<STRING, INT>, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '1' MINUTE) FROM LOG('clicks');
CREATE SOURCE readings (sensor STRING, value DOUBLE, seen AS PROCTIME()) FROM LOG('readings');
CREATE TABLE items (id BIGINT PRIMARY KEY, name STRING, price BIGINT);
CREATE VIEW hot AS SELECT auction, count(*) AS n FROM bids GROUP BY auction;
CREATE SINK out INTO LOG('out');
"""


@functools.cache
def _world() -> Catalog:
    return defined(BIDS + OTHERS, Catalog())


def world() -> Catalog:
    """Sources bids, clicks and readings, a table items, a view hot and a sink without a query, to add to."""
    return _world().copy()


def defined(sql: str, catalog: Catalog) -> Catalog:
    """A catalog with the definitions of a text, each of them tried as a session would."""
    for entry in statement_parser.read(Text(sql), functions=catalog.functions):
        assert isinstance(entry, Create)
        take(catalog, entry)
    return catalog


def take(catalog: Catalog, entry: Create) -> Plan | None:
    """Add a definition if it works, and give its plan if it has one."""
    catalog.check_free(entry)
    trial = catalog.copy()
    trial.add(entry)
    if isinstance(entry, CreateFunction):
        trial.functions[entry.name.lower()] = Function(entry.name.lower(), len, entry.returns)
    flow = Flow("trial")
    binder = Binder(flow, trial, GENERATORS)
    made = None
    if isinstance(entry, CreateView):
        binder.view(entry)
        made = plan(flow)
    elif isinstance(entry, CreateSink) and (entry.view or entry.query is not None):
        binder.sink(entry)
        made = plan(flow)
    elif isinstance(entry, CreateSource):
        binder.named(entry.name)
    for each in ("entries", "schemas", "functions"):
        getattr(catalog, each).update(getattr(trial, each))
    return made


def flow_of(catalog: Catalog, *names: str, flow: str = "f") -> Flow:
    """One flow with some views of a catalog."""
    made = Flow(flow)
    binder = Binder(made, catalog, GENERATORS)
    for name in names:
        entry = catalog.get(name)
        assert isinstance(entry, CreateView | CreateSink), name
        binder.view(entry) if isinstance(entry, CreateView) else binder.sink(entry)
    return made


def view_plan(query: str, catalog: Catalog | None = None, *, name: str = "v") -> Plan:
    """The plan of a view with this query (and clauses)."""
    known = defined(f"CREATE VIEW {name} AS {query}", catalog if catalog is not None else world())
    return plan(flow_of(known, name))


def told(planned: Plan) -> str:
    """The explanation of a plan, without its id."""
    lines = text(explain(planned)).splitlines()
    return "\n".join(line for line in lines if not line.startswith("│  plan ")) + "\n"


TABLES = {"hot": ["auction", "n"], "items": ["id", "name", "price"], "bids$errors": ["reason"], "hot$late": ["epoch"]}
"""What a store would have: for questions."""


def bound(statement: Statement, catalog: Catalog) -> object:
    """Take a statement as far as it goes without a home: definitions to plans, questions to the store's dialect."""
    if isinstance(statement, Create):
        return take(catalog, statement)
    if isinstance(statement, Ask):
        return store_query.checked_query(statement.query, TABLES).sql
    if isinstance(statement, Insert) and statement.query is not None:
        return store_query.checked_query(statement.query, TABLES).sql
    if isinstance(statement, Explain) and statement.query is not None:
        flow = Flow("query")
        binder = Binder(flow, catalog, GENERATORS)
        binder.query(statement.piece.text, statement.query, statement.clauses).stream.view("query")
        return told(plan(flow))
    return None
