"""What Spark raises, in our words: a Java process that is gone, too little memory, a full disk. No JVM is started."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark.errors import IllegalArgumentException, PythonException

from millstream.engine.spark.errors import translated
from millstream.errors import DiskFull, EngineFailed, HomeDamaged, LeaseLost, StorageFailed

SRC = Path(__file__).parents[3] / "src"


@pytest.mark.parametrize(
    "error",
    [
        ConnectionRefusedError(111, "Connection refused"),
        ConnectionResetError(104, "Connection reset by peer"),
        EOFError(),
        Py4JNetworkError("Answer from Java side is empty"),
    ],
    ids=lambda e: type(e).__name__,
)
def test_a_java_process_that_is_gone_speaks_of_memory(tmp_path: Path, error: Exception) -> None:
    log = tmp_path / "logs" / "spark.log"
    with pytest.raises(EngineFailed, match="Java process has ended") as caught, translated(log):
        raise error
    assert caught.value.__cause__ is error
    assert caught.value.hint is not None
    assert "ran out of memory" in caught.value.hint
    assert "millstream run --memory" in caught.value.hint
    assert caught.value.detail == f"the full report is in {log}"
    assert type(error).__name__ in log.read_text(encoding="utf-8")


def test_too_little_memory_to_start_is_said_with_the_way_to_give_more(tmp_path: Path) -> None:
    said = "[INVALID_DRIVER_MEMORY] System memory 67108864 must be at least 471859200. Please increase heap size."
    with pytest.raises(EngineFailed, match="so little memory") as caught, translated(tmp_path / "spark.log"):
        raise IllegalArgumentException(said)
    assert caught.value.hint is not None
    assert "--memory" in caught.value.hint


def test_what_a_task_met_in_the_state_is_said_as_the_driver_would_say_it() -> None:
    said = """Job aborted due to stage failure: Traceback (most recent call last):
  File "run.py", line 1, in open
millstream.errors.StorageFailed: the storage s3://b/p/v/1.arrow at http://h:9 does not answer
  AWS Error NETWORK_CONNECTION
  hint: check the network

\tat org.apache.spark.Runner.run(Runner.scala:1)"""
    with pytest.raises(StorageFailed) as caught, translated(None):
        raise PythonException(said)
    error = caught.value
    assert error.message == "the storage s3://b/p/v/1.arrow at http://h:9 does not answer"
    assert (error.detail, error.hint) == ("AWS Error NETWORK_CONNECTION", "check the network")
    with pytest.raises(HomeDamaged, match="the state file /x is missing"), translated(None):
        raise PythonException("x\nmillstream.errors.HomeDamaged: the state file /x is missing\n  hint: repair")


def test_a_full_disk_is_named() -> None:
    with pytest.raises(DiskFull) as caught, translated(None):
        raise OSError(28, "No space left on device")
    assert caught.value.hint is not None


@pytest.mark.parametrize(
    "error",
    [
        ValueError("not of Spark"),
        FileNotFoundError(2, "No such file or directory"),
        KeyboardInterrupt(),
        LeaseLost("taken over"),
    ],
    ids=lambda e: type(e).__name__,
)
def test_other_errors_pass_through_as_they_are(tmp_path: Path, error: BaseException) -> None:
    with pytest.raises(type(error)) as caught, translated(tmp_path / "spark.log"):
        raise error
    assert caught.value is error
    assert not (tmp_path / "spark.log").exists()


def test_the_log_may_be_out_of_reach(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(EngineFailed) as caught, translated(tmp_path / "file" / "spark.log"):
        raise EOFError
    assert caught.value.detail is None


def test_the_words_can_be_had_without_spark() -> None:
    script = (
        "import sys, millstream.engine.spark.errors; "
        "print(*[n for n in ('pyspark', 'py4j', 'duckdb') if n in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": str(SRC)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []


def test_a_check_inside_an_expression_speaks_for_itself() -> None:
    raised = IllegalArgumentException(
        "Job aborted: [USER_RAISED_EXCEPTION] sequence would make more than 1,000,000 elements SQLSTATE: P0001\n\tat x"
    )
    with pytest.raises(EngineFailed) as caught, translated(None):
        raise raised
    assert caught.value.message == "sequence would make more than 1,000,000 elements"
