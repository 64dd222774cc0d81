"""What the commands have in common: the home, the output format, durations, and how errors are shown."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from millstream.errors import DefinitionError
from millstream.model.types.duration import Duration

DEFAULT_HOME = "millstream-home"
F = TypeVar("F", bound=Callable[..., Any])


@dataclass
class Settings:
    """How this call of the command line behaves, and the home it speaks of; the context's `obj`."""

    debug: bool = False
    home: Path | None = None


def _remember_home(ctx: click.Context, _parameter: click.Parameter, value: str | None) -> Path | None:
    path = None if value is None else Path(value).expanduser()
    settings = ctx.find_object(Settings)
    if settings is not None:
        settings.home = path
    return path


def home_option(
    *, default: str | None = DEFAULT_HOME, text: str = "The directory that holds state and views."
) -> Callable[[F], F]:
    """``--home DIR``, or MILLSTREAM_HOME, or `default`."""
    return click.option(
        "--home",
        metavar="DIR",
        envvar="MILLSTREAM_HOME" if default is not None else None,
        default=default,
        show_default=f"./{default}, or $MILLSTREAM_HOME" if default is not None else False,
        callback=_remember_home,
        help=text,
    )


def format_option(*formats: str) -> Callable[[F], F]:
    """``--format``; the first one is the default."""
    return click.option(
        "--format",
        "form",
        type=click.Choice(formats),
        default=formats[0],
        show_default=True,
        help="How to print.",
    )


class DurationType(click.ParamType[Duration]):
    """A duration as an argument: 20s, 2min, "1 hour 30 minutes"; a bare number is seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Duration:
        """Read it, or say how to write one."""
        if isinstance(value, Duration):
            return value
        text = f"{value} s" if str(value).replace(".", "", 1).isdigit() else str(value)
        try:
            return Duration.positive(text, what="duration")
        except DefinitionError:
            self.fail(f"{value!r} is not a duration above zero; write it like 20s, 500ms or 2min", param, ctx)


def check_memory(_ctx: click.Context, _parameter: click.Parameter, value: str) -> str:
    """An amount of memory as Java takes it: a whole number, then m or g."""
    if not re.fullmatch(r"[1-9][0-9]{0,5}[mMgG]", value):
        msg = f"{value!r} is not an amount of memory; write it like 512m or 4g"
        raise click.BadParameter(msg)
    return value
