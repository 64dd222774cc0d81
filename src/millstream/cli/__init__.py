"""The command line. `cli/commands/` has one file per command, which imports what it needs when it runs."""

from __future__ import annotations


def main() -> None:
    """The console script `millstream`."""
    from millstream.cli.app import cli

    cli(prog_name="millstream")
