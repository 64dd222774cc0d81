"""The storage port: what state needs of the place where its files are.

A storage is one folder of files by name. Files are written whole, under new names, and are never changed. A storage is
a frozen value that travels to tasks; `local_storage.py` and `object_storage.py` implement it. The conformance suite in
`millstream.testing` states the contract as tests.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

import pyarrow as pa


class NewFile(Protocol):
    """A file that is being written. It appears under its name only with `finish`."""

    def write(self, data: Any) -> int:
        """Append bytes; returns their number."""
        ...

    def finish(self) -> pa.Buffer | None:
        """Make the file durable and visible under its name. Returns its content if that does not require reading the
        file again.
        """
        ...

    def discard(self) -> None:
        """Give the file up: nothing appears under its name."""
        ...


class Storage(Protocol):
    """A folder of immutable files. Names may have folders in them, separated by slashes.

    Listings may lag behind; reads by name and sizes may not. A storage that cannot be reached raises StorageFailed.
    """

    def __hash__(self) -> int: ...

    @property
    def copies(self) -> bool:
        """Whether a mapped file occupies the local disk, so that the number of mapped files must be bounded."""
        ...

    @property
    def copies_limit(self) -> int:
        """How many bytes of mapped files a process may keep, if they are copies."""
        ...

    def place(self, name: str = "") -> str:
        """The full name of a file, for messages."""
        ...

    def create(self, name: str) -> NewFile:
        """Begin a file."""
        ...

    def put(self, name: str, data: Any) -> None:
        """Write a whole file. It is durable when this returns; a file of this name is replaced at once."""
        ...

    def map(self, name: str) -> pa.Buffer:
        """The content of a file, mapped into memory. It stays valid when the file is deleted. Raises
        FileNotFoundError.
        """
        ...

    def sizes(self, names: Iterable[str]) -> dict[str, int]:
        """The sizes of those files that exist, each looked up by its name."""
        ...

    def names(self) -> set[str]:
        """The names of all files, unfinished ones too. New files may be missing, and deleted ones listed."""
        ...

    def delete(self, names: Iterable[str]) -> None:
        """Delete files. One that does not exist is fine."""
        ...

    def within(self, folder: str) -> Storage:
        """The storage of a folder inside this one."""
        ...
