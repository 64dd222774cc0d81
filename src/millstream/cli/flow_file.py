"""Flow files: a Python file whose globals hold flows. Loading one runs it as a module of its own.

The module is called ``__millstream__``, so ``if __name__ == "__main__"`` parts do not run, and functions
defined in the file travel to the executors by value. Its folder is put on the path, here and for them.
"""

from __future__ import annotations

import os
import runpy
import sys
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from millstream.errors import DefinitionError, DuplicateName, MillstreamError, Origin, UnknownName
from millstream.model.flow import Flow

MODULE = "__millstream__"


@dataclass(frozen=True)
class FlowFile:
    """What was found in a flow file."""

    path: Path
    flows: tuple[Flow, ...]
    tables: Mapping[str, Any]
    """Stored tables to put into the home before the flows start: the file's global `TABLES`."""


def load(path: Path, name: str | None = None) -> FlowFile:
    """Run a flow file and find its flows, or the one of this name."""
    if not path.is_file():
        known = sorted(p.name for p in path.parent.glob("*.py"))[:5] if path.parent.is_dir() else []
        raise DefinitionError(
            f"there is no flow file {path}" if not path.is_dir() else f"{path} is a folder, not a flow file",
            detail=f"looked from {Path.cwd()}",
            hint=f"there are: {', '.join(known)}" if known else "name a Python file that creates a ms.Flow(...)",
        )
    module = _execute(path)
    flows = tuple({id(v): v for v in module.values() if isinstance(v, Flow)}.values())
    if not flows:
        msg = f"there is no flow in {path}"
        raise DefinitionError(
            msg,
            hint='create one at the top level of the file: flow = ms.Flow("name")',
        )
    for flow in flows:
        if sum(f.name == flow.name for f in flows) > 1:
            msg = f"two flows in {path} have the name `{flow.name}`"
            raise DuplicateName(msg, hint="give each its own name")
    if name is not None:
        chosen = tuple(f for f in flows if f.name == name)
        if not chosen:
            msg = f"there is no flow `{name}` in {path}"
            raise UnknownName(
                msg,
                detail="there are: " + ", ".join(f.name for f in flows),
            )
        flows = chosen
    tables = module.get("TABLES", {})
    if not isinstance(tables, Mapping):
        msg = f"TABLES in {path} is not a dict"
        raise DefinitionError(msg, hint='e.g. TABLES = {"cities": [{"id": 1, "name": "Ghent"}]}')
    return FlowFile(path, flows, tables)


def _execute(path: Path) -> dict[str, Any]:
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    os.environ["PYTHONPATH"] = os.pathsep.join(p for p in (folder, os.environ.get("PYTHONPATH", "")) if p)
    try:
        return runpy.run_path(str(path), run_name=MODULE)
    except MillstreamError as error:
        if error.origin is None:
            error.origin = _place(error, path)
        raise
    except SyntaxError as error:
        where = Origin(_short(error.filename or str(path)), error.lineno or 1)
        msg = f"the flow file cannot be read as Python: {error.msg}"
        raise DefinitionError(
            msg,
            origin=where,
            detail=(error.text or "").strip() or None,
        ) from None
    except (Exception, SystemExit) as error:
        text = str(error).strip()
        problem = f"{type(error).__name__}: {text}" if text else type(error).__name__
        where = _place(error, path)
        msg = f"the flow file raised {problem}"
        raise DefinitionError(
            msg,
            origin=where,
            detail=_line(error, path),
            hint="install it, or put it next to the flow file" if isinstance(error, ModuleNotFoundError) else None,
        ) from error


def _frames(error: BaseException, path: Path) -> list[traceback.FrameSummary]:
    """The frames in the flow file itself, outermost first."""
    mine = path.resolve()
    return [f for f in traceback.extract_tb(error.__traceback__) if Path(f.filename).resolve() == mine]


def _place(error: BaseException, path: Path) -> Origin:
    frames = _frames(error, path)
    return Origin(_short(str(path)), frames[-1].lineno or 1) if frames else Origin(_short(str(path)), 1)


def _line(error: BaseException, path: Path) -> str | None:
    frames = _frames(error, path)
    return frames[-1].line or None if frames else None


def _short(file: str) -> str:
    relative = os.path.relpath(file)
    return file if relative.startswith("..") else relative
