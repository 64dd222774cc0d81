"""Files on S3 or S3-compatible storage: one PUT per file, and a copy on the local disk to read it.

A copy is an unnamed temporary file: it exists as long as it is mapped, and the system frees it when the process ends,
however that happens. `local_copies.py` bounds how many are mapped. A failed request is retried after increasing pauses.
"""

from __future__ import annotations

import functools
import mmap
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import IO, Any, TypeVar

import pyarrow as pa

from millstream.errors import MillstreamError, StorageFailed
from millstream.state.durable import disk_full_named

BACK_OFF = (0.1, 0.4, 1.6, 3.2)
"""Seconds before each repetition of a request."""
REQUESTS = 16
"""How many small requests are under way at a time."""
CONNECT_SECONDS, REQUEST_SECONDS = 5, 30
_PIECE = 8 << 20
_FINAL = re.compile(
    r"ACCESS_DENIED|NO_SUCH_BUCKET|INVALID_ACCESS_KEY_ID|SIGNATURE_DOES_NOT_MATCH|INVALID_CLIENT_TOKEN_ID"
    r"|UNRECOGNIZED_CLIENT|HTTP status 40[13]\b"
)
"""Errors that a repetition would only repeat."""
T = TypeVar("T")


@dataclass(frozen=True)
class S3Options:
    """How to reach a storage. Without keys, the AWS library looks for them: profile, container or machine role."""

    endpoint: str = ""
    region: str = ""
    access_key: str = field(default="", repr=False)
    secret_key: str = field(default="", repr=False)
    session_token: str = field(default="", repr=False)


@dataclass(frozen=True)
class ObjectStorage:
    """Objects of a bucket whose keys begin with a prefix."""

    prefix: str
    """The bucket, and perhaps a prefix: bucket/a/b"""
    options: S3Options = field(default=S3Options(), repr=False)
    copies_limit: int = 4 << 30

    @property
    def copies(self) -> bool:
        """A mapped file is a copy."""
        return True

    def place(self, name: str = "") -> str:
        """The address of an object."""
        return f"s3://{self.prefix}/{name}" if name else f"s3://{self.prefix}"

    def create(self, name: str) -> ObjectFile:
        """Begin a file on the local disk."""
        return ObjectFile(self, name)

    def put(self, name: str, data: Any) -> None:
        """Write an object."""

        def put() -> None:
            with _file_system(self.options).open_output_stream(f"{self.prefix}/{name}") as stream:
                stream.write(data)

        self._repeated(put, name)

    def map(self, name: str) -> pa.Buffer:
        """Copy an object to the local disk, and map the copy."""
        return self._repeated(lambda: self._copied(name), name)

    def sizes(self, names: Iterable[str]) -> dict[str, int]:
        """The sizes of those objects that exist."""

        def size(name: str) -> tuple[str, int | None]:
            info = self._repeated(lambda: _file_system(self.options).get_file_info(f"{self.prefix}/{name}"), name)
            return name, info.size if info.is_file else None

        return {name: found for name, found in _at_once(size, names) if found is not None}

    def names(self) -> set[str]:
        """The names of all objects, as the storage lists them."""
        from pyarrow.fs import FileSelector

        everything = FileSelector(self.prefix, recursive=True, allow_not_found=True)
        found = self._repeated(lambda: _file_system(self.options).get_file_info(everything))
        return {info.path.removeprefix(f"{self.prefix}/") for info in found if info.is_file}

    def delete(self, names: Iterable[str]) -> None:
        """Delete objects."""

        def delete(name: str) -> None:
            with suppress(FileNotFoundError):
                self._repeated(lambda: _file_system(self.options).delete_file(f"{self.prefix}/{name}"), name)

        _at_once(delete, names)

    def within(self, folder: str) -> ObjectStorage:
        """The storage of a longer prefix."""
        return replace(self, prefix=f"{self.prefix}/{folder}")

    def _copied(self, name: str) -> pa.Buffer:
        with _file_system(self.options).open_input_file(f"{self.prefix}/{name}") as source, _unnamed() as copy:
            while piece := source.read(_PIECE):
                with disk_full_named(tempfile.gettempdir()):
                    copy.write(piece)
            return _mapped(copy)

    def _repeated(self, request: Callable[[], T], name: str = "") -> T:
        """Perform a request, again after a failure that may pass."""
        for pause in (*BACK_OFF, None):
            try:
                return request()
            except FileNotFoundError:
                raise
            except OSError as error:
                final = _FINAL.search(str(error)) is not None
                if final or pause is None:
                    raise self._failed(name, error, refused=final) from None
                time.sleep(pause)
        raise AssertionError(name)

    def _failed(self, name: str, error: OSError, *, refused: bool) -> MillstreamError:
        at = f" at {self.options.endpoint}" if self.options.endpoint else ""
        if refused:
            hint = "check the bucket, the region, and the credentials (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY)"
        else:
            hint = "check the network and the endpoint; nothing that was committed is lost"
        return StorageFailed(
            f"the storage {self.place(name)}{at} " + ("refuses the request" if refused else "does not answer"),
            detail=_plain(str(error)),
            hint=hint,
        )


class ObjectFile:
    """An object that is being written: on the local disk first, so that it is sent whole, and again if that fails."""

    def __init__(self, storage: ObjectStorage, name: str) -> None:
        self._storage, self._name, self._file = storage, name, _unnamed()

    def write(self, data: Any) -> int:
        """Append bytes."""
        with disk_full_named(tempfile.gettempdir()):
            return self._file.write(data)

    def finish(self) -> pa.Buffer:
        """Send the object; returns its content."""
        with self._file:
            content = _mapped(self._file)
        self._storage.put(self._name, content)
        return content

    def discard(self) -> None:
        """Forget what was written."""
        self._file.close()


def _at_once(request: Callable[[str], T], names: Iterable[str]) -> list[T]:
    """The results of a request for each name; several are under way at a time."""
    wanted = list(names)
    if len(wanted) < 2:
        return [request(n) for n in wanted]
    with ThreadPoolExecutor(min(REQUESTS, len(wanted)), thread_name_prefix="millstream-storage") as pool:
        return list(pool.map(request, wanted))


@functools.lru_cache(maxsize=8)
def _file_system(options: S3Options) -> Any:
    """The client of this process for a storage."""
    from pyarrow.fs import AwsStandardS3RetryStrategy, S3FileSystem

    given = {k: v for k, v in vars(options).items() if v and k != "endpoint"}
    return S3FileSystem(
        **given,
        **({"endpoint_override": options.endpoint} if options.endpoint else {}),
        connect_timeout=CONNECT_SECONDS,
        request_timeout=REQUEST_SECONDS,
        retry_strategy=AwsStandardS3RetryStrategy(max_attempts=1),  # `_repeated` repeats
        background_writes=False,
        allow_delayed_open=True,  # a small file is one request
    )


def _unnamed() -> IO[bytes]:
    """A temporary file that the system removes with its last use, on the disk that Spark uses if this is a task."""
    folders = [f for f in os.environ.get("SPARK_LOCAL_DIRS", "").split(",") if f and os.path.isdir(f)]
    return tempfile.TemporaryFile(prefix="millstream-", dir=folders[0] if folders else None)


def _mapped(file: IO[bytes]) -> pa.Buffer:
    """The content of a temporary file, which lives as long as the buffer."""
    with disk_full_named(tempfile.gettempdir()):
        file.flush()
    if not os.fstat(file.fileno()).st_size:
        return pa.py_buffer(b"")
    return pa.py_buffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def _plain(text: str) -> str:
    """The error message of the storage, without the names of keys, which our message already has."""
    said = re.search(r"AWS Error .*", text, re.DOTALL)
    return re.sub(r"\s+", " ", said[0] if said else text)[:300]
