"""What a session needs when its executors are other processes: addresses, the Python environment, and how many tasks
run at once.

Executors read and write state themselves: in the home, under the same absolute path as this process, or in the place
that `state` names.
"""

from __future__ import annotations

import os
import re
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from millstream.engine.spark import environment
from millstream.engine.spark.class_archive import archive_options
from millstream.errors import EngineFailed
from millstream.state.shard import KEY_GROUPS

LOOPBACK = "127.0.0.1"
ANSWER_SECONDS = 5.0
"""How long a master may take to accept a connection."""
EXECUTOR_SECONDS = 60.0
"""How long the first executor of a new session may take to start."""
_POLL_SECONDS = 0.1
_SHUFFLE = "spark.sql.shuffle.partitions"


def is_local(master: str) -> bool:
    """Whether executors are threads of this process's Java process."""
    return re.match(r"local(\[|$)", master) is not None


def addresses(master: str) -> list[tuple[str, int]]:
    """The hosts and ports of a master. Empty for masters that are not named by an address.

    >>> addresses("spark://one:7077,two:7077"), addresses("local[2]")
    ([('one', 7077), ('two', 7077)], [])
    """
    if not master.startswith("spark://"):
        return []
    found = re.findall(r"([^,/]+):(\d+)", master.removeprefix("spark://"))
    return [(host.rpartition("@")[2].strip("[]"), int(port)) for host, port in found]


def on_this_machine(master: str) -> bool:
    """Whether the master and its executors use the loopback interface only."""
    hosts = [host for host, _ in addresses(master)]
    return master.startswith("local") or (bool(hosts) and all(h == "localhost" or _is_loopback(h) for h in hosts))


def own_address(master: str) -> str | None:
    """The address of the interface that reaches the master; None if the master has no address. Sends nothing."""
    if on_this_machine(master):
        return LOOPBACK
    for host, port in addresses(master):
        with suppress(OSError):
            for family, kind, _, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM):
                with socket.socket(family, kind) as probe, suppress(OSError):
                    probe.connect(address)
                    return str(probe.getsockname()[0])
    return None


def network_settings(master: str, driver_host: str) -> dict[str, str]:
    """The addresses of this process: loopback only, unless executors are on other machines."""
    own = own_address(master)
    settings = {}
    if own is not None:
        settings["spark.driver.bindAddress"] = _bracketed(own)
    if driver_host or own is not None:
        settings["spark.driver.host"] = _bracketed(driver_host or own or "")
    return settings


def executor_settings(master: str, memory: str, home: Path) -> dict[str, str]:
    """The settings of executors in other processes; none for local masters, whose executors inherit all of it."""
    if is_local(master):
        return {}
    packed = environment.archive_settings(home)
    archive = archive_options() if on_this_machine(master) else ()
    return {
        "spark.executor.memory": memory,
        "spark.executor.extraJavaOptions": " ".join(("-XX:+UseParallelGC", "-XX:+ExitOnOutOfMemoryError", *archive)),
        **packed,
        "spark.executorEnv.PYTHONPATH": os.pathsep.join(
            p for p in (environment.module_path() if packed else "", _python_path()) if p
        ),
        "spark.executor.logs.rolling.strategy": "size",
        "spark.executor.logs.rolling.maxSize": str(20 * 2**20),
        "spark.executor.logs.rolling.maxRetainedFiles": "3",
    }


def check_master(master: str) -> None:
    """Raise EngineFailed if no host of the master accepts a connection. Spark itself would try for a minute."""
    hosts = addresses(master)
    problem = ""
    for address in hosts:
        try:
            with socket.create_connection(address, ANSWER_SECONDS):
                return
        except OSError as error:
            problem = error.strerror or str(error)
    if hosts:
        raise EngineFailed(
            f"no Spark master answers at {master}",
            detail=problem or None,
            hint="start it, or correct `spark_master`; `millstream cluster up` starts one on this machine",
        )


def await_executor(spark: Any, master: str, memory: str, seconds: float = EXECUTOR_SECONDS) -> None:
    """Wait for the first executor. Raises EngineFailed if none starts: without one, every job would wait forever."""
    if is_local(master):
        return
    status = spark.sparkContext._jsc.sc().statusTracker()
    until = time.monotonic() + seconds
    while len(status.getExecutorInfos()) < 2:  # the driver counts as one
        if time.monotonic() > until:
            raise EngineFailed(
                f"no executor has started on {master} within {seconds:.0f} seconds",
                detail=f"an executor needs a free core and {memory} of memory on one worker",
                hint="look at the cluster (`millstream cluster status`), or lower `executor_memory`",
            )
        time.sleep(_POLL_SECONDS)


def parallelism(spark: Any) -> int:
    """How many tasks the present executors run at once, at most one per key group. Shuffles of Spark follow it."""
    tasks: int = max(1, min(KEY_GROUPS, spark.sparkContext.defaultParallelism))
    if spark.conf.get(_SHUFFLE) != str(tasks):
        spark.conf.set(_SHUFFLE, str(tasks))
    return tasks


def _python_path() -> str:
    """Where executors find modules: as this process's own workers would, but with absolute paths."""
    listed = [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p]
    here = [] if sys.flags.safe_path else [os.getcwd()]
    return os.pathsep.join(dict.fromkeys(os.path.abspath(p) for p in (*here, *listed)))


def _is_loopback(host: str) -> bool:
    return re.fullmatch(r"127(\.\d+){3}|::1", host) is not None


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host
