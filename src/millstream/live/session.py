"""A session: the statements of one user or program, one after the other, on a home that exists independently of it."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from millstream.errors import DefinitionError, MillstreamError, Origin
from millstream.limits import Limits
from millstream.live import select, show, subscribe
from millstream.live.answer import Answer
from millstream.live.flows import pause
from millstream.live.tables import dml
from millstream.model.connectors import check_name
from millstream.runtime.inspect.status import checked_failed_views
from millstream.runtime.supervision.supervisor import reason
from millstream.sql.connectors import check_start
from millstream.sql.parse import statement_parser
from millstream.sql.parse.script import SqlScript, StatementText, as_script
from millstream.sql.parse.statement_values import (
    Ask,
    Copy,
    Create,
    Delete,
    Describe,
    Drop,
    Explain,
    Insert,
    Merge,
    Pause,
    SetOption,
    Show,
    Statement,
    Subscribe,
    Update,
)
from millstream.units import checked_seconds, parsed_bytes

if TYPE_CHECKING:
    from millstream.live.deployment import Deployment

SETTINGS: dict[str, tuple[Any, str]] = {
    "flow": ("", "the flow that new views join; empty: one is chosen"),
    "start": ("", "where new views begin: 'earliest', 'now' or a time; empty: 'earliest'"),
    "query_timeout": (60, "seconds that a query may take; 0: no limit"),
    "query_memory": ("1GB", "memory that a query may use, as '512MB' or '4GB'; 0: no limit"),
    "failed_views": ("error", "what a SELECT from a failed view does: 'error', or 'warn': its last rows"),
    "wait": (60, "seconds that a SELECT waits for what this session has inserted or defined; 0: not at all"),
}
"""Options of a session, what they are at first, and what they mean."""


class Session:
    """Executes SQL. One thread at a time."""

    def __init__(self, deployment: Deployment, *, administrator: bool = True) -> None:
        self.deployment = deployment
        self.administrator = administrator
        """Whether Python functions may be registered."""
        self.settings: dict[str, Any] = {name: value for name, (value, _) in SETTINGS.items()}
        self.settings["query_timeout"] = deployment.home.limits.seconds
        self.settings["query_memory"] = f"{deployment.home.limits.bytes / (1 << 20):g}MB"
        self.written: set[str] = set()
        """The sources that this session has inserted into, and no SELECT has waited for yet."""
        self.begun: set[str] = set()
        """The flows that it has set to work, and no SELECT has waited for yet."""
        self._waited: set[str] = set()
        """The flows that a SELECT has waited for since this session last changed something."""

    def execute(self, sql: str | SqlScript, *, name: str = "SQL") -> Iterator[Answer]:
        """Execute the statements of a text, one after the other; the error of a statement is raised when it is reached.
        `name` is the name of the text in error messages; a script has one.
        """
        try:
            for piece in as_script(sql, name):
                yield self.one(piece)
        finally:
            self.deployment.flush()

    def one(self, piece: StatementText) -> Answer:
        """Carry out one statement."""
        statement = statement_parser.statement(piece, functions=self.deployment.catalog.functions)
        try:
            if not isinstance(statement, Create):
                self.deployment.flush()
            return self._does(statement)
        except MillstreamError as error:
            if error.origin is None or not error.origin.column:
                error.origin = _named_in(piece, error) or piece.text.of_token(piece.tokens[0])
            raise

    def _does(self, statement: Statement) -> Answer:
        deployment = self.deployment
        answer: Answer | None = None
        if isinstance(statement, Create | Insert | Update | Delete | Merge | Copy):
            self._waited.clear()
        match statement:
            case Create():
                answer = deployment.create(statement, self)
            case Drop():
                answer = deployment.drop(statement)
            case Pause():
                answer = pause.pause(deployment, statement, float(self.settings["wait"]))
            case Insert():
                answer = dml.insert(deployment, statement, self)
            case Update():
                answer = dml.update(deployment, statement, self)
                self.written.add(statement.table)
            case Delete():
                answer = dml.delete(deployment, statement, self)
                self.written.add(statement.table)
            case Copy():
                answer = dml.copy(deployment, statement, self)
            case Merge():
                answer = dml.merge(deployment, statement, self)
            case Ask():
                answer = select.ask(deployment, statement, self)
            case Subscribe():
                answer = subscribe.subscribe(deployment, statement)
            case Explain():
                answer = show.explain(deployment, statement)
            case Describe():
                answer = show.describe(deployment, statement)
            case Show():
                answer = show.show(deployment, statement)
            case SetOption():
                answer = self._set(statement)
        assert answer is not None, statement
        return answer

    def _set(self, statement: SetOption) -> Answer:
        if not statement.name:
            return show.settings(self.settings, SETTINGS)
        if statement.name not in SETTINGS:
            raise DefinitionError(f"there is no option `{statement.name}`", hint="options are: " + ", ".join(SETTINGS))
        if statement.value is None:
            return show.settings({statement.name: self.settings[statement.name]}, SETTINGS)
        usual = SETTINGS[statement.name][0]
        if isinstance(usual, int) != isinstance(statement.value, int | float):
            raise DefinitionError(f"{statement.name} is a {'number' if isinstance(usual, int) else 'text'}")
        if statement.name == "start":
            check_start(str(statement.value))
        if statement.name == "flow" and statement.value:
            check_name(str(statement.value), "flow")
        if isinstance(usual, int):
            if isinstance(statement.value, bool):
                raise DefinitionError(f"{statement.name} is a number")
            checked_seconds(float(statement.value))
        if statement.name == "query_memory":
            parsed_bytes(str(statement.value))
        if statement.name == "failed_views":
            checked_failed_views(str(statement.value))
        self.settings[statement.name] = statement.value
        return Answer(message=f"{statement.name} = {statement.value}")

    @property
    def limits(self) -> Limits:
        """The time and memory that a query of this session may use."""
        return Limits(float(self.settings["query_timeout"]), parsed_bytes(str(self.settings["query_memory"])))

    def settle(self, names: Iterable[str] = ()) -> tuple[str, ...]:
        """Wait until the rows and definitions of this session have reached the views with these names (without names:
        all views). Returns warnings if they have not. A failed flow does not delay queries over views of other flows;
        its failure is reported once, with the next query.
        """
        if not self.begun and not self.written:
            return ()
        deadline = time.monotonic() + float(self.settings["wait"])
        warnings = [s for f in sorted(self.begun) if (s := self.deployment.broken_views_of(f))]
        self.begun = {f for f in self.begun if not self.deployment.broken_views_of(f)}
        runs = self.deployment.runs_of(self.begun)
        flows = {self.deployment.flow_name(n.partition("$")[0]) for n in names}
        everything = not flows or "" in flows  # a table, or the errors of a source
        waiting = [
            r for r in dict.fromkeys([*runs, *self.deployment.readers_of(self.written)]) if r.flow not in self._waited
        ]
        for run in waiting:
            if not everything and run.flow not in flows:
                continue
            try:
                run.catch_up(max(0.0, deadline - time.monotonic()))
            except TimeoutError:  # the query sees what has arrived so far; the next one waits again
                waited = f"{float(self.settings['wait']):g} seconds"
                return (
                    *warnings,
                    f"after {waited} the flow `{run.flow}` has not processed everything that this session wrote",
                )
            except MillstreamError as error:
                self.begun.discard(run.flow)
                views = ", ".join(f"`{e.name}`" for e in self.deployment.members(run.flow))
                why = reason(error)
                warnings.append(f"the flow `{run.flow}` ({views}) does not run: {why}; RESUME {run.flow} tries again")
            self._waited.add(run.flow)
        if all(run.flow in self._waited for run in waiting):
            self.written.clear()
            self.begun.clear()
        return tuple(warnings)


def _named_in(piece: StatementText, error: MillstreamError) -> Origin | None:
    """The position in a statement of the first name that an error mentions."""
    for name in re.findall(r"`([^`]+)`", error.message):
        for token in piece.tokens:
            if str(token.text).lower() == name.lower():
                return piece.text.of_token(token)
    return None
