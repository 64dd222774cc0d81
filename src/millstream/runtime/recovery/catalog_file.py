"""The file of a catalog as plain data: `live/definitions.py` writes it; checkpoints, restores and repairs copy it.

A catalog has a revision, which counts its writes, and a checksum. A copy with the same content is next to it, and a
third one is in the store, written last: so a catalog with a lower revision than the one in the store is damage.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from millstream.errors import HomeDamaged, HomeTooNew

FORMAT = 1
FILE, COPY = "catalog.json", "catalog.json.copy"
EMPTY: Mapping[str, Any] = {
    "format": FORMAT,
    "entries": [],
    "flows": {},
    "dropped": [],
    "pending": [],
    "revision": 0,
}


def encode(content: Mapping[str, Any]) -> bytes:
    """Encode a catalog with its checksum."""
    return orjson.dumps({**content, "crc": _crc(content)}, option=orjson.OPT_INDENT_2)


def decode(data: bytes) -> dict[str, Any]:
    """Decode a catalog; raises ValueError with the reason when it does not match its checksum."""
    content = orjson.loads(data)
    try:
        written = content.pop("crc")
        if content["format"] <= FORMAT and written != _crc(content):
            raise ValueError("the checksum does not fit")
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(str(error)) from None
    return dict(content)


def read(path: Path) -> dict[str, Any]:
    """Read a catalog file; refuses one that is damaged or of a newer version."""
    try:
        content = decode(path.read_bytes())
    except (OSError, ValueError) as error:
        raise HomeDamaged(
            f"the catalog {path} cannot be read",
            detail=error.strerror if isinstance(error, OSError) else str(error),
            hint="`millstream repair` says what can be done",
        ) from None
    if content["format"] > FORMAT:
        raise HomeTooNew(
            f"the catalog {path} has format {content['format']}; this Millstream knows those up to {FORMAT}",
            detail="it was written by a newer version; nothing was touched",
            hint="upgrade: pip install --upgrade millstream",
        )
    return content


def present(home: Path) -> dict[str, Any]:
    """Return the newest readable catalog of a home; an empty one when there is none."""
    contents = [dict(EMPTY)]
    for path in (home / FILE, home / COPY):
        try:
            contents.append(read(path))
        except HomeDamaged:
            continue
    return max(contents, key=_revision)


def revision_of(data: bytes | None) -> int:
    """The revision of an encoded catalog; -1 when it does not match its checksum."""
    try:
        return -1 if data is None else _revision(decode(data))
    except (ValueError, TypeError):
        return -1


def put_back(old: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """Prepare an old catalog to replace the current one. The next process that opens the home drops the flows that only
    the current one has.
    """
    gone = [flow for flow in now["flows"] if flow not in old["flows"]]
    dropped = list(dict.fromkeys([*old["dropped"], *now["dropped"], *gone]))
    return {
        **old,
        "dropped": [f for f in dropped if f not in old["flows"]],
        "revision": 1 + max(_revision(now), _revision(old)),
    }


def differences(old: Mapping[str, Any], now: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """List what is defined only now or differently now, and what is defined only in the old catalog: `view hot`, ..."""
    before, after = ({e["name"]: e for e in c["entries"]} for c in (old, now))
    lost = [f"{e['kind']} {n}" for n, e in after.items() if n not in before or before[n]["sql"] != e["sql"]]
    return lost, [f"{e['kind']} {n}" for n, e in before.items() if n not in after]


def _revision(content: Mapping[str, Any]) -> int:
    return int(content.get("revision", 0))


def _crc(content: Mapping[str, Any]) -> int:
    return zlib.crc32(orjson.dumps(content, option=orjson.OPT_SORT_KEYS))
