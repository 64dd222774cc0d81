"""The settings of a session by master: addresses, executors, and the number of shards."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from millstream.engine.spark import cluster, session
from millstream.errors import EngineFailed

LOCAL = ("local", "local[2]", "local[*,4]")
HERE = (*LOCAL, "local-cluster[2,1,1024]", "spark://127.0.0.1:7077", "spark://localhost:7077")


def settings(tmp_path: Path, master: str) -> dict[str, str]:
    return session.settings(tmp_path / "logs" / "spark.log", "1g", master)


@pytest.mark.parametrize("master", HERE)
def test_masters_on_this_machine_use_loopback_only(tmp_path: Path, master: str) -> None:
    found = settings(tmp_path, master)
    assert found["spark.master"] == master
    assert found["spark.driver.host"] == found["spark.driver.bindAddress"] == "127.0.0.1"


def test_options_of_java_have_no_space_from_the_path_of_a_home(tmp_path: Path) -> None:
    options = settings(tmp_path / "a space", "local")["spark.driver.extraJavaOptions"].split(" ")
    assert options[-1] == f"-Dlog4j2.configurationFile=file://{tmp_path}/a%20space/logs/spark.properties"


def test_the_log_settings_hold_any_path() -> None:
    lines = session.log_settings(Path("/ä 50%/\\.log")).splitlines()
    assert r"appender.file.fileName = /\u00e4 50%/\\.log" in lines
    assert r"appender.file.filePattern = /\u00e4 50%%/\\.log.%i" in lines


def test_another_master_is_reached_through_its_own_interface(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    probed: list[Any] = []

    class Probe:
        def __init__(self, *_: Any) -> None: ...
        def __enter__(self) -> Probe:
            return self

        def __exit__(self, *_: Any) -> None: ...
        def connect(self, address: Any) -> None:
            probed.append(address)

        def getsockname(self) -> tuple[str, int]:
            return "192.0.2.7", 1

    monkeypatch.setattr(cluster.socket, "socket", Probe)
    found = settings(tmp_path, "spark://192.0.2.1:7077")
    assert probed == [("192.0.2.1", 7077)]
    assert found["spark.driver.host"] == found["spark.driver.bindAddress"] == "192.0.2.7"
    monkeypatch.setenv("MILLSTREAM_DRIVER_HOST", "driver.example")
    found = settings(tmp_path, "spark://192.0.2.1:7077")
    assert (found["spark.driver.host"], found["spark.driver.bindAddress"]) == ("driver.example", "192.0.2.7")


def test_a_master_without_an_address_leaves_the_choice_to_spark(tmp_path: Path) -> None:
    assert not {"spark.driver.host", "spark.driver.bindAddress"} & set(settings(tmp_path, "yarn"))


def test_executors_get_the_modules_of_this_process_by_absolute_paths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["lib", "/opt/lib", ""]))
    monkeypatch.setenv("MILLSTREAM_EXECUTOR_MEMORY", "3g")
    found = settings(tmp_path, "spark://127.0.0.1:7077")
    assert found["spark.executorEnv.PYTHONPATH"].split(os.pathsep)[-2:] == [str(tmp_path / "lib"), "/opt/lib"]
    assert found["spark.executor.memory"] == "3g" and "ParallelGC" in found["spark.executor.extraJavaOptions"]
    assert not [k for k in settings(tmp_path, "local[2]") if k.startswith("spark.executor.")]


def test_a_master_that_does_not_answer_is_an_error_at_once() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        master = f"spark://127.0.0.1:{closed.getsockname()[1]}"
        with pytest.raises(EngineFailed, match=r"no Spark master answers at spark://127.0.0.1"):
            cluster.check_master(master)
        closed.listen()
        cluster.check_master(master)
        cluster.check_master(f"spark://127.0.0.1:1,{master.removeprefix('spark://')}")
    cluster.check_master("local[2]")


class Spark:
    """A session whose executors have so many cores."""

    def __init__(self, cores: int, executors: int = 1) -> None:
        self.cores, self.sets = cores, 0
        self.values = {"spark.sql.shuffle.partitions": "2"}
        self.conf = SimpleNamespace(get=self.values.__getitem__, set=self._set)
        tracker = SimpleNamespace(getExecutorInfos=lambda: [None] * (executors + 1))
        self._jsc = SimpleNamespace(sc=lambda: SimpleNamespace(statusTracker=lambda: tracker))
        self.sparkContext = self

    def _set(self, name: str, value: str) -> None:
        self.values[name] = value
        self.sets += 1

    @property
    def defaultParallelism(self) -> int:
        return self.cores


def test_shards_follow_the_executors_up_to_the_number_of_key_groups() -> None:
    spark = Spark(2)
    assert (cluster.parallelism(spark), spark.sets) == (2, 0)
    for cores, tasks in ((6, 6), (10_000, 4_096), (1, 1)):
        spark.cores = cores
        assert cluster.parallelism(spark) == tasks
        assert spark.values["spark.sql.shuffle.partitions"] == str(tasks)


def test_a_cluster_without_a_free_worker_is_an_error() -> None:
    cluster.await_executor(Spark(1), "spark://127.0.0.1:7077", "1g", seconds=0)
    cluster.await_executor(Spark(1, executors=0), "local[2]", "1g", seconds=0)
    with pytest.raises(EngineFailed, match=r"no executor has started on spark://127.0.0.1:7077"):
        cluster.await_executor(Spark(1, executors=0), "spark://127.0.0.1:7077", "1g", seconds=0)
