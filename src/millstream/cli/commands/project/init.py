"""`millstream init`: creates a starter project with a flow, its tests, and a page that explains what to type."""

from __future__ import annotations

import shlex
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

import click

from millstream.errors import DefinitionError

_DOTTED = {"gitignore": ".gitignore"}
"""Files that have other names inside the package, where their own names would have a meaning."""


@click.command(short_help="Create a folder with a first flow and its tests.")
@click.argument("name", type=click.Path(path_type=Path))
def command(name: Path) -> None:
    """Create a folder with a flow in SQL, its tests, and a README with the commands to type.

    The folder may exist, but must be empty.

    \b
    Examples:
      millstream init auctions
      cd auctions
      millstream test
      millstream run flow.sql
    """  # noqa: D301 - click reads the control character \b
    if name.exists() and (not name.is_dir() or any(name.iterdir())):
        raise DefinitionError(
            f"{name} is not empty" if name.is_dir() else f"{name} is a file",
            hint="name a folder that does not exist yet; nothing was changed",
        )
    try:
        files = list(_copy(resources.files("millstream.cli") / "templates" / "project", name, name.absolute().name))
    except OSError as error:
        raise DefinitionError(f"{name} cannot be written", detail=error.strerror) from None
    for path in files:
        click.echo(f"  made {path}")
    click.echo("\nnext:")
    for line in (
        f"cd {shlex.quote(str(name))}",
        "millstream test              the tests of the views",
        "millstream run flow.sql      the views, kept up to date; Ctrl-C stops it",
        "millstream sql               query them, in a second terminal",
    ):
        click.echo(f"  {line}")


def _copy(template: Traversable, into: Path, name: str) -> list[Path]:
    into.mkdir(parents=True, exist_ok=True)
    files: list[Path] = []
    for part in sorted(template.iterdir(), key=lambda p: p.name):
        target = into / _DOTTED.get(part.name, part.name)
        if part.is_dir():
            files += _copy(part, target, name)
        else:
            target.write_text(part.read_text(encoding="utf-8").replace("{{name}}", name), encoding="utf-8")
            files.append(target)
    return files
