"""The command line: one file per command. Loading it is cheap; a command loads what it needs when it runs."""

from __future__ import annotations


def main() -> None:
    """The console script `millstream`."""
    from millstream.cli.app import cli

    cli(prog_name="millstream")
