"""The command line: one file per command in `cli/commands/`. Importing it is cheap; a command imports what it needs when it runs."""

from __future__ import annotations


def main() -> None:
    """The console script `millstream`."""
    from millstream.cli.app import cli

    cli(prog_name="millstream")
