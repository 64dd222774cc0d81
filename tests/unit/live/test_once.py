"""A statement is split, parsed, bound and planned once on its way from a shell to a running flow."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType

from millstream.cli.connection import Connection
from millstream.cli.shell.output import AnswerPrinter
from millstream.cli.shell.shell import Runner
from millstream.plan.planner import plan
from millstream.sql.bind.binder import Binder
from millstream.sql.parse import statement_parser
from millstream.sql.parse.script import complete_script, split
from millstream.sql.parse.text import tokens
from tests.unit.live.test_failures import Fragile
from tests.unit.live.world import BIDS, HOT

STEPS: dict[CodeType, str] = {
    tokens.__code__: "tokens",
    split.__code__: "split",
    statement_parser.statement.__code__: "parse",
    Binder.definition.__code__: "bind",
    plan.__code__: "plan",
}

TEN = ";\n".join(
    [
        BIDS,
        "CREATE TABLE names (id BIGINT PRIMARY KEY, name STRING)",
        "INSERT INTO names VALUES (7, 'seven')",
        HOT,
        "CREATE VIEW dear AS SELECT auction, max(price) AS most FROM bids GROUP BY auction",
        "CREATE VIEW high AS SELECT auction, price FROM bids WHERE price > 100",
        "CREATE VIEW named AS SELECT b.auction, n.name FROM bids b JOIN names n ON b.auction = n.id",
        "CREATE VIEW hotter AS SELECT auction FROM hot WHERE n > 3",
        "CREATE SINK written FROM high INTO LOG('written')",
        "SHOW VIEWS;",
    ]
)
FLOW_MEMBERS = 6
"""Views and sinks among them: what is planned."""
DEFINITIONS = 8
"""Views, sinks, sources and tables among them: what is bound."""


@contextmanager
def counted() -> Iterator[Counter[str]]:
    """Counts the calls of each step in all threads, however its callers have imported it."""
    calls: Counter[str] = Counter()

    def profile(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code in STEPS:
            calls[STEPS[frame.f_code]] += 1

    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        yield calls
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def shell(home: Fragile) -> Callable[[str], None]:
    """Runs texts as the shell does: looked at on Enter, then carried out over a connection to a session."""
    runner = Runner(Connection(lambda: (home.session(), lambda: None)), AnswerPrinter("table"))

    def enter(text: str) -> None:
        script = complete_script(text)
        assert script is not None
        runner.run(script)

    return enter


def test_a_view_is_split_parsed_bound_and_planned_once(tmp_path: Path) -> None:
    with Fragile(tmp_path / "home") as home:
        enter = shell(home)
        enter(f"{BIDS};")
        with counted() as calls:
            enter(f"{HOT};")
            home.session().deployment.runs["bids"].catch_up(60)
        assert calls == {"tokens": 1, "split": 1, "parse": 1, "bind": 1, "plan": 1}


def test_each_statement_of_a_script_is_split_parsed_bound_and_planned_once(tmp_path: Path) -> None:
    with Fragile(tmp_path / "home") as home:
        enter = shell(home)
        with counted() as calls:
            enter(TEN)
        assert calls == {"tokens": 1, "split": 1, "parse": 10, "bind": DEFINITIONS, "plan": FLOW_MEMBERS}
        deployment = home.session().deployment
        assert not deployment.broken
        flows = len(deployment.runs)
    with Fragile(tmp_path / "home") as home, counted() as calls:
        deployment = home.session().deployment
        assert len(deployment.runs) == flows and not deployment.broken
    kept = {"tokens": DEFINITIONS, "split": DEFINITIONS, "parse": DEFINITIONS}
    assert calls == {**kept, "bind": DEFINITIONS, "plan": flows}


def test_a_view_that_is_shown_by_explain_is_not_bound_again(tmp_path: Path) -> None:
    with Fragile(tmp_path / "home") as home:
        enter = shell(home)
        enter(f"{BIDS}; {HOT};")
        with counted() as calls:
            enter("EXPLAIN VIEW hot;")
        assert calls == {"tokens": 1, "split": 1, "parse": 1}
