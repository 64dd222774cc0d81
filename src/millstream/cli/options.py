"""Common options of the commands: the home, the output format, memory, durations, and how errors are shown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from millstream.errors import DefinitionError
from millstream.model.types.duration import Duration
from millstream.settings import HOME, MEMORY, SPARK_MASTER, STATE, find
from millstream.units import java_memory

DEFAULT_HOME = HOME.default()
F = TypeVar("F", bound=Callable[..., Any])


@dataclass
class Settings:
    """How this call of the command line behaves, and the home it uses; the context's `obj`."""

    debug: bool = False
    home: Path | None = None


def _remember_home(ctx: click.Context, _parameter: click.Parameter, value: str | None) -> Path | None:
    path = None if value is None else Path(value).expanduser()
    settings = ctx.find_object(Settings)
    if settings is not None:
        settings.home = path
    return path


def home_option(
    *, temporary: bool = False, text: str = "The directory that holds state and views."
) -> Callable[[F], F]:
    """``--home DIR``, or what the settings say; of a command whose home is `temporary`, only the option counts."""
    return click.option(
        "--home",
        metavar="DIR",
        default=None if temporary else lambda: find(HOME).value,
        callback=_remember_home,
        help=text if temporary else f"{text}  [default: {HOME.usual}]",
    )


def memory_option() -> Callable[[F], F]:
    """``--memory 4g``, or what the settings say."""
    return click.option(
        "--memory",
        metavar="SIZE",
        callback=check_memory,
        help=f"Memory of Spark's Java process, e.g. 512m or 4g.  [default: {MEMORY.usual}]",
    )


def master_option() -> Callable[[F], F]:
    """``--master URL``, or what the settings say."""
    return click.option(
        "--master",
        "--spark-master",
        "spark_master",
        metavar="URL",
        help=f"The Spark master that runs the jobs, e.g. spark://127.0.0.1:7077.  [default: {SPARK_MASTER.usual}]",
    )


def state_option() -> Callable[[F], F]:
    """``--state URI``, or what the settings say."""
    return click.option(
        "--state",
        metavar="URI",
        callback=_check_state,
        help=f"Where state is: file:///shared/folder or s3://bucket/prefix.  [default: {STATE.usual}]",
    )


def _check_state(_ctx: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    try:
        return None if value is None else STATE.read(value)
    except DefinitionError as error:
        msg = f"{error.message}; {error.hint}"
        raise click.BadParameter(msg) from None


def yes_option(text: str = "Do it; without this, only report what would be done.") -> Callable[[F], F]:
    """``--yes``, of commands that report what they would do first."""
    return click.option("--yes", is_flag=True, help=text)


def format_option(*formats: str) -> Callable[[F], F]:
    """``--format``; the first one is the default."""
    return click.option(
        "--format",
        "form",
        type=click.Choice(formats),
        default=formats[0],
        show_default=True,
        help="The output format.",
    )


class DurationType(click.ParamType[Duration]):
    """A duration as an argument: 20s, 2min, "1 hour 30 minutes"; a bare number is seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Duration:
        """Parse a duration, or fail with an explanation of the syntax."""
        if isinstance(value, Duration):
            return value
        text = f"{value} s" if str(value).replace(".", "", 1).isdigit() else str(value)
        try:
            return Duration.positive(text, what="duration")
        except DefinitionError:
            self.fail(f"{value!r} is not a duration above zero; write it like 20s, 500ms or 2min", param, ctx)


def check_memory(_ctx: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    """Check an amount of memory that is given as an option."""
    try:
        return None if value is None else java_memory(value)
    except DefinitionError as error:
        msg = f"{error.message}; {error.hint}"
        raise click.BadParameter(msg) from None
