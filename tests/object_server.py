"""A small S3 server on loopback, in a thread of the test process: what the client of a storage asks for, and no more.

A request takes a tenth of what it takes on the emulator that other tests use, which knows all of S3. Both keep the
contract of storages (`tests/unit/state/test_storages.py`). Signatures are not checked.
"""

from __future__ import annotations

import itertools
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import md5
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

Headers = dict[str, str]
Reply = tuple[int, Headers, bytes]
REASONS = {200: "OK", 204: "No Content", 206: "Partial Content", 404: "Not Found", 501: "Not Implemented"}
MODIFIED = "Thu, 01 Jan 2026 00:00:00 GMT"


class Objects:
    """Buckets and their objects, and how requests change them."""

    def __init__(self) -> None:
        self.buckets: dict[str, dict[str, bytes]] = {}
        self.uploads: dict[str, dict[int, bytes]] = {}
        self.numbers = itertools.count(1)
        self.lock = threading.Lock()

    def answer(self, method: str, target: str, headers: Headers, body: bytes) -> Reply:
        """The reply to a request."""
        parts = urlsplit(target)
        bucket, _, key = unquote(parts.path).lstrip("/").partition("/")
        query = {k: v[0] for k, v in parse_qs(parts.query, keep_blank_values=True).items()}
        with self.lock:
            if method == "PUT" and not key:
                self.buckets.setdefault(bucket, {})
                return 200, {}, b""
            if bucket not in self.buckets:
                return _missing("NoSuchBucket")
            if not key:
                return (200, {}, b"") if method == "HEAD" else _listing(self.buckets[bucket], query)
            return self._object(method, self.buckets[bucket], key, query, headers, body)

    def _object(
        self, method: str, objects: dict[str, bytes], key: str, query: Headers, headers: Headers, body: bytes
    ) -> Reply:
        if "uploads" in query or "uploadId" in query:
            return self._upload(method, objects, key, query, body)
        if method == "PUT":
            objects[key] = body
            return 200, {"ETag": _tag(body)}, b""
        if method == "DELETE":
            objects.pop(key, None)
            return 204, {}, b""
        if key not in objects:
            return _missing("NoSuchKey")
        found = objects[key]
        about = {"ETag": _tag(found), "Last-Modified": MODIFIED, "Content-Type": "application/octet-stream"}
        if method == "GET" and "range" in headers:
            first, last = (int(part) for part in headers["range"].removeprefix("bytes=").split("-"))
            last = min(last, len(found) - 1)
            return 206, about | {"Content-Range": f"bytes {first}-{last}/{len(found)}"}, found[first : last + 1]
        return (200, about, found) if method in ("GET", "HEAD") else (501, {}, b"")

    def _upload(self, method: str, objects: dict[str, bytes], key: str, query: Headers, body: bytes) -> Reply:
        """An object that is sent in parts."""
        if "uploads" in query:
            upload = str(next(self.numbers))
            self.uploads[upload] = {}
            return _xml("InitiateMultipartUploadResult", f"<Key>{escape(key)}</Key><UploadId>{upload}</UploadId>")
        upload = query["uploadId"]
        if method == "PUT":
            self.uploads[upload][int(query["partNumber"])] = body
            return 200, {"ETag": _tag(body)}, b""
        parts = self.uploads.pop(upload)
        if method == "DELETE":
            return 204, {}, b""
        objects[key] = b"".join(part for _, part in sorted(parts.items()))
        return _xml("CompleteMultipartUploadResult", f"<ETag>{escape(_tag(objects[key]))}</ETag>")


class _Connection(socketserver.StreamRequestHandler):
    """Reads requests and sends replies until the client hangs up."""

    disable_nagle_algorithm = True
    wbufsize = -1

    def handle(self) -> None:
        while line := self.rfile.readline():
            method, target, _ = line.decode("latin-1").split(" ", 2)
            headers = {}
            while line := self.rfile.readline().strip():
                name, _, value = line.decode("latin-1").partition(":")
                headers[name.lower()] = value.strip()
            if headers.get("expect") == "100-continue":
                self.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                self.wfile.flush()
            body = self._body(headers)
            status, more, content = self.server.objects.answer(method, target, headers, body)  # type: ignore[attr-defined]
            lines = [f"HTTP/1.1 {status} {REASONS[status]}", *(f"{k}: {v}" for k, v in more.items())]
            lines.append(f"Content-Length: {len(content)}\r\n\r\n")
            self.wfile.write("\r\n".join(lines).encode("latin-1") + (b"" if method == "HEAD" else content))
            self.wfile.flush()

    def _body(self, headers: Headers) -> bytes:
        """The content of a request; a signed one may come in chunks, with signatures between them."""
        if "chunked" in headers.get("transfer-encoding", ""):
            body = b"".join(self._chunks())
            while self.rfile.readline().strip():
                pass
        else:
            body = self.rfile.read(int(headers.get("content-length", "0")))
        if "aws-chunked" not in headers.get("content-encoding", ""):
            return body
        chunks, at = [], 0
        while size := int(body[at : (end := body.index(b"\r\n", at))].split(b";")[0], 16):
            chunks.append(body[end + 2 : end + 2 + size])
            at = end + 4 + size
        return b"".join(chunks)

    def _chunks(self) -> Iterator[bytes]:
        while size := int(self.rfile.readline().split(b";")[0], 16):
            yield self.rfile.read(size)
            self.rfile.readline()


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self) -> None:
        self.objects = Objects()
        super().__init__(("127.0.0.1", 0), _Connection)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Threads live as long as their clients: others must not take them for threads of the product's servers."""
        threading.current_thread().name = "object-server"
        super().process_request_thread(request, client_address)


@contextmanager
def object_server(*buckets: str) -> Iterator[str]:
    """The endpoint of a server with these buckets."""
    with _Server() as server:
        server.objects.buckets = {name: {} for name in buckets}
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def _listing(objects: dict[str, bytes], query: Headers) -> Reply:
    prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
    limit, after = int(query.get("max-keys", "1000")), query.get("continuation-token", "")
    rows: dict[str, str] = {}
    for key in sorted(k for k in objects if k.startswith(prefix)):
        head, found, _ = key[len(prefix) :].partition(delimiter) if delimiter else (key, "", "")
        if found:
            folder = f"{prefix}{head}{delimiter}"
            rows[folder] = f"<CommonPrefixes><Prefix>{escape(folder)}</Prefix></CommonPrefixes>"
        else:
            about = f"<LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>{escape(_tag(objects[key]))}</ETag>"
            size = f"<Size>{len(objects[key])}</Size><StorageClass>STANDARD</StorageClass>"
            rows[key] = f"<Contents><Key>{escape(key)}</Key>{about}{size}</Contents>"
    names = [name for name in rows if name > after]
    shown = names[:limit]
    cut = len(shown) < len(names)
    more = f"<NextContinuationToken>{escape(shown[-1])}</NextContinuationToken>" if cut and shown else ""
    head = f"<Prefix>{escape(prefix)}</Prefix><KeyCount>{len(shown)}</KeyCount><MaxKeys>{limit}</MaxKeys>"
    head += f"<IsTruncated>{str(cut).lower()}</IsTruncated>{more}"
    return _xml("ListBucketResult", head + "".join(rows[name] for name in shown))


def _missing(code: str) -> Reply:
    _, headers, body = _xml("Error", f"<Code>{code}</Code><Message>There is no such thing.</Message>")
    return 404, headers, body


def _xml(name: str, content: str) -> Reply:
    text = f'<?xml version="1.0" encoding="UTF-8"?>\n<{name}>{content}</{name}>'
    return 200, {"Content-Type": "application/xml"}, text.encode()


def _tag(content: bytes) -> str:
    return f'"{md5(content).hexdigest()}"'
