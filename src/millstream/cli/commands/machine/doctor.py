"""`millstream doctor`: checks whether this machine is ready, and explains how to fix it."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from millstream.cli.commands.machine.check_result import BROKEN, LOW, OK, CheckResult
from millstream.cli.commands.machine.doctor_spark import check_spark, check_storage
from millstream.cli.exit_codes import ExitCode
from millstream.cli.options import home_option, master_option, state_option
from millstream.cli.output import plural
from millstream.errors import MillstreamError
from millstream.result import text_table
from millstream.settings import FILE as SETTINGS_FILE
from millstream.state.storage import Storage
from millstream.store.files import has_store

_COLOURS = {OK: "green", LOW: "yellow", BROKEN: "red"}

PYTHON = (3, 11)
GIB = 1 << 30
MEMORY = {BROKEN: 1 * GIB, LOW: 3 * GIB}
DISK = {BROKEN: GIB // 2, LOW: 5 * GIB}
"""Thresholds: less than this is broken, or low."""

PACKAGES = ("pyspark", "pyarrow", "polars", "duckdb", "sqlglot")


@click.command(short_help="Check this machine and the home, and suggest fixes.")
@home_option(text="The home to check.")
@master_option()
@state_option()
@click.pass_context
def command(ctx: click.Context, home: Path, spark_master: str | None, state: str | None) -> None:
    """Check this machine: Java, Python, memory, disk, packages, the home, and Spark itself.

    Every line reports ok, low or problem, and how to fix it. Spark is started and runs a small job, which takes about
    10 seconds. With --master or --state, every executor is checked too: versions of Python, Java and packages, whether
    it can read and write the state, and its clock. The exit code is 1 when there is a problem.

    \b
    Examples:
      millstream doctor
      millstream doctor --home ./millstream-home
      millstream doctor --master spark://host:7077 --state s3://bucket/prefix
    """  # noqa: D301 - click reads the control character \b
    broken = 0
    for finding in findings(home, spark_master, state):
        mark = click.style(finding.state.ljust(7), fg=_COLOURS[finding.state], bold=finding.state != OK)
        click.echo(f"{mark}  {finding.what.ljust(9)}  {finding.text}")
        if finding.repair:
            click.echo(f"{' ' * 20}{click.style('repair:', fg='cyan')} {finding.repair}")
        if finding.table:
            click.echo(text_table(list(finding.table[0]), [list(r) for r in finding.table[1:]]))
        broken += finding.state == BROKEN
    if broken:
        click.echo(f"\n{plural(broken, 'problem')} to repair")
        ctx.exit(ExitCode.FAILED)
    click.echo("\nready: try `millstream demo`")


def findings(home: Path, master: str | None = None, state: str | None = None) -> Iterator[CheckResult]:
    """Yield each check when it is done, the slow one last."""
    java = check_java()
    yield java
    yield check_python()
    yield from check_packages()
    yield check_memory()
    yield check_disk(home)
    yield check_home(home)
    storage = None
    try:
        storage = _storage(home, state)
    except MillstreamError as error:
        yield CheckResult("state", BROKEN, error.message, error.hint or "")
    if storage is not None:
        yield (found := check_storage(storage))
        storage = storage if found.state == OK else None
    if java.state == OK:
        yield from check_spark(home, master, storage, executors=master is not None or state is not None)
    else:
        yield CheckResult("spark", BROKEN, "not tried, because it needs Java")


def _storage(home: Path, state: str | None) -> Storage | None:
    """The storage outside the home, that is named or that the home has recorded."""
    from millstream.runtime.state_location import StateUri, recorded
    from millstream.settings import STATE, find

    named = find(STATE, state, home=home).value
    uri = StateUri.parse(named) if named else recorded(home).uri
    return None if uri is None else uri.storage(home)


def check_java() -> CheckResult:
    """Check that Java exists and is new enough."""
    from millstream.engine.spark.java import java_command, java_version, require_java

    try:
        require_java()
    except MillstreamError as error:
        return CheckResult("java", BROKEN, "; ".join(p for p in (error.message, error.detail) if p), error.hint or "")
    return CheckResult("java", OK, f"version {java_version()}, {java_command()}")


def check_python() -> CheckResult:
    """Check that this Python is new enough."""
    version = f"{platform.python_version()}, {sys.executable}"
    if sys.version_info < PYTHON:
        minimum = ".".join(map(str, PYTHON))
        return CheckResult("python", BROKEN, version, f"Millstream needs Python {minimum} or later")
    return CheckResult("python", OK, version)


def check_packages() -> Iterator[CheckResult]:
    """Check that the libraries are installed in supported versions."""
    from importlib.metadata import PackageNotFoundError, requires, version

    installed, missing = [], []
    for name in PACKAGES:
        try:
            installed.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            missing.append(name)
    try:
        installed.insert(0, f"millstream {version('millstream')}")
        requirements = [r for r in requires("millstream") or [] if "extra ==" not in r]
    except PackageNotFoundError:
        requirements = list(PACKAGES)
    if missing:
        repair = "pip install " + " ".join(repr(r) for r in requirements if r.startswith(tuple(missing)))
        yield CheckResult("packages", BROKEN, f"missing: {', '.join(missing)}", repair)
    yield CheckResult("packages", OK, ", ".join(installed))


def check_memory() -> CheckResult:
    """Check that there is enough memory for Spark's JVM and the kernels."""
    free = available_memory()
    if free is None:
        return CheckResult("memory", OK, "the free memory is unknown on this system")
    return _enough("memory", free, "available", MEMORY, "close other programs, or use a machine with more")


def available_memory() -> int | None:
    """The memory in bytes that is available without swapping, on Linux."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError):
        return None


def check_disk(home: Path) -> CheckResult:
    """Check that there is enough space for the home."""
    import shutil

    place = home.absolute()
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    return _enough("disk", free, f"free at {place}", DISK, "free some space, or choose another --home")


def _enough(what: str, free: int, where: str, bounds: dict[str, int], repair: str) -> CheckResult:
    free_text = f"{free / GIB:,.1f} GiB {where}"
    for state in (BROKEN, LOW):
        if free < bounds[state]:
            return CheckResult(what, state, free_text, repair)
    return CheckResult(what, OK, free_text)


def check_home(home: Path) -> CheckResult:
    """Check that this version can read the home, if it exists; reports its owner."""
    known = home / "millstream.json"
    if not known.exists():
        return _no_home(home)
    try:
        number = _format(known)
    except MillstreamError as error:
        return CheckResult("home", BROKEN, error.message, error.hint or "")
    owner = lock_owner(home / "lock")
    used = f"in use by {owner}" if owner else "not in use"
    if owner is None and (wrong := _damage(home.absolute())):
        more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        return CheckResult("home", BROKEN, wrong[0] + more, "`millstream repair` lists what can be done")
    if not has_store(home) and owner is None:
        return CheckResult("home", OK, f"{home}, format {number}, {used}, no views yet")
    return _read(home, f"{home}, format {number}, {used}")


def _no_home(home: Path) -> CheckResult:
    """Report a directory without a millstream.json."""
    from millstream.runtime.home_dir import was_home

    if not home.exists():
        return CheckResult("home", OK, f"{home} is not there yet; `millstream run` creates it")
    if was_home(home):
        missing = f"the file {home / 'millstream.json'} is missing"
        return CheckResult("home", BROKEN, missing, "`millstream repair` lists what can be done")
    if home.is_dir() and all(p.name == SETTINGS_FILE for p in home.iterdir()):
        return CheckResult("home", OK, f"{home} is empty; `millstream run` creates a home there")
    return CheckResult("home", BROKEN, f"{home} is not a Millstream home", "name another directory with --home")


def _read(home: Path, owner_text: str) -> CheckResult:
    """Query the home for its views."""
    from millstream.reader import Reader

    try:
        with Reader(home) as reader:
            views = reader.views()
    except MillstreamError as error:
        wrong = "; ".join(p for p in (error.message, error.detail) if p)
        return CheckResult("home", BROKEN, wrong, error.hint or "restore it from a copy")
    except OSError:
        return CheckResult("home", LOW, f"{owner_text}, which does not respond", "try again in a moment")
    return CheckResult("home", OK, f"{owner_text}, {plural(len(views), 'view')}")


def _damage(home: Path) -> list[str]:
    """Report the damage that a repair would find, if it prevents work; nothing while another process owns the home."""
    from millstream.errors import HomeInUse
    from millstream.runtime.home_dir import files_named
    from millstream.runtime.recovery import repair
    from millstream.runtime.supervision.lease import HomeLock

    try:
        with files_named(home):
            lock = HomeLock(home / "lock")
    except HomeInUse:
        return []
    except MillstreamError as error:
        return [error.message]
    try:
        return [f.problem for f in repair.look(home) if not f.harmless]
    except MillstreamError as error:
        return [error.message]
    finally:
        lock.release()


def _format(path: Path) -> int:
    import orjson

    from millstream.errors import HomeDamaged, HomeTooNew
    from millstream.runtime.home_dir import FORMAT

    try:
        number = int(orjson.loads(path.read_bytes())["format"])
    except (OSError, ValueError, KeyError, TypeError):
        message = f"{path} cannot be read"
        raise HomeDamaged(message, hint="check its permissions, or restore it from a copy") from None
    if number > FORMAT:
        message = f"{path.parent} has format {number}, and this Millstream knows formats up to {FORMAT}"
        raise HomeTooNew(message, hint="upgrade: pip install --upgrade millstream")
    return number


def lock_owner(path: Path) -> str | None:
    """The process that holds a home's lock and its health, or None."""
    import fcntl

    from millstream.runtime.supervision.lease import owner_of

    try:
        with path.open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError:
                owner = owner_of(path)
                return "process unknown" if owner is None else owner.describe()
    except OSError:
        pass
    return None
