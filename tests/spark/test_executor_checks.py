"""The doctor's checks of executors, on executors that are threads of this machine's Java process."""

from __future__ import annotations

from pathlib import Path

import pytest

from millstream.cli.commands.machine.doctor_spark import check_storage
from millstream.engine.spark import executor_checks
from millstream.engine.spark.executor_checks import check_executors
from millstream.state.local_storage import LocalStorage
from millstream.state.object_storage import ObjectStorage, S3Options
from tests.object_storage import storage_at

pytestmark = pytest.mark.spark


def test_executors_that_are_like_the_driver_have_no_problems(spark: object, s3_endpoint: str, tmp_path: Path) -> None:
    storage = storage_at(s3_endpoint, "doctor")
    for place in (storage, LocalStorage(tmp_path, shared=True), None):
        (report,) = check_executors(spark, place)
        assert report.problems == () and report.packages == executor_checks.versions() and report.skew == 0
        assert report.java.split(".")[0].isdigit() and report.storage.endswith(" ms") == (place is not None)
    assert storage.names() == set() and list(tmp_path.iterdir()) == []
    assert check_storage(storage).state == "ok" and storage.names() == set()


def test_what_differs_is_reported(spark: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor_checks, "versions", lambda: {"polars": "0.1", "pyarrow": "0.2", "left-pad": "1"})
    monkeypatch.setattr(executor_checks.platform, "python_version", lambda: "3.99.1")
    times = iter([1000.0, 1001.0])
    monkeypatch.setattr(executor_checks.time, "time", lambda: next(times))
    (report,) = check_executors(spark, LocalStorage(tmp_path))
    said = "; ".join(report.problems)
    assert "Python 3.11" in said or "Python 3.1" in said
    assert "and this process has 3.99.1" in said and "this process has 0.1" in said
    assert "it has left-pad missing" in said and "ahead" in said
    assert len(report.problems) == 5


def test_a_storage_that_executors_cannot_use_is_reported(
    spark: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class OnlyHere(LocalStorage):
        """A folder that is another one in other processes."""

        def __reduce__(self) -> tuple[type[LocalStorage], tuple[Path]]:
            return LocalStorage, (tmp_path / "there",)

    (tmp_path / "here").mkdir()
    (report,) = check_executors(spark, OnlyHere(tmp_path / "here"))
    assert report.problems == ("the storage of state: the file that the driver has written does not exist here",)
    nobody = ObjectStorage("bucket/x", S3Options("http://127.0.0.1:9", "us-east-1", "me", "very-secret"))
    monkeypatch.setattr("millstream.state.object_storage.time.sleep", lambda _: None)
    found = check_storage(nobody)
    assert found.state == "problem" and "does not answer" in found.text and "very-secret" not in found.text
