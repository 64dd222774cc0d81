"""`millstream test`: runs the SQL tests of a directory, and reports the failures."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import click

from millstream.cli.exit_codes import ExitCode
from millstream.cli.output import format_seconds

if TYPE_CHECKING:
    from millstream.model.flow import Flow
    from millstream.testing.script import Script
    from millstream.testing.sql_test import CaseOutcome, MakeScript


@click.command(short_help="Run the SQL tests of a folder.")
@click.argument("places", metavar="[DIR]...", nargs=-1, type=click.Path(path_type=Path))
@click.option("-k", "wanted", metavar="TEXT", default="", help="Run only the tests whose name contains this text.")
@click.option(
    "--junit", metavar="FILE", type=click.Path(path_type=Path), help="Also write the results as JUnit XML, for a build."
)
def command(places: tuple[Path, ...], wanted: str, junit: Path | None) -> int:
    """Run the SQL tests of a folder: all files whose names end with .test.sql.

    A test feeds the sources and moves the clock itself, so it never waits and its results are always the same.
    Statements before the first test run in each of them. The exit code is 1 when a test fails.

    \b
    A complete test:
      -- flow: ../flow.sql
      -- test: bids of one auction are counted together
      INSERT INTO bids VALUES (1, 150, '2026-01-01 00:00:01'), (1, 200, '2026-01-01 00:00:02');
      SELECT auction, n FROM hot;
      -- | auction | n |
      -- | 1       | 2 |
    \b
    Examples:
      millstream test                       all tests below this folder
      millstream test tests -k late
      millstream test tests --junit results.xml
    """  # noqa: D301 - click reads the control character \b
    from millstream.errors import UnknownName
    from millstream.testing.sql_test import play_all
    from millstream.testing.sql_test_file import find_files, read_tests

    files = [read_tests(p) for p in find_files(places or (Path(),))]
    since = time.perf_counter()
    outcomes: list[CaseOutcome] = []
    current_file: Path | None = None
    with tempfile.TemporaryDirectory(prefix="millstream-test-", ignore_cleanup_errors=True) as folder:
        for outcome in play_all(files, Path(folder), wanted=wanted, script=_scripts()):
            if outcome.case.file != current_file:
                current_file = outcome.case.file
                click.echo(str(current_file))
            _tell(outcome)
            outcomes.append(outcome)
    if not outcomes:
        raise UnknownName(f"no test name contains {wanted!r}")
    if junit is not None:
        write_junit(outcomes, junit)
    failed = sum(not o.passed for o in outcomes)
    summary = f"{len(outcomes) - failed} passed" + (f", {failed} failed" if failed else "")
    click.secho(f"{summary} ({format_seconds(time.perf_counter() - since)})", fg="red" if failed else "green")
    return ExitCode.FAILED if failed else ExitCode.OK


def _scripts() -> MakeScript:
    """The factory of the scripts of the tests; all of them share one Spark, whose start is announced."""
    from millstream.testing import script

    scripts: list[Path] = []

    def make(flow: Flow, path: Path, *, start: str) -> Script:
        if not scripts:
            click.echo("starting Spark ...", err=True)
        scripts.append(path)
        return script.Script(flow, path, start=start)

    return make


def _tell(outcome: CaseOutcome) -> None:
    mark = click.style("ok  ", fg="green") if outcome.passed else click.style("FAIL", fg="red", bold=True)
    click.echo(f"  {mark}  {outcome.case.name}  " + click.style(f"({format_seconds(outcome.seconds)})", dim=True))
    for line in outcome.failure.splitlines():
        colour = {"-": "red", "+": "green"}.get(line[:1])
        click.echo("        " + click.style(line, fg=colour))


def write_junit(outcomes: Sequence[CaseOutcome], path: Path) -> None:
    """Write the results in the JUnit format of build servers."""
    root = ElementTree.Element("testsuites")
    for file in dict.fromkeys(o.case.file for o in outcomes):
        mine = [o for o in outcomes if o.case.file == file]
        suite = ElementTree.SubElement(
            root,
            "testsuite",
            name=str(file),
            tests=str(len(mine)),
            failures=str(sum(not o.passed for o in mine)),
            errors="0",
            time=f"{sum(o.seconds for o in mine):.3f}",
        )
        for outcome in mine:
            case = outcome.case
            element = ElementTree.SubElement(
                suite,
                "testcase",
                classname=str(file),
                name=case.name,
                file=str(file),
                line=str(case.line),
                time=f"{outcome.seconds:.3f}",
            )
            if not outcome.passed:
                first = outcome.failure.partition("\n")[0]
                ElementTree.SubElement(element, "failure", message=first).text = outcome.failure
    path.parent.mkdir(parents=True, exist_ok=True)
    ElementTree.ElementTree(root).write(path, encoding="utf-8", xml_declaration=True)
