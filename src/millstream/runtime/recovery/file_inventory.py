"""The inventory of the files of a home: the kind of each, by its path."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from millstream.store.files import STORE_FILES

RECORDS, NOTES, LOCKS, REBUILT, COPIES, FOREIGN = "records", "notes", "locks", "rebuilt", "copies", "foreign"
"""Roles: what cannot be recomputed; small files that describe others; locks; what is recreated when it is missing; what
is read only when something else is lost; what other programs write.
"""

_FLOW = r"flows/[^/]+/"
_TOPIC = r"log/[^/]+/"
KINDS: tuple[tuple[str, str, str], ...] = (
    ("format", NOTES, r"millstream\.json"),
    ("home lock", LOCKS, r"lock"),
    ("former home lock", FOREIGN, r"lock\.\d{3}"),
    ("store", RECORDS, "(" + "|".join(re.escape(f) for f in STORE_FILES) + ")"),
    ("catalog", NOTES, r"catalog\.json"),
    ("copy of the catalog", REBUILT, r"catalog\.json\.copy"),
    ("place of the state", NOTES, r"state\.json"),
    ("copy of the place of the state", REBUILT, r"state\.json\.copy"),
    ("epoch record", NOTES, _FLOW + r"epochs/\d{12}\.json"),
    ("state run", RECORDS, _FLOW + r"state/[^/]+/\d{12}-[^/]+\.arrow"),
    ("manifest of runs", RECORDS, _FLOW + r"state/[^/]+/\d{12}-[^/]+\.runs"),
    ("kinds of sources", REBUILT, _FLOW + r"sources/kinds\.json"),
    ("ledger of files", NOTES, _FLOW + r"sources/[^/]+\.jsonl"),
    ("changes for a sink", RECORDS, _FLOW + r"out/\d{12}-.+\.[0-9a-f]{8}\.arrow"),
    ("delivered changes", NOTES, _FLOW + r"out/\d{12}-.+\.[0-9a-f]{8}\.done"),
    ("note of a clean stop", NOTES, _FLOW + r"stopped\.json"),
    ("progress of a tap", FOREIGN, _FLOW + r"taps/.+"),
    ("version of a table", RECORDS, r"tables/[^/]+/\d{6}\.arrow"),
    ("checksums of a table", NOTES, r"tables/[^/]+/versions\.json"),
    ("table that is being removed", REBUILT, r"tables/\.[^/]+\.gone/.+"),
    ("lock of the topics", LOCKS, r"log/topics\.lock"),
    ("topic", NOTES, _TOPIC + r"topic\.json"),
    ("copy of a topic", REBUILT, _TOPIC + r"topic\.json\.copy"),
    ("topic that is being removed", REBUILT, _TOPIC + r"topic\.dropped"),
    ("lock of holds", LOCKS, _TOPIC + r"holds/lock"),
    ("hold", NOTES, _TOPIC + r"holds/.+\.json"),
    ("copy of a hold", REBUILT, _TOPIC + r"holds/.+\.json\.copy"),
    ("partition lock", LOCKS, _TOPIC + r"p\d{5}/lock"),
    ("start of a partition", NOTES, _TOPIC + r"p\d{5}/start\.json"),
    ("copy of a start", REBUILT, _TOPIC + r"p\d{5}/start\.json\.copy"),
    ("durable end of a partition", REBUILT, _TOPIC + r"p\d{5}/durable"),
    ("write-ahead file", RECORDS, _TOPIC + r"p\d{5}/\d{20}\.wal"),
    ("segment", RECORDS, _TOPIC + r"p\d{5}/\d{20}-\d{20}\.[0-9a-f]{8}\.parquet"),
    ("part of a checkpoint", COPIES, r"checkpoints/.+"),
    ("part of a repair", COPIES, r"repair/.+"),
    ("message of Spark or of Millstream", FOREIGN, r"logs/.+"),
    ("work of a query", FOREIGN, r"tmp/.+"),
    ("socket", FOREIGN, r"query\.sock"),
    ("unfinished file", REBUILT, r"(.+/)?(\..+\.(tmp|new|new\.wal|shadow|standby)|.+\.tmp)"),
)
_PATTERNS = [(kind, role, re.compile(pattern)) for kind, role, pattern in KINDS]


def kind_of(path: str) -> tuple[str, str] | None:
    """The kind and the role of a file, by its path in the home; None when no kind has such a path."""
    return next(((kind, role) for kind, role, pattern in _PATTERNS if pattern.fullmatch(path)), None)


def present(home: Path) -> Iterator[tuple[Path, str]]:
    """List everything at the path of a home file, with its role: files, but also links and directories."""
    for folder, folders, files in os.walk(home):
        for name in sorted([*folders, *files]):
            path = Path(folder) / name
            known = kind_of(str(path.relative_to(home)))
            if known is not None:
                yield path, known[1]
        folders[:] = [f for f in folders if kind_of(str((Path(folder) / f).relative_to(home))) is None]
