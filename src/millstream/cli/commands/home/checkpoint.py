"""`millstream checkpoint`: saves the whole home, and restores it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from millstream.cli.options import format_option, home_option, yes_option
from millstream.cli.output import FORMATS, format_instant, print_listing

if TYPE_CHECKING:
    from millstream.runtime.recovery.checkpoint import Manifest

COLUMNS = {name: name.replace("_", " ") for name in ("checkpoint", "made_at", "flows", "bytes", "problem")}


@click.group(short_help="Save the whole home, and restore it.")
def command() -> None:
    """Save the whole home as it is between two epochs, and restore it.

    A checkpoint is a folder with views, their definitions, state, epoch records, ledgers and stored tables, and a
    checksum for every file. Topics of the log are not included.

    \b
    Examples:
      millstream checkpoint save before_friday
      millstream checkpoint save nightly --to /backup        a folder that can be moved elsewhere
      millstream checkpoint list
      millstream checkpoint restore before_friday
      millstream checkpoint restore /backup/nightly --home ./elsewhere
    """  # noqa: D301 - click reads the control character \b


@command.command("save", short_help="Save a checkpoint, even while flows run.")
@click.argument("name")
@click.option("--to", metavar="DIR", help="Save it in this directory.  [default: checkpoints/ of the home]")
@home_option()
def save(name: str, to: str | None, home: Path) -> None:
    """Save a checkpoint. While flows run, the process that owns the home saves it.

    \b
    Examples:
      millstream checkpoint save before_friday
      millstream checkpoint save nightly --to /backup
    """  # noqa: D301 - click reads the control character \b
    from millstream.errors import HomeInUse
    from millstream.home import Home
    from millstream.serve.client import LocalClient

    check_home(home)
    place = None if to is None else str(Path(to).expanduser().absolute())
    try:
        with Home(home) as opened:
            folder = str(opened.checkpoint(name, place))
    except HomeInUse as error:
        try:
            client = LocalClient(home.absolute())
        except OSError:
            raise error from None
        folder = client.checkpoint(name, place)
        client.close()
    click.echo(f"kept in {folder}")


@command.command("restore", short_help="Restore the home from a checkpoint.")
@click.argument("name")
@yes_option()
@home_option()
def restore(name: str, yes: bool, home: Path) -> None:
    """Restore the home from a checkpoint: one of its own by name, or a folder. No flow may run in it.

    The present contents are kept under repair/ in the home. Flows resume from the checkpoint when they are started.

    \b
    Examples:
      millstream checkpoint restore before_friday             report what would change
      millstream checkpoint restore before_friday --yes
      millstream checkpoint restore /backup/nightly --home ./elsewhere --yes
    """  # noqa: D301 - click reads the control character \b
    from millstream.home import Home
    from millstream.runtime.recovery import checkpoint

    with Home(home) as opened:  # no other process has it; the store is not opened
        folder = checkpoint.find(opened.path, name)
        manifest = checkpoint.verify(folder)
        for line in _changes(opened.path, folder, manifest):
            click.echo(line)
        if not yes:
            click.echo("nothing was changed; to do it, add --yes")
            return
        kept = checkpoint.restore(opened.path, name)
    click.echo(f"done; what was there is in {kept}")


@command.command("list", short_help="List the checkpoints of the home.")
@home_option()
@format_option(*FORMATS)
def list_(home: Path, form: str) -> None:
    """List the checkpoints of the home, newest first. `flows` has the last epoch of each flow.

    \b
    Examples:
      millstream checkpoint list
      millstream checkpoint list --format json
    """  # noqa: D301 - click reads the control character \b
    from millstream.runtime.recovery import checkpoint

    check_home(home)
    nothing = "no checkpoints yet: create one with `millstream checkpoint save NAME`"
    print_listing(checkpoint.listed(home.absolute()), COLUMNS, form, format_value=_format_value, none=nothing)


@command.command("drop", short_help="Remove a checkpoint of the home.")
@click.argument("name")
@home_option()
def drop(name: str, home: Path) -> None:
    """Remove a checkpoint of the home.

    \b
    Examples:
      millstream checkpoint drop before_friday
    """  # noqa: D301 - click reads the control character \b
    from millstream.clock import SystemClock
    from millstream.log.log import Log
    from millstream.runtime.recovery import checkpoint

    check_home(home)
    checkpoint.drop(home.absolute(), name, Log(home.absolute() / "log", SystemClock()))
    click.echo(f"removed the checkpoint {name}")


def _changes(home: Path, folder: Path, manifest: Manifest) -> Iterator[str]:
    """The effects of a restore, one per line."""
    from millstream.runtime.recovery import catalog_file
    from millstream.runtime.recovery.source_checks import wrong_offsets

    for flow, state in manifest.flows.items():
        yield f"{flow} goes back to epoch {state['epoch']}"
        for problem in wrong_offsets(home, folder / "flows" / flow, state["offsets"]):
            yield f"  it cannot run here afterwards: {problem}"
    if not (folder / catalog_file.FILE).exists():
        yield "definitions stay as they are: the checkpoint was made by an earlier version and has none"
        return
    newer, older = catalog_file.differences(catalog_file.read(folder / catalog_file.FILE), catalog_file.present(home))
    if newer:
        yield f"created or replaced since then, and undone: {', '.join(newer)}"
    if older:
        yield f"defined again: {', '.join(older)}"


def check_home(home: Path) -> None:
    """Refuse a directory that is not a home, or one of a newer version."""
    from millstream.errors import HomeDamaged
    from millstream.runtime.home_dir import check_format

    if not (home / "millstream.json").exists():
        raise HomeDamaged(
            f"there is no Millstream home at {home.absolute()}",
            hint="name the directory of `millstream run --home DIR`",
        )
    check_format(home / "millstream.json")


def _format_value(column: str, value: Any) -> Any:
    if column == "made_at":
        return format_instant(value)
    if column == "flows" and value is not None:
        return ", ".join(f"{flow} {epoch}" for flow, epoch in value.items())
    return "-" if value is None else value
