"""`millstream repair`: reports what is wrong with a home and what can be done about it, and repairs it."""

from __future__ import annotations

from pathlib import Path

import click

from millstream.cli.exit_codes import ExitCode
from millstream.cli.options import home_option, yes_option

ROUNDS = 9
"""The maximum number of rounds: a repair checks again after each one, because the rest is visible only then."""


@click.command(short_help="Report what is damaged in a home, and repair it.")
@yes_option()
@click.option("--rebuild", metavar="FLOW", multiple=True, help="Recompute this flow from its sources; may be repeated.")
@home_option()
def command(home: Path, yes: bool, rebuild: tuple[str, ...]) -> None:
    """Check a home in which no flow runs: what is damaged, what a repair would do, and what would be lost.

    Nothing is changed without --yes; the exit code is then 4 when something is damaged. What is replaced is kept
    under repair/ in the home. Everything in the home is checked, including the contents of state files.

    \b
    Examples:
      millstream repair
      millstream repair --yes
      millstream repair --rebuild auctions --yes      empty its views and recompute them
    """  # noqa: D301 - click reads the control character \b
    from millstream.cli.commands.home.checkpoint import check_home
    from millstream.errors import RecoveryFailed
    from millstream.runtime.home_dir import was_home
    from millstream.runtime.recovery import repair

    path = home.absolute()
    if not was_home(path):
        check_home(home)
    lock = repair.locked(path)
    try:
        findings = repair.look(path, rebuild=rebuild)
        if not findings:
            click.echo("there is nothing to repair")
            return
        for _ in range(ROUNDS):
            for finding in findings:
                click.echo(f"{finding.flow}: {finding.problem}" if finding.flow else finding.problem)
                click.echo(f"  {finding.would}")
                click.echo(f"  {finding.lost}")
            if any(f.do is None for f in findings):
                raise RecoveryFailed(
                    "this cannot be repaired here", hint="restore the home from a copy, or start a new one"
                )
            if not yes:
                click.echo("nothing was changed; to do it, add --yes")
                if rebuild or all(f.harmless for f in findings):
                    return
                raise click.exceptions.Exit(ExitCode.HOME)
            kept = repair.mend(path, findings)
            click.echo(f"done; what was replaced is in {kept}")
            findings = repair.look(path)
            if not findings:
                return
        raise RecoveryFailed(findings[0].problem, hint="restore the home from a copy, or start a new one")
    finally:
        lock.release()
