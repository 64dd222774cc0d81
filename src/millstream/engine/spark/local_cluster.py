"""A Spark standalone cluster on this machine: one Master and some Workers, each a detached process, on loopback only.

`bin/spark-class` of the pyspark package starts them. `cluster.json` in the cluster's directory has the id and the start
time of each process, so that exactly these processes are ended later, also after their ids were reused.
"""

from __future__ import annotations

import os
import socket
import subprocess
import time
import urllib.request
from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import orjson

from millstream import paths, processes
from millstream.engine.spark.cluster import LOOPBACK
from millstream.engine.spark.java import require_java
from millstream.errors import DefinitionError, EngineFailed, EngineMissing

FILE = "cluster.json"
FIRST_PORT = 7077
START_SECONDS = 120.0
"""How long the master and all workers may take to start and to register."""
END_SECONDS = 20.0
"""How long a process may take to end before it is killed."""
_POLL_SECONDS = 0.2
_DAEMON_MEMORY = "512m"


@dataclass(frozen=True)
class Member:
    """A process of a cluster."""

    name: str
    pid: int
    started: int
    """Its start time, in ticks since boot: with the id, it names one process."""

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return processes.started(self.pid) == self.started


@dataclass(frozen=True)
class Cluster:
    """What `cluster.json` states about a cluster."""

    port: int
    ui_port: int
    boot: str
    """The boot of the system in which its processes were started."""
    cores: int
    memory: str
    members: tuple[Member, ...] = ()

    @property
    def url(self) -> str:
        """The address of its master."""
        return f"spark://{LOOPBACK}:{self.port}"

    @property
    def running(self) -> tuple[Member, ...]:
        """Its processes that run."""
        return tuple(m for m in self.members if m.alive) if self.boot == processes.boot() else ()

    @property
    def workers(self) -> int:
        """The number of its workers."""
        return sum(m.name != "master" for m in self.members)


def up(folder: Path, *, workers: int, cores: int, memory: str, port: int | None = None) -> Cluster:
    """Start a master and workers, and return when all workers are registered. Ends them again if one fails."""
    folder = folder.absolute()
    known = read(folder)
    if known is not None and known.running:
        raise DefinitionError(
            f"a cluster is already running in {folder}",
            detail=f"{known.url}, {len(known.running)} of {len(known.members)} processes run",
            hint="use it, or end it first: `millstream cluster down`",
        )
    if processes.started(os.getpid()) is None:
        raise EngineMissing("a local cluster needs Linux", hint="use a Spark cluster that others started: --master URL")
    require_java()
    chosen = _free_port(port)
    try:
        (folder / "work").mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise DefinitionError(f"{folder} cannot be written", detail=error.strerror) from None
    ui_port = _any_port()
    cluster = Cluster(chosen, ui_port, processes.boot(), cores, memory)
    master = ("org.apache.spark.deploy.master.Master", "--host", LOOPBACK, "--port", str(chosen))
    try:
        cluster = _start(folder, cluster, "master", (*master, "--webui-port", str(ui_port)))
        _await(folder, cluster, 0)
        for number in range(1, workers + 1):
            cluster = _start(folder, cluster, f"worker-{number}", _worker(folder, cluster, number))
        _await(folder, cluster, workers)
    except BaseException:
        down(folder)
        raise
    return cluster


def down(folder: Path) -> list[Member]:
    """End the processes of a cluster, and no others. Returns those that still ran. Does nothing if there are none."""
    folder = folder.absolute()
    cluster = read(folder)
    if cluster is None:
        return []
    running = cluster.running[::-1]  # workers first: they end their executors
    for member in running:
        if not processes.terminate(member.pid, member.started, END_SECONDS):
            processes.end(member.pid, member.started, END_SECONDS)
    left = [m for m in running if m.alive]
    if left:
        raise EngineFailed(
            f"{', '.join(f'{m.name} (process {m.pid})' for m in left)} cannot be ended",
            hint="end it as the user who started it; then repeat `millstream cluster down`",
        )
    paths.delete_file(folder / FILE, missing_ok=True)
    return list(running)


def read(folder: Path) -> Cluster | None:
    """The cluster of a directory, running or not; None if there is none."""
    path = folder.absolute() / FILE
    try:
        values = orjson.loads(path.read_bytes())
        return Cluster(**{**values, "members": tuple(Member(**m) for m in values["members"])})
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise DefinitionError(
            f"{path} cannot be read", detail=str(error), hint="end the processes of that cluster, and remove the file"
        ) from None


def page(cluster: Cluster) -> Mapping[str, Any] | None:
    """What the master says about its workers and applications; None if it does not answer."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # loopback is never behind a proxy
    try:
        with closing(opener.open(f"http://{LOOPBACK}:{cluster.ui_port}/json/", timeout=5)) as answer:
            found = orjson.loads(answer.read())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def registered(state: Mapping[str, Any] | None) -> list[Mapping[str, Any]]:
    """The live workers of the master's page."""
    return [] if state is None else [w for w in state.get("workers", ()) if w.get("state") == "ALIVE"]


def log_of(folder: Path, name: str) -> Path:
    """The log of a process."""
    return folder / f"{name}.log"


def _start(folder: Path, cluster: Cluster, name: str, arguments: tuple[str, ...]) -> Cluster:
    """Start a process and record it."""
    with log_of(folder, name).open("ab") as log:
        process = subprocess.Popen(
            [str(spark_home() / "bin" / "spark-class"), *arguments],
            cwd=folder,
            env=_environment(),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    began = processes.started(process.pid)
    if began is None:
        raise _ended(folder, name)
    started = Cluster(**{**vars(cluster), "members": (*cluster.members, Member(name, process.pid, began))})
    written = folder / f".{FILE}"
    written.write_bytes(orjson.dumps(asdict(started), option=orjson.OPT_INDENT_2))
    paths.rename(written, folder / FILE)
    return started


def _worker(folder: Path, cluster: Cluster, number: int) -> tuple[str, ...]:
    return (
        "org.apache.spark.deploy.worker.Worker",
        *("--host", LOOPBACK, "--webui-port", "0", "--cores", str(cluster.cores), "--memory", cluster.memory),
        *("--work-dir", str(folder / "work" / f"worker-{number}"), cluster.url),
    )


def _await(folder: Path, cluster: Cluster, workers: int) -> None:
    """Wait until the master answers and has so many workers."""
    until = time.monotonic() + START_SECONDS
    while True:
        for member in cluster.members:
            if not member.alive:
                raise _ended(folder, member.name)
        state = page(cluster)
        if state is not None and len(registered(state)) >= workers:
            return
        if time.monotonic() > until:
            raise EngineFailed(
                f"the cluster was not ready within {START_SECONDS:.0f} seconds",
                detail=f"{len(registered(state))} of {workers} workers are registered; the logs are in {folder}",
                hint="try fewer workers, or a machine that is less busy; nothing was left running",
            )
        time.sleep(_POLL_SECONDS)


def _ended(folder: Path, name: str) -> EngineFailed:
    log = log_of(folder, name)
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.is_file() else []
    shown = next((line.strip() for line in reversed(lines) if "ERROR" in line or "rror:" in line), "")
    return EngineFailed(
        f"{name} has ended while the cluster was starting",
        detail="; ".join(p for p in (shown[:300], f"its log is {log}") if p),
        hint="nothing was left running; try again when the cause is removed",
    )


def spark_home() -> Path:
    """The directory of Spark's programs: that of the pyspark package."""
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise EngineMissing("pyspark is not installed", hint="run `millstream doctor`")
    return Path(spec.origin).parent


def _environment() -> dict[str, str]:
    """The environment of the processes: loopback only, no service for submissions, logs of executors removed later."""
    opts = {
        "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false",
        "SPARK_WORKER_OPTS": "-Dspark.worker.cleanup.enabled=true",
    }
    known = {k: v for k, v in os.environ.items() if not k.startswith("SPARK_")}
    return {
        **known,
        **opts,
        "SPARK_HOME": str(spark_home()),
        "SPARK_LOCAL_IP": LOOPBACK,
        "SPARK_DAEMON_MEMORY": _DAEMON_MEMORY,
    }


def _free_port(port: int | None) -> int:
    """The port for the master: the given one, or the first free one from 7077."""
    if port is not None:
        if not _is_free(port):
            raise DefinitionError(
                f"port {port} is in use", hint="name another one with --port; without it, a free one is found"
            )
        return port
    return next((p for p in range(FIRST_PORT, FIRST_PORT + 100) if _is_free(p)), None) or _any_port()


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def _any_port() -> int:
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port
