"""An S3 emulator on loopback, in a thread of the test process, and storages on it."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from millstream.state.object_storage import ObjectStorage, S3Options

BUCKET = "states"
KEYS = {"AWS_ACCESS_KEY_ID": "tester", "AWS_SECRET_ACCESS_KEY": "not-a-secret", "AWS_REGION": "us-east-1"}


@contextmanager
def emulator() -> Iterator[str]:
    """The endpoint of an emulator with one bucket."""
    from moto.server import ThreadedMotoServer
    from pyarrow.fs import S3FileSystem

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        _, port = server.get_host_and_port()
        endpoint = f"http://127.0.0.1:{port}"
        client = S3FileSystem(
            access_key="tester",
            secret_key="not-a-secret",
            endpoint_override=endpoint,
            region="us-east-1",
            allow_bucket_creation=True,
        )
        client.create_dir(BUCKET)
        yield endpoint
    finally:
        server.stop()


def new_uri(endpoint: str) -> str:
    """A place for state that no other test uses."""
    return f"s3://{BUCKET}/{secrets.token_hex(6)}?endpoint={endpoint}"


def state_at(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A new place, where all homes of the test keep their state."""
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    uri = new_uri(endpoint)
    monkeypatch.setenv("MILLSTREAM_STATE", uri)
    return uri


def storage_at(endpoint: str, prefix: str, **more: int) -> ObjectStorage:
    """A storage on the emulator."""
    options = S3Options(endpoint, "us-east-1", KEYS["AWS_ACCESS_KEY_ID"], KEYS["AWS_SECRET_ACCESS_KEY"])
    return ObjectStorage(f"{BUCKET}/{prefix}", options, **more)
