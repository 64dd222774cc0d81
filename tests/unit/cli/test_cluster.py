"""`millstream cluster` and its errors. Small programs stand in for Spark's processes, a thread for the page of the
master.
"""

from __future__ import annotations

import http.server
import json
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from millstream import processes
from millstream.cli.exit_codes import ExitCode
from millstream.engine.spark import local_cluster

from .conftest import Cli

pytestmark = pytest.mark.skipif(processes.started(os.getpid()) is None, reason="a local cluster needs Linux")


class MasterPage:
    """What the master's page says: `workers` of them are alive."""

    def __init__(self) -> None:
        self.workers = 0
        page = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                said = {"workers": [{"state": "ALIVE"}] * page.workers + [{"state": "DEAD"}], "activeapps": []}
                body = json.dumps(said).encode()
                self.send_response(200)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> Iterator[MasterPage]:
    served = MasterPage()
    monkeypatch.setattr(local_cluster, "_any_port", lambda: served.port)
    yield served
    served.close()


@pytest.fixture
def spark(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """Programs in place of Spark's; what a test leaves is ended."""
    home = tmp_path / "spark"
    (home / "bin").mkdir(parents=True)
    program = home / "bin" / "spark-class"
    program.write_text('#!/bin/sh\necho "$@" > "$PWD/arguments.$$"\nexec sleep 600\n')
    program.chmod(0o755)
    monkeypatch.setattr(local_cluster, "spark_home", lambda: home)
    monkeypatch.setattr(local_cluster, "require_java", lambda: None)
    children: list[subprocess.Popen[bytes]] = []
    start = subprocess.Popen

    def started(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        children.append(start(*arguments, **options))
        return children[-1]

    monkeypatch.setattr(local_cluster.subprocess, "Popen", started)
    yield program
    for child in children:
        child.kill()
        child.wait()


def test_a_cluster_starts_reports_and_ends_exactly_its_processes(
    millstream: Cli, spark: Path, page: MasterPage
) -> None:
    page.workers = 2
    bystander = subprocess.Popen(["sleep", "600"])
    up = millstream("cluster", "up", "--workers", "2", "--memory", "512m")
    assert up.exit_code == 0, up.output
    cluster = local_cluster.read(Path("millstream-cluster"))
    assert cluster is not None and up.stdout == f"{cluster.url}\n" and cluster.url.startswith("spark://127.0.0.1:")
    assert f"millstream run flow.py --master {cluster.url}" in up.stderr
    assert [m.name for m in cluster.running] == ["master", "worker-1", "worker-2"]
    assert all(local_cluster.log_of(Path("millstream-cluster"), m.name).is_file() for m in cluster.members)

    status = millstream("cluster", "status")
    assert status.exit_code == 0 and "2 of 2 workers registered" in status.stdout

    again = millstream("cluster", "up")
    assert again.exit_code == ExitCode.USAGE and "a cluster is already running in" in again.stderr
    assert "millstream cluster down" in again.stderr

    down = millstream("cluster", "down")
    assert (down.exit_code, down.stdout) == (0, "ended worker-2, worker-1, master\n")
    assert not cluster.running and bystander.poll() is None
    bystander.kill()
    bystander.wait()
    assert millstream("cluster", "down").stdout.startswith("no cluster is running in ")


def test_a_process_that_reused_an_id_is_left_alone(millstream: Cli, spark: Path, page: MasterPage) -> None:
    page.workers = 1
    assert millstream("cluster", "up", "--workers", "1").exit_code == 0
    other = subprocess.Popen(["sleep", "600"])
    file = Path("millstream-cluster") / local_cluster.FILE
    values = json.loads(file.read_text())
    worker = values["members"][1]
    worker["pid"], worker["started"] = other.pid, 1
    file.write_text(json.dumps(values))
    assert millstream("cluster", "down").stdout == "ended master\n"
    assert other.poll() is None
    other.kill()
    other.wait()


def test_status_tells_of_a_worker_that_has_died(millstream: Cli, spark: Path, page: MasterPage) -> None:
    page.workers = 2
    assert millstream("cluster", "up", "--workers", "2").exit_code == 0
    cluster = local_cluster.read(Path("millstream-cluster"))
    assert cluster is not None
    os.kill(cluster.members[1].pid, signal.SIGKILL)
    os.waitid(os.P_PID, cluster.members[1].pid, os.WEXITED | os.WNOWAIT)
    page.workers = 1
    status = millstream("cluster", "status")
    assert status.exit_code == ExitCode.FAILED
    assert "1 of 2 workers registered" in status.stdout and "worker-1: ended" in status.stdout
    assert "worker-2: running" in status.stdout and "millstream cluster up" in status.stderr
    assert millstream("cluster", "down").stdout == "ended worker-2, master\n"


def test_a_worker_that_dies_while_starting_ends_the_others(millstream: Cli, spark: Path, page: MasterPage) -> None:
    spark.write_text(
        '#!/bin/sh\ncase "$1" in *Worker) echo "ERROR Worker: no such host"; exit 1;; esac\nexec sleep 600\n'
    )
    up = millstream("cluster", "up", "--workers", "1")
    assert up.exit_code == ExitCode.RUN and "worker-1 has ended while the cluster was starting" in up.stderr
    assert "ERROR Worker: no such host" in up.stderr and "worker-1.log" in up.stderr
    assert local_cluster.read(Path("millstream-cluster")) is None


def test_workers_that_never_register_are_not_waited_for_without_end(
    millstream: Cli, spark: Path, page: MasterPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_cluster, "START_SECONDS", 0.5)
    up = millstream("cluster", "up", "--workers", "2")
    assert up.exit_code == ExitCode.RUN and "the cluster was not ready within" in up.stderr
    assert "0 of 2 workers are registered" in up.stderr
    assert local_cluster.read(Path("millstream-cluster")) is None


def test_a_port_in_use_is_refused(millstream: Cli, spark: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        up = millstream("cluster", "up", "--port", str(port))
    assert up.exit_code == ExitCode.USAGE and f"port {port} is in use" in up.stderr and "--port" in up.stderr


def test_without_java_nothing_starts(millstream: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    up = millstream("cluster", "up")
    assert up.exit_code == ExitCode.RUN and "Millstream needs Java 17 or later" in up.stderr
    assert not Path("millstream-cluster").exists()


def test_without_a_cluster_status_says_so(millstream: Cli) -> None:
    status = millstream("cluster", "status", "--dir", "elsewhere")
    assert status.exit_code == ExitCode.USAGE
    assert "no cluster is running in" in status.stderr and "millstream cluster up" in status.stderr


def test_a_damaged_file_is_named(millstream: Cli) -> None:
    folder = Path("millstream-cluster")
    folder.mkdir()
    (folder / local_cluster.FILE).write_text("{")
    for command in ("up", "status", "down"):
        done = millstream("cluster", command)
        assert done.exit_code == ExitCode.USAGE and "cluster.json cannot be read" in done.stderr


@pytest.mark.parametrize("memory", ["lots", "1.5g", "0g"])
def test_an_amount_of_memory_is_checked(millstream: Cli, memory: str) -> None:
    up = millstream("cluster", "up", "--memory", memory)
    assert up.exit_code == ExitCode.USAGE and "is not an amount of memory" in up.stderr
