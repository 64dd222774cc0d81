"""The archive of the Python environment: what belongs to it, and how a session names it."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path

import orjson
import pytest

from millstream.engine.spark import environment
from millstream.engine.spark.cluster import executor_settings
from millstream.errors import DefinitionError, UnknownName


def test_a_lean_archive_has_what_millstream_requires_and_no_more() -> None:
    lean = environment._required(["millstream"])
    assert {"millstream", "pyspark", "pyarrow", "polars", "duckdb", "pandas", "py4j"} <= lean
    assert not lean & {"moto", "pytest", "ruff", "mypy"}
    assert "pytest" in environment._required(["millstream", "pytest"]) and lean < environment._all()
    with pytest.raises(UnknownName, match="`no-such-package` is not installed"):
        environment._required(["no_such.package"])


def test_entries_are_files_in_the_layout_of_an_environment() -> None:
    entries = dict(environment._entries({"millstream", "orjson", "pyspark"}))
    library = environment._LIBRARY
    assert (
        f"{library}/os.py" in entries and f"{library}/site-packages/millstream/engine/spark/environment.py" in entries
    )
    assert any(name.startswith(f"{library}/site-packages/orjson/") for name in entries)
    assert not any("/pyspark/jars/" in name or "__pycache__" in name or name.endswith(".pth") for name in entries)
    assert all(path.is_file() for path in entries.values())


def test_the_interpreter_of_an_archive_runs_where_it_is_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "_required", lambda _: {"orjson"})
    packed = environment.pack(tmp_path / "env.tar.gz", lean=True)
    assert packed.bytes == packed.path.stat().st_size and packed.distributions == 1
    with tarfile.open(packed.path) as archive:
        archive.extractall(tmp_path / "there", filter="data")
    note = orjson.loads((tmp_path / "there" / environment.NOTE).read_bytes())
    assert sys.version.startswith(note["python"])
    code = (
        "import sys, orjson, importlib.util as u; print(sys.prefix, orjson.__file__, u.find_spec('millstream').origin)"
    )
    done = subprocess.run(
        [tmp_path / "there" / "bin" / "python3", "-c", code],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    places = done.stdout.split()
    assert len(places) == 3 and all(p.startswith(str(tmp_path / "there")) for p in places), done.stderr


def test_a_session_sends_the_archive_to_executors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLSTREAM_EXECUTOR_ENVIRONMENT", str(tmp_path / "env.tar.gz"))
    with pytest.raises(DefinitionError, match="there is no archive") as caught:
        executor_settings("spark://127.0.0.1:7077", "1g", tmp_path)
    assert caught.value.hint is not None and "cluster pack" in caught.value.hint
    assert executor_settings("local[2]", "1g", tmp_path) == {}
    (tmp_path / "env.tar.gz").touch()
    settings = executor_settings("spark://127.0.0.1:7077", "1g", tmp_path)
    assert settings["spark.archives"] == f"file://{tmp_path}/env.tar.gz#environment"
    assert settings["spark.pyspark.python"] == "./environment/bin/python3"
    assert settings["spark.executorEnv.PYTHONPATH"].startswith("./environment/lib/python3.")
    monkeypatch.setenv("MILLSTREAM_EXECUTOR_ENVIRONMENT", "hdfs://host/env.tar.gz")
    assert executor_settings("yarn", "1g", tmp_path)["spark.archives"] == "hdfs://host/env.tar.gz#environment"
