"""Settings: each has one name and one lookup order.

``query_timeout`` is the Python argument and the key in ``millstream.toml``; ``MILLSTREAM_QUERY_TIMEOUT`` is its
environment variable and ``--query-timeout`` its option, where a command has one. The first value in this order is used:
argument or option, environment variable, ``millstream.toml`` in the current directory, ``millstream.toml`` in the home,
default. docs/guide/configuration.md lists all settings.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Generic, TypeVar

from millstream.errors import DefinitionError, UnknownName
from millstream.units import checked_seconds, format_bytes, java_memory, machine_memory, parsed_bytes

T = TypeVar("T")

FILE = "millstream.toml"
PREFIX = "MILLSTREAM_"
DEFAULT = "default"
_YES, _NO = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


class SettingDeprecated(FutureWarning):
    """An environment variable with a deprecated name is set."""


@dataclass(frozen=True)
class Setting(Generic[T]):
    """A setting: its name, how its value is parsed, and its default."""

    name: str
    read: Callable[[object], T]
    """Parses the text of an environment variable or a value from a file. Raises DefinitionError."""
    default: Callable[[], T]
    meaning: str
    usual: str
    """The default, as the documentation shows it."""
    show: Callable[[Any], str] = str
    old_variables: tuple[str, ...] = ()
    """Earlier names of its environment variable."""
    in_home: bool = True
    """Whether it may be set in the file of a home."""
    secret: bool = False
    """Whether its value must never be shown."""

    @property
    def variable(self) -> str:
        """The name of the environment variable."""
        return PREFIX + self.name.upper()


@dataclass(frozen=True)
class Found(Generic[T]):
    """The value of a setting, and where it comes from."""

    setting: Setting[T]
    value: T
    origin: str

    def shown(self) -> str:
        """Format the value for display: a secret only as being set, an address without its password."""
        if self.setting.secret:
            return "(set)" if self.origin != DEFAULT else "(not set)"
        return re.sub(r"://[^/@\s]+@", "://***@", self.setting.show(self.value))


# ---------------------------------------------------------------- the settings


def _flag(value: object) -> bool:
    text = str(value).strip().lower()
    if text not in (*_YES, *_NO):
        raise DefinitionError(f"{value!r} is neither true nor false", hint="write true or false")
    return text in _YES


def _seconds(value: object) -> float:
    try:
        return checked_seconds(float(str(value)))
    except ValueError:
        raise DefinitionError(
            f"{value!r} is not a number", hint="it is a number of seconds, e.g. 60; 0: no limit"
        ) from None


def _host(value: object) -> str:
    if not re.fullmatch(r"[\w.:\[\]-]+", str(value)):
        raise DefinitionError(f"{value!r} is not a host", hint="write a name or an address, e.g. 10.0.0.5")
    return str(value)


def _state(value: object) -> str:
    if not re.match(r"(file://)?/|s3://[^/@]", str(value)):
        raise DefinitionError(f"{value!r} is not a place for state", hint="write file:///folder or s3://bucket/prefix")
    return str(value)


def _archive(value: object) -> str:
    if not str(value).endswith((".tar.gz", ".tgz")):
        raise DefinitionError(
            f"{value!r} is not an archive", hint="make one: millstream cluster pack environment.tar.gz"
        )
    return str(value)


def _bytes(value: object) -> int:
    return parsed_bytes(str(value))


def _shown_bytes(size: int) -> str:
    return format_bytes(size) if size else "no limit"


HOME: Setting[str] = Setting(
    "home",
    str,
    lambda: "millstream-home",
    "the directory that holds state and views",
    "./millstream-home",
    in_home=False,
)
MEMORY: Setting[str] = Setting(
    "memory", lambda v: java_memory(str(v)), lambda: "2g", "memory of Spark's Java process, e.g. 512m or 4g", "2g"
)
SPARK_MASTER: Setting[str] = Setting(
    "spark_master",
    str,
    lambda: "local[*,4]",
    "the Spark master that runs the jobs",
    "local[*,4]",
    old_variables=("MILLSTREAM_MASTER",),
)
EXECUTOR_MEMORY: Setting[str] = Setting(
    "executor_memory",
    lambda v: java_memory(str(v)),
    lambda: "1g",
    "memory of Spark's Java process on each executor of a cluster",
    "1g",
)
DRIVER_HOST: Setting[str] = Setting(
    "driver_host",
    _host,
    str,
    "the address at which the executors of a cluster reach this process",
    "that of the interface that reaches the master",
    show=lambda v: v or "(found)",
)
EXECUTOR_ENVIRONMENT: Setting[str] = Setting(
    "executor_environment",
    _archive,
    str,
    "the archive with the Python environment of executors, from `millstream cluster pack`",
    "the environment of this process, under the same path",
    show=lambda v: v or "(the same path)",
)
STATE: Setting[str] = Setting(
    "state",
    _state,
    str,
    "where state is: file:///shared/folder or s3://bucket/prefix",
    "in the home",
    show=lambda v: v or "(in the home)",
)
STATE_CACHE: Setting[int] = Setting(
    "state_cache",
    _bytes,
    lambda: 4 << 30,
    "local disk that each process may use for copies of state on object storage",
    "4GB",
    show=format_bytes,
)
QUERY_TIMEOUT: Setting[float] = Setting(
    "query_timeout", _seconds, lambda: 60.0, "seconds that a query may take; 0: no limit", "60", show=lambda v: f"{v:g}"
)
QUERY_MEMORY: Setting[int] = Setting(
    "query_memory", _bytes, lambda: 1 << 30, "memory that a query may use; 0: no limit", "1GB", show=_shown_bytes
)
QUERY_MEMORY_TOTAL: Setting[int] = Setting(
    "query_memory_total",
    _bytes,
    lambda: machine_memory() // 4,
    "memory that all queries together may use; 0: no limit",
    "a quarter of the machine's memory",
    show=_shown_bytes,
)
FLOW_MEMORY: Setting[int] = Setting(
    "flow_memory",
    _bytes,
    lambda: int(machine_memory() * 0.6),
    "memory that the process may hold while an epoch is computed; 0: no limit",
    "60 % of the machine's memory",
    show=_shown_bytes,
)
DEBUG: Setting[bool] = Setting(
    "debug",
    _flag,
    lambda: False,
    "whether the command line shows tracebacks instead of messages",
    "false",
    show=lambda v: str(v).lower(),
    in_home=False,
)

SETTINGS: tuple[Setting[Any], ...] = (
    *(HOME, MEMORY, SPARK_MASTER, EXECUTOR_MEMORY, EXECUTOR_ENVIRONMENT, DRIVER_HOST, STATE, STATE_CACHE),
    *(QUERY_TIMEOUT, QUERY_MEMORY, QUERY_MEMORY_TOTAL, FLOW_MEMORY, DEBUG),
)
_NAMES = tuple(s.name for s in SETTINGS)


# ---------------------------------------------------------------- where values are from


def find(setting: Setting[T], argument: object | None = None, *, home: Path | None = None) -> Found[T]:
    """Return the effective value: the argument, or else the value from the environment, a file, or the default."""
    if argument is not None:
        return Found(setting, setting.read(argument), "argument")
    for variable in (setting.variable, *setting.old_variables):
        text = os.environ.get(variable)
        if text:
            if variable in setting.old_variables:
                warnings.warn(_renamed(variable, setting), SettingDeprecated, stacklevel=3)
            return Found(setting, _checked(setting, text, variable), f"environment, {variable}")
    for path in files(home):
        values = file_values(path, in_home=path != Path(FILE))
        if setting.name in values:
            return Found(setting, _checked(setting, values[setting.name], f"{setting.name} in {path}"), str(path))
    return Found(setting, setting.default(), DEFAULT)


def files(home: Path | None) -> tuple[Path, ...]:
    """The configuration files, highest precedence first. Missing files are read as empty."""
    return (Path(FILE), *([] if home is None else [home / FILE]))


def file_values(path: Path, *, in_home: bool) -> Mapping[str, object]:
    """Read the values of a file; empty if it does not exist. Raises DefinitionError for unknown settings."""
    try:
        status = path.stat()
        return _parsed(path.absolute(), path, in_home, status.st_mtime_ns, status.st_size)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise DefinitionError(f"{path} cannot be read", detail=error.strerror, hint="check its permissions") from None


@lru_cache(maxsize=16)
def _parsed(absolute: Path, path: Path, in_home: bool, _changed: int, _size: int) -> Mapping[str, object]:
    try:
        values = tomllib.loads(absolute.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise DefinitionError(f"{path} is not TOML", detail=str(error), hint='write lines like memory = "4g"') from None
    except UnicodeDecodeError:
        raise DefinitionError(f"{path} is not UTF-8 text") from None
    allowed = {s.name for s in SETTINGS if s.in_home or not in_home}
    for name in values:
        if name in allowed:
            continue
        if name in _NAMES:
            raise DefinitionError(
                f"`{name}` in {path} has no effect there", hint=f"put it into ./{FILE}, or set {PREFIX}{name.upper()}"
            )
        raise UnknownName(f"`{name}` in {path} is not a setting", hint=nearest(name))
    return values


def _checked(setting: Setting[T], value: object, where: str) -> T:
    """Parse a value. The error names the location of the value, but never the value of a secret."""
    try:
        return setting.read(value)
    except DefinitionError as error:
        problem = "cannot be read" if setting.secret else f"is {value!r}"
        raise DefinitionError(
            f"{where} {problem}", detail=None if setting.secret else error.message, hint=error.hint
        ) from None


def nearest(name: str) -> str:
    """Return a hint: the setting with the most similar name, or all of them."""
    close = difflib.get_close_matches(name.lower(), _NAMES, n=1)
    return f"did you mean `{close[0]}`?" if close else "settings are: " + ", ".join(_NAMES)


def old_variables() -> list[str]:
    """Return a warning for each environment variable that is set under a deprecated name."""
    return [_renamed(v, s) for s in SETTINGS for v in s.old_variables if os.environ.get(v)]


def unknown_variables() -> list[str]:
    """Return a warning for each environment variable that looks like a setting but is unknown."""
    known = [s.variable for s in SETTINGS]
    old = [v for s in SETTINGS for v in s.old_variables]
    notes = []
    for variable in sorted(v for v in os.environ if v.startswith(PREFIX) and v not in (*known, *old)):
        close = difflib.get_close_matches(variable, known, n=1)
        notes.append(f"{variable} is not a setting" + (f"; did you mean {close[0]}?" if close else ""))
    return notes


def _renamed(variable: str, setting: Setting[Any]) -> str:
    return f"{variable} is deprecated; use {setting.variable}"
