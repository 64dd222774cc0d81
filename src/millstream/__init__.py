"""Millstream: continuous queries over streams, in Python, on Spark.

import millstream as ms

flow = ms.Flow("auctions")
bids = flow.source("bids", ms.files("data/bids", format="json"),
                   schema="auction BIGINT, price BIGINT, ts TIMESTAMP", event_time="ts", lateness="4 seconds")
bids.key_by("auction").window(ms.tumbling("10 seconds")).aggregate(bids=ms.count()).view("hot_auctions")

with ms.open("./home") as home, home.start(flow) as run:
    run.catch_up()
    print(home.query("SELECT * FROM hot_auctions ORDER BY bids DESC LIMIT 10"))
"""

# ruff: noqa: F403 - the names of this package are those of public.py

from __future__ import annotations

import sys
from difflib import get_close_matches
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from millstream.public import *

__version__ = "0.1.0"

_RENAMED: dict[str, str] = {}
"""Deprecated public names, each mapped to its replacement. The old names still work but emit a warning."""


_HIDDEN = frozenset({"connect", "log"})
"""Sub-packages that share their name with a public function. As an attribute, the name is the function."""


class _Package(ModuleType):
    """The package; importing a sub-package does not hide the function of its name."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in _HIDDEN or not isinstance(value, ModuleType):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> Any:
    """Load public names and modules on first use: a command or a worker process imports only what it needs."""
    if name == "__all__":
        return _load()
    if name in _RENAMED:
        from millstream.deprecation import deprecated

        deprecated(f"millstream.{name}", f"millstream.{_RENAMED[name]}")
        return getattr(sys.modules[__name__], _RENAMED[name])
    if not name.startswith("_"):
        if name not in _HIDDEN and find_spec(f"{__name__}.{name}") is not None:
            return import_module(f"{__name__}.{name}")
        if name in _load():
            return globals()[name]
    near = [] if name.startswith("_") else get_close_matches(name, _load(), n=1)
    hint = f"; did you mean `{near[0]}`?" if near else ""
    msg = f"module `millstream` has no attribute `{name}`{hint}"
    raise AttributeError(msg, name=name)  # without `obj`: Python would search for similar names again


def _load() -> list[str]:
    """Load all public names, and return them."""
    from millstream import public

    names = public.__all__
    globals().update({each: getattr(public, each) for each in ("__all__", *names)})
    return names


def __dir__() -> list[str]:
    return sorted({*globals(), *_load()})
