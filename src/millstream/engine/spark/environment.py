"""The Python environment as one archive for executors: interpreter, standard library, and packages.

Spark sends the archive to every executor and unpacks it in the executor's directory, so no Python has to be installed
there. The archive runs on machines with the same processor architecture and a C library that is not older. It does not
contain the Java part of Spark: master and workers have their own.
"""

from __future__ import annotations

import io
import os
import platform
import re
import sys
import sysconfig
import tarfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path, PurePosixPath

import orjson

from millstream import paths
from millstream.errors import DefinitionError, UnknownName
from millstream.settings import EXECUTOR_ENVIRONMENT, find
from millstream.state.durable import disk_full_named

NAME = "environment"
"""The directory into which an executor unpacks the archive."""
PYTHON = f"./{NAME}/bin/python3"
NOTE = "millstream-environment.json"
_START = b"""#!/bin/sh
here=$(dirname "$0")
LD_LIBRARY_PATH="$here/../lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" exec "$here/python3.real" "$@"
"""
"""Starts the interpreter with its own library, not with one of the system."""
_LIBRARY = f"lib/python{sys.version_info.major}.{sys.version_info.minor}"
_LEFT_OUT = frozenset({"__pycache__", "site-packages", "dist-packages", "test", "tests", "idlelib", "turtledemo"})
"""Directories of the standard library that no task needs."""
_OF_JAVA = ("pyspark/jars", "pyspark/examples", "pyspark/data", "pyspark/sbin")


@dataclass(frozen=True)
class Packed:
    """What an archive has in it."""

    path: Path
    bytes: int
    files: int
    distributions: int


def pack(
    path: Path, *, lean: bool = False, more: Sequence[str] = (), tick: Callable[[], None] = lambda: None
) -> Packed:
    """Write the archive of this environment. A `lean` one has Millstream, what it requires, and `more` distributions;
    otherwise all that are installed. `tick` is called for every file.
    """
    chosen = _required(("millstream", *more)) if lean else _all()
    entries = dict(_entries(chosen))
    unfinished = path.with_name(f".{path.name}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with disk_full_named(path), tarfile.open(unfinished, "w:gz", compresslevel=1) as archive:
            for name, source in sorted(entries.items()):
                archive.add(source, name, recursive=False, filter=_anonymous)
                tick()
            _add(archive, "bin/python3", _START, 0o755)
            _add(archive, NOTE, _note(len(chosen)), 0o644)
        paths.rename(unfinished, path)
    except OSError as error:
        raise DefinitionError(f"{path} cannot be written", detail=error.strerror) from None
    return Packed(path, path.stat().st_size, len(entries), len(chosen))


def archive_settings(home: Path) -> dict[str, str]:
    """The settings of a session whose executors use an archive."""
    chosen = find(EXECUTOR_ENVIRONMENT, home=home).value
    if not chosen:
        return {}
    if "://" not in chosen:
        local = Path(chosen).expanduser().absolute()
        if not local.is_file():
            raise DefinitionError(
                f"there is no archive {local} for the executors", hint=f"make it: millstream cluster pack {chosen}"
            )
        chosen = local.as_uri()
    return {
        "spark.archives": f"{chosen}#{NAME}",
        "spark.pyspark.python": PYTHON,
    }


def module_path() -> str:
    """Where the packages of an unpacked archive are."""
    return f"./{NAME}/{_LIBRARY}/site-packages"


# ---------------------------------------------------------------- what belongs to it


def _entries(distributions: Iterable[str]) -> Iterator[tuple[str, Path]]:
    """Names in the archive, and the files that they are made of."""
    interpreter = Path(os.path.realpath(getattr(sys, "_base_executable", sys.executable)))
    yield "bin/python3.real", interpreter
    shared = sysconfig.get_config_var("INSTSONAME") if sysconfig.get_config_var("Py_ENABLE_SHARED") else None
    if shared and (library := Path(sysconfig.get_config_var("LIBDIR") or "") / shared).is_file():
        yield f"lib/{shared}", library
    for kind in ("stdlib", "platstdlib"):
        yield from _tree(Path(sysconfig.get_path(kind, vars={"base": sys.base_prefix, "platbase": sys.base_prefix})))
    for name in distributions:
        yield from _of_distribution(metadata.distribution(name))
    own = Path(paths.__file__).parent  # the code that runs now, however it is installed
    yield from _modules(own, own.parent)


def _tree(root: Path) -> Iterator[tuple[str, Path]]:
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(f for f in folders if f not in _LEFT_OUT)
        for name in files:
            path = Path(folder) / name
            if path.suffix != ".pyc":
                yield f"{_LIBRARY}/{path.relative_to(root)}", path


def _of_distribution(distribution: metadata.Distribution) -> Iterator[tuple[str, Path]]:
    for file in distribution.files or ():
        name, source = PurePosixPath(file), Path(str(distribution.locate_file(file)))
        if ".." in name.parts or name.is_absolute() or "__pycache__" in name.parts or not source.is_file():
            continue  # a script for the shell, or made by the interpreter itself
        if str(name).startswith(_OF_JAVA):
            continue
        if name.suffix == ".pth":
            yield from _linked(source)
        else:
            yield f"{_LIBRARY}/site-packages/{name}", source


def _linked(link: Path) -> Iterator[tuple[str, Path]]:
    """The packages of a directory that is installed by its path alone, as one is that is being developed."""
    for line in link.read_text(encoding="utf-8", errors="replace").splitlines():
        root = Path(line.strip())
        if line.strip() and not line.startswith(("#", "import ")) and root.is_dir():
            yield from _modules(root, root)


def _modules(folder: Path, root: Path) -> Iterator[tuple[str, Path]]:
    """The files below a folder, by their path in `root`."""
    for at, folders, files in os.walk(folder):
        folders[:] = sorted(f for f in folders if f != "__pycache__" and not f.startswith("."))
        for name in files:
            path = Path(at) / name
            if path.suffix != ".pyc":
                yield f"{_LIBRARY}/site-packages/{path.relative_to(root)}", path


def _all() -> set[str]:
    return {_normal(d.metadata["Name"]) for d in metadata.distributions() if d.metadata["Name"]} - {"pip"}


def _required(names: Iterable[str]) -> set[str]:
    """Distributions, and what they require as far as it is installed, extras too."""
    found: set[str] = set()
    waiting = [_normal(n) for n in names]
    asked = set(waiting)
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        try:
            distribution = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            if name in asked:
                raise UnknownName(
                    f"the package `{name}` is not installed", hint="install it, or leave it out"
                ) from None
            continue
        found.add(name)
        for text in distribution.requires or ():
            if "extra ==" not in text or (name == "millstream" and 'extra == "pandas"' in text.replace("'", '"')):
                waiting.append(_normal(re.split(r"[^A-Za-z0-9._-]", text, maxsplit=1)[0]))
    return found


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """A file that belongs to whoever unpacks it, and that all may read."""
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mode |= 0o444
    return entry


def _note(distributions: int) -> bytes:
    note = {
        "python": platform.python_version(),
        "platform": sysconfig.get_platform(),
        "millstream": metadata.version("millstream"),
        "pyspark": metadata.version("pyspark"),
        "distributions": distributions,
    }
    return orjson.dumps(note, option=orjson.OPT_INDENT_2)


def _add(archive: tarfile.TarFile, name: str, data: bytes, mode: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(data), mode
    archive.addfile(entry, io.BytesIO(data))
