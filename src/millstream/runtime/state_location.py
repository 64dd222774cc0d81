"""Where the state of a home is: in the home, or under a URI that executors can reach.

`state.json` in the home names the URI and the home's own folder there. So the URI has to be given only once, and two
homes under one URI never share a file. A restore starts a new folder: names are never used twice.
"""

from __future__ import annotations

import os
import secrets
import threading
import zlib
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import orjson

from millstream import paths, settings
from millstream.errors import DefinitionError, HomeDamaged, HomeTooNew
from millstream.state.durable import write_durably
from millstream.state.flow_state import FlowState
from millstream.state.local_storage import LocalStorage
from millstream.state.object_storage import ObjectStorage, S3Options
from millstream.state.storage import Storage

FILE, COPY = "state.json", "state.json.copy"
FORMAT = 1
_HINT = "write file:///shared/folder or s3://bucket/prefix"
_OPTIONS = ("endpoint", "region")


@dataclass(frozen=True)
class StateUri:
    """The parts of a URI that names a place for state."""

    scheme: str
    path: str
    """An absolute path, or a bucket and perhaps a prefix."""
    endpoint: str = ""
    region: str = ""

    @property
    def place(self) -> str:
        """The URI without options."""
        return f"{self.scheme}://{self.path}"

    @classmethod
    def parse(cls, text: str) -> StateUri:
        """Read a URI. Credentials in it are refused: they would be shown wherever the URI is."""
        parts = urlsplit(text)
        if "@" in parts.netloc:
            raise DefinitionError(
                "the URI of the state must not have credentials in it",
                hint="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY instead",
            )
        options = dict(parse_qsl(parts.query))
        if unknown := sorted(set(options) - set(_OPTIONS if parts.scheme == "s3" else ())):
            raise DefinitionError(f"the URI of the state has an unknown option `{unknown[0]}`", hint=_HINT)
        if parts.scheme == "file" or text.startswith("/"):
            path = unquote(parts.path)
            if parts.netloc not in ("", "localhost") or not path.startswith("/"):
                raise DefinitionError(f"{text!r} does not name an absolute path", hint="write file:///shared/folder")
            return cls("file", os.path.normpath(path))
        if parts.scheme == "s3" and parts.netloc:
            return cls("s3", "/".join([parts.netloc, *filter(None, parts.path.split("/"))]), **options)
        raise DefinitionError(f"{text!r} is not a place for state", hint=_HINT)

    def storage(self, home: Path) -> Storage:
        """The storage at this place, with the options and credentials of the environment."""
        if self.scheme == "file":
            return LocalStorage(Path(self.path), shared=True)
        find = os.environ.get
        options = S3Options(
            self.endpoint or find("AWS_ENDPOINT_URL_S3") or find("AWS_ENDPOINT_URL") or "",
            self.region or find("AWS_REGION") or find("AWS_DEFAULT_REGION") or "",
            find("AWS_ACCESS_KEY_ID", ""),
            find("AWS_SECRET_ACCESS_KEY", ""),
            find("AWS_SESSION_TOKEN", ""),
        )
        return ObjectStorage(self.path, options, settings.find(settings.STATE_CACHE, home=home).value)

    def text(self) -> str:
        """The URI with its options."""
        options = "&".join(f"{n}={v}" for n in _OPTIONS if (v := getattr(self, n)))
        return self.place + (f"?{options}" if options else "")


@dataclass
class StateLocation:
    """The place of the state of a home. Thread-safe."""

    home: Path
    uri: StateUri | None = None
    """None: in the home."""
    id: str = ""
    """The folder of this home under the URI."""
    _lock: threading.Lock = field(default_factory=threading.Lock, compare=False)
    _pins: Counter[tuple[str, str]] = field(default_factory=Counter, compare=False)

    @property
    def in_home(self) -> bool:
        """Whether state is a part of the directory of the home."""
        return self.uri is None

    def of(self, flow: str) -> FlowState:
        """The places of a flow's state."""
        folder = paths.flow_folder(self.home, flow)
        if self.uri is None:
            return FlowState.in_folder(folder)
        mine = self.uri.storage(self.home).within(f"{self.id}/flows/{paths.part(flow, 'flow')}")
        state, changes, answers = (mine.within(name) for name in ("state", "changes", "answers"))
        return FlowState(state, changes, answers, folder, self.home)

    def moved(self) -> StateLocation:
        """Another folder under the same URI."""
        return StateLocation(self.home, self.uri, secrets.token_hex(8))

    def drop(self, flow: str) -> None:
        """Remove what a dropped flow has left outside the home."""
        if not self.in_home:
            place = self.of(flow)
            for storage in (place.runs, place.changes, place.answers):
                storage.delete(storage.names())

    def encoded(self) -> bytes:
        """The content of state.json."""
        assert self.uri is not None
        data: dict[str, Any] = {"format": FORMAT, "uri": self.uri.text(), "id": self.id}
        return orjson.dumps({**data, "crc": zlib.crc32(orjson.dumps(data))})

    # ------------------------------------------------------------ files that are being copied

    @contextmanager
    def pins(self) -> Iterator[list[tuple[str, str]]]:
        """Keep the files (flow and name) that are added to the list until the end of the block."""
        pinned: list[tuple[str, str]] = []
        try:
            yield pinned
        finally:
            with self._lock:
                self._pins -= Counter(pinned)

    def pin(self, pinned: list[tuple[str, str]], flow: str, files: Collection[str]) -> None:
        """Keep files of a flow, even if no kept version names them any more."""
        with self._lock:
            self._pins.update((flow, f) for f in files)
            pinned += [(flow, f) for f in files]

    def pinned(self, flow: str) -> frozenset[str]:
        """The files of a flow that must stay."""
        with self._lock:
            return frozenset(file for (of, file), pins in self._pins.items() if of == flow and pins > 0)


def recorded(home: Path) -> StateLocation:
    """The location that a home has recorded."""
    problem: HomeDamaged | None = None
    for name in (FILE, COPY):
        try:
            data = orjson.loads((home / name).read_bytes())
            if data["format"] > FORMAT:
                raise HomeTooNew(
                    f"{home / name} has format {data['format']}, and this Millstream knows formats up to {FORMAT}",
                    hint="upgrade: pip install --upgrade millstream",
                )
            if data.pop("crc") != zlib.crc32(orjson.dumps(data)):
                raise ValueError("it does not match its checksum")
            return StateLocation(home, StateUri.parse(data["uri"]), str(data["id"]))
        except FileNotFoundError:
            continue
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            problem = HomeDamaged(
                f"{home / name} cannot be read", detail=str(error), hint="`millstream repair` says what can be done"
            )
    if problem is not None:
        raise problem
    return StateLocation(home)


def opened(home: Path, uri: str | None) -> StateLocation:
    """The location of the state of a home that this process owns. A URI that is given the first time is recorded."""
    known = recorded(home)
    if not uri:
        return known
    wanted = StateUri.parse(uri)
    if known.uri is None:
        if any((home / "flows").glob("*/state/*/*")):
            raise _elsewhere(home, str(home), wanted)
        return record(StateLocation(home, wanted, secrets.token_hex(8)))
    if known.uri.place != wanted.place:
        raise _elsewhere(home, known.uri.place, wanted)
    if wanted != known.uri and (wanted.endpoint or wanted.region):
        return record(StateLocation(home, wanted, known.id))
    return known


def record(location: StateLocation) -> StateLocation:
    """Write state.json, and its copy."""
    for name in (COPY, FILE):
        write_durably(location.home / name, location.encoded())
    return location


def _elsewhere(home: Path, known: str, wanted: StateUri) -> DefinitionError:
    return DefinitionError(
        f"the state of the home {home} is in {known}, not in {wanted.place}",
        hint="leave `state` out; or save a checkpoint, and restore it into a new home with this state",
    )
