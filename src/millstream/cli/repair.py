"""`millstream repair`: what is wrong with a home, what can be done about it, and doing it."""

from __future__ import annotations

from pathlib import Path

import click

from millstream.cli.options import home_option


@click.command(short_help="Say what is wrong with a home, and mend it.")
@click.option("--yes", is_flag=True, help="Do it; without this, only say what would be done.")
@click.option("--rebuild", metavar="FLOW", multiple=True, help="Compute this flow again from its sources.")
@home_option()
def command(home: Path, yes: bool, rebuild: tuple[str, ...]) -> None:
    """Look at a home in which no flow runs, and say what is wrong, what would be done, and what would be lost.

    Nothing is changed without --yes. What is replaced is kept under repair/ in the home. Everything in the home
    is checked, also the contents of state files.

    \b
    Examples:
      millstream repair
      millstream repair --yes
      millstream repair --rebuild auctions --yes      empty its views and compute them again
    """  # noqa: D301 - click reads the control character \b
    from millstream.cli.checkpoint import check_home
    from millstream.errors import RecoveryFailed
    from millstream.runtime import repair
    from millstream.runtime.lease import HomeLock

    check_home(home)
    path = home.absolute()
    lock = HomeLock(path / "lock")
    try:
        findings = repair.look(path, rebuild=rebuild)
        for finding in findings:
            click.echo(f"{finding.flow}: {finding.found}" if finding.flow else finding.found)
            click.echo(f"  {finding.would}")
            click.echo(f"  {finding.lost}")
        if not findings:
            click.echo("all is well: there is nothing to repair")
            return
        if any(f.do is None for f in findings):
            raise RecoveryFailed(
                "this cannot be repaired here", hint="restore the home from a copy, or begin a new one"
            )
        if not yes:
            click.echo("nothing was changed; to do it, add --yes")
            return
        kept = repair.mend(path, findings)
        click.echo(f"done; what was replaced is in {kept}")
        for finding in repair.look(path):
            click.echo(f"still: {finding.found}\n  {finding.would}")
    finally:
        lock.release()
