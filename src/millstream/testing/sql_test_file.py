"""Files of SQL tests: discovery, line-by-line parsing and validation, before any test runs."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NoReturn

from millstream.errors import DefinitionError, Origin
from millstream.model.types.duration import Duration
from millstream.sql.parse.script import StatementText, complete_script, split
from millstream.sql.parse.text import Text, word
from millstream.testing.sql_test_rows import Expected, cells_of

SUFFIX = ".test.sql"
START = "2026-01-01T00:00:00Z"
WORDS = ("test", "flow", "start", "advance", "end", "changes", "records", "error")
_DIRECTIVE = re.compile(r"\s*--\s*(?P<word>[a-z]+)\s*:\s*(?P<rest>.*?)\s*\Z", re.I)
_ROW = re.compile(r"\s*--\s*\|(?P<cells>.*)\|\s*\Z")
_NO_ROWS = re.compile(r"\s*--\s*no rows\s*\Z", re.I)
_LOOKS = ("changes", "records")


@dataclass(frozen=True)
class Step:
    """One action of a test, and its expected result."""

    line: int
    kind: str
    """``sql``, or one of the keywords advance, end, changes and records."""
    text: str
    piece: StatementText | None = None
    expected: Expected | None = None
    error: str = ""

    @property
    def title(self) -> str:
        """The step in one line."""
        text = " ".join(self.text.split())
        return text if self.kind == "sql" else f"{self.kind} of {text}"

    @property
    def looks(self) -> bool:
        """Whether the step inspects rows."""
        return self.kind in _LOOKS or (self.piece is not None and word(self.piece.tokens[0]) in ("SELECT", "WITH"))

    @property
    def ordered(self) -> bool:
        """Whether the inspected rows have an order."""
        if self.piece is None:
            return False
        depth = 0
        for token in self.piece.tokens:
            depth += (word(token) == "(") - (word(token) == ")")
            if depth == 0 and word(token) in ("ORDER", "ORDER BY"):
                return True
        return False


@dataclass(frozen=True)
class Case:
    """A test: its name, its location, and its steps, with those of the whole file first."""

    file: Path
    line: int
    name: str
    steps: tuple[Step, ...] = ()


@dataclass(frozen=True)
class TestFile:
    """A file of tests, the flows under test, and the initial time of the clock."""

    __test__ = False

    path: Path
    flows: tuple[Path, ...]
    start: str = START
    cases: tuple[Case, ...] = ()


def find_files(paths: Sequence[Path]) -> list[Path]:
    """Find the test files in the directories; paths of files are returned as they are."""
    files: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = (p for p in path.rglob(f"*{SUFFIX}") if not _hidden(p.relative_to(path)))
            files += sorted(inside)
        elif path.is_file():
            files.append(path)
        else:
            raise DefinitionError(f"there is no file or folder {path}")
    if not files:
        raise DefinitionError(
            f"there is no test in {', '.join(map(str, paths))}", hint=f"tests are in files named like flow{SUFFIX}"
        )
    return list(dict.fromkeys(files))


def _hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def read_flows(file: TestFile) -> list[StatementText]:
    """Return the statements under test of a file."""
    return [piece for path in file.flows for piece in split(Text(_text(path), str(path)))]


def read_tests(path: Path) -> TestFile:
    """Parse a file of tests."""
    return _Reading(path, _text(path)).file()


@dataclass
class _Reading:
    path: Path
    text: str
    steps: list[Step] = field(default_factory=list)
    """The steps of the current test; initially those of the whole file."""
    common: tuple[Step, ...] = ()
    cases: list[Case] = field(default_factory=list)
    flows: list[Path] = field(default_factory=list)
    start: str = START
    name: str = ""
    begun: int = 0
    at: int = 0

    def file(self) -> TestFile:
        statement: list[str] = []
        first = 0
        for number, line in enumerate(self.text.splitlines(), 1):
            self.at = number
            if not statement:
                if not line.strip() or self._comment(line):
                    continue
                first = number
            statement.append(line)
            whole = "\n".join(statement)
            if line.rstrip().endswith(";") and complete_script(whole) is not None:
                self._statement(whole, first)
                statement = []
        if statement:
            self.at = first
            self._fail("this statement has no end", "a statement ends with ;")
        self._end_case()
        if not self.cases:
            self._fail("there is no test in this file", "-- test: what it is about")
        return TestFile(self.path, tuple(self.flows) or self._beside(), self.start, tuple(self.cases))

    def _comment(self, line: str) -> bool:
        """Process a comment line."""
        if row := _ROW.match(line):
            self._expected_row(cells_of(row["cells"]))
            return True
        if _NO_ROWS.match(line):
            self._expect(Expected((), ()))
            return True
        match = _DIRECTIVE.match(line)
        if match is None:
            return line.lstrip().startswith("--")
        directive = match["word"].lower()
        if directive in WORDS:
            self._directive(directive, match["rest"])
        elif close := difflib.get_close_matches(directive, WORDS, n=1):
            self._fail(f"`-- {directive}:` is not allowed here", f"did you mean -- {close[0]}:?")
        return True

    def _directive(self, directive: str, rest: str) -> None:
        if not rest and directive != "end":
            self._fail(f"`-- {directive}:` needs a value")
        if directive == "test":
            self._end_case()
            self.name, self.begun, self.steps = rest, self.at, []
        elif directive in ("flow", "start"):
            if self.name or self.steps:
                self._fail(f"`-- {directive}:` comes first in the file")
            if directive == "flow":
                self.flows += [self._flow(p.strip()) for p in rest.split(",")]
            else:
                self.start = rest
        elif directive == "error":
            if not self.steps or self.steps[-1].expected is not None:
                self._fail("`-- error:` comes after the statement that fails")
            self.steps[-1] = replace(self.steps[-1], error=rest)
        else:
            if directive == "advance":
                try:
                    Duration.positive(rest, what="advance")
                except DefinitionError as error:
                    self._fail(error.message, error.hint)
            self._check_last()
            self.steps.append(Step(self.at, directive, rest))

    def _statement(self, sql: str, first: int) -> None:
        self._check_last()
        (piece, *more) = split(Text("\n" * (first - 1) + sql, str(self.path)))
        for one in (piece, *more):
            self.steps.append(Step(first, "sql", one.sql, one))

    def _expected_row(self, cells: tuple[str, ...]) -> None:
        last = self.steps[-1] if self.steps else None
        if last is None or last.expected is None:
            self._expect(Expected(cells, ()))
            return
        if len(cells) != len(last.expected.columns):
            self._fail(f"{len(cells)} values for {len(last.expected.columns)} columns")
        self.steps[-1] = replace(last, expected=replace(last.expected, rows=(*last.expected.rows, cells)))

    def _expect(self, expected: Expected) -> None:
        if not self.steps or not self.steps[-1].looks:
            self._fail("rows are expected of a SELECT, of `-- changes: view` or of `-- records: topic`")
        self.steps[-1] = replace(self.steps[-1], expected=expected)

    def _check_last(self) -> None:
        """Check that a step that inspects rows states the expected ones."""
        last = self.steps[-1] if self.steps else None
        if last is not None and last.looks and last.expected is None and not last.error:
            self.at = last.line
            self._fail(
                "what is expected here?", "write `-- | column | column |` and a line for each row, or `-- no rows`"
            )

    def _end_case(self) -> None:
        self._check_last()
        if not self.name:
            self.common = tuple(self.steps)
            return
        steps = (*self.common, *self.steps)
        if not any(s.expected is not None or s.error for s in self.steps):
            self.at = self.begun
            self._fail(f"the test `{self.name}` expects nothing")
        if any(c.name == self.name for c in self.cases):
            self.at = self.begun
            self._fail(f"there are two tests `{self.name}`")
        self.cases.append(Case(self.path, self.begun, self.name, steps))

    def _flow(self, name: str) -> Path:
        path = self.path.parent / name
        if not path.is_file():
            self._fail(f"there is no file {path}")
        return path

    def _beside(self) -> tuple[Path, ...]:
        """Return the SQL files in the directory of the tests, or, if there are none, in its parent directory."""
        for folder in (self.path.parent, self.path.absolute().parent.parent):
            files = tuple(p for p in sorted(folder.glob("*.sql")) if not p.name.endswith(SUFFIX))
            if files:
                return files
        raise DefinitionError(
            f"which flow is {self.path} about?", hint="name its file in the first line: -- flow: ../flow.sql"
        )

    def _fail(self, message: str, hint: str | None = None) -> NoReturn:
        raise DefinitionError(message, hint=hint, origin=Origin(str(self.path), self.at))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DefinitionError(f"the file {path} cannot be read", detail=str(error)) from None
