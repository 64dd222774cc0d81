"""Executors of another user, who can read neither the home nor the environment of the process that owns it.

State is in a shared folder, and on object storage. The environment reaches the executors as an archive.
"""

from __future__ import annotations

import json
import os
import pwd
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from millstream.engine.spark import environment
from millstream.engine.spark.local_cluster import _environment, spark_home

from .conftest import PATIENCE
from .hidden_home_kit import compare
from .test_cluster import QUICK, ROOT

OTHER = "nobody"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.getuid() != 0, reason="only root may start processes of another user"),
]


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The environment of this process, without what only tests need."""
    return environment.pack(tmp_path_factory.mktemp("packed") / "environment.tar.gz", lean=True).path


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that both users may enter; those of pytest are private."""
    folder = Path(tempfile.mkdtemp(prefix="millstream-shared-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def master(shared: Path) -> Iterator[str]:
    """The address of a cluster of two workers, all of them processes of the other user."""
    port, page = free_port(), free_port()
    work = shared / "cluster"
    work.mkdir()
    shutil.chown(work, OTHER)
    url, started = f"spark://127.0.0.1:{port}", list[subprocess.Popen[bytes]]()

    def start(*arguments: str) -> None:
        with (work / f"{len(started)}.log").open("wb") as log:
            started.append(
                subprocess.Popen(
                    [str(spark_home() / "bin" / "spark-class"), *arguments],
                    cwd=work,
                    env={**_environment(), "HOME": str(work), "JAVA_TOOL_OPTIONS": QUICK},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    user=OTHER,
                    group=pwd.getpwnam(OTHER).pw_gid,
                    extra_groups=[],
                    start_new_session=True,
                )
            )

    try:
        of_master = "org.apache.spark.deploy.master.Master"
        start(of_master, "--host", "127.0.0.1", "--port", str(port), "--webui-port", str(page))
        for number in (1, 2):
            limits = ("--cores", "1", "--memory", "1g", "--webui-port", "0")
            start(
                *("org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1", *limits),
                *("--work-dir", str(work / f"work-{number}"), url),
            )
        deadline = time.monotonic() + PATIENCE
        while registered(page) < 2:
            assert time.monotonic() < deadline and all(p.poll() is None for p in started), "the cluster did not start"
            time.sleep(0.2)
        yield url
    finally:
        for process in reversed(started):
            process.terminate()
            process.wait(timeout=30)


def registered(page: int) -> int:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"http://127.0.0.1:{page}/json/", timeout=5) as answer:
            return sum(w["state"] == "ALIVE" for w in json.loads(answer.read())["workers"])
    except OSError:
        return 0


@pytest.mark.parametrize("place", ["folder", "objects"])
def test_nothing_of_the_owner_has_to_be_readable_by_executors(
    place: str, shared: Path, master: str, packed: Path, s3_endpoint: str
) -> None:
    from tests.object_storage import KEYS, new_uri

    for name in ("state", "out"):
        (shared / name).mkdir()
        (shared / name).chmod(0o777)
    state = f"file://{shared}/state" if place == "folder" else new_uri(s3_endpoint)
    known = {k: v for k, v in os.environ.items() if not k.startswith(("MILLSTREAM_", "SPARK_", "AWS_"))}
    command = [sys.executable, "-m", "tests.system.hidden_home_kit", str(shared), master, state, "3000", "5000"]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={
            **known,
            **(KEYS if place == "objects" else {}),
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")]),
            "MILLSTREAM_EXECUTOR_ENVIRONMENT": str(packed),
            "JAVA_TOOL_OPTIONS": QUICK,
        },
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (shared / "home").stat().st_mode & 0o077 == 0, "the home is private"
    assert found["users"] == [pwd.getpwnam(OTHER).pw_uid]
    assert found["placements"] and set(found["placements"]) == {"spread"}
    compare(found["totals"], shared, 5000)
    assert not list((shared / "home").glob("flows/*/state"))
    assert KEYS["AWS_SECRET_ACCESS_KEY"] not in done.stdout + done.stderr
    logs = [p for p in (shared / "home").rglob("*.log")] + [p for p in (shared / "cluster").rglob("std*")]
    assert logs and not any(KEYS["AWS_SECRET_ACCESS_KEY"].encode() in p.read_bytes() for p in logs)
