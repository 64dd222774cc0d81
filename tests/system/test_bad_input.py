"""What a person gets wrong, through the real command: one message, a hint, an exit code, no traceback."""

from pathlib import Path

import pytest

from .conftest import Processes

FOLDER = """
import millstream as ms
flow = ms.Flow("f")
bids = flow.source("bids", ms.files("no/such/folder", format="json"), schema="price BIGINT")
bids.aggregate(n=ms.count()).view("total")
"""
MEMORY = FOLDER.replace('ms.files("no/such/folder", format="json")', "ms.memory()")


def one_message(said: str) -> bool:
    return said.count("error: ") == 1 and "hint: " in said and "Traceback" not in said


def test_a_missing_folder_is_told_before_spark_starts(millstream: Processes, tmp_path: Path) -> None:
    (tmp_path / "flow.py").write_text(FOLDER, encoding="utf-8")
    done = millstream.run("run", "flow.py", "--until-caught-up")
    assert done.returncode == 3, done.stderr
    assert "there is no folder or file no/such/folder" in done.stderr
    assert one_message(done.stderr)


def test_without_java_the_message_says_how_to_get_one(millstream: Processes, tmp_path: Path) -> None:
    (tmp_path / "flow.py").write_text(MEMORY, encoding="utf-8")
    done = millstream.run("run", "flow.py", PATH="/nowhere", JAVA_HOME="")
    assert done.returncode == 5, done.stderr
    assert "Millstream needs Java 17 or later" in done.stderr
    assert one_message(done.stderr)


@pytest.mark.spark
@pytest.mark.slow
def test_too_little_memory_is_told_with_the_option_that_gives_more(millstream: Processes, tmp_path: Path) -> None:
    (tmp_path / "flow.py").write_text(MEMORY, encoding="utf-8")
    done = millstream.run("run", "flow.py", "--until-caught-up", "--memory", "100m")
    assert done.returncode == 5, done.stderr
    assert "Spark cannot start with so little memory" in done.stderr
    assert "millstream run --memory 4g" in done.stderr
    assert one_message(done.stderr)


@pytest.mark.spark
@pytest.mark.slow
def test_a_view_that_fails_at_its_start_ends_the_command_with_its_own_code(
    millstream: Processes, tmp_path: Path
) -> None:
    """Also while the first job of the session is still being performed."""
    script = (
        "CREATE TABLE t (a INT); CREATE VIEW v WITH (tables = 'live') AS SELECT a, NULL AS b FROM t; SELECT * FROM v;"
    )
    (tmp_path / "views.sql").write_text(script, encoding="utf-8")
    done = millstream.run("sql", "--home", str(tmp_path / "home"), "-f", str(tmp_path / "views.sql"))
    assert done.returncode == 6, done.stderr
    assert "the column `b` of `v` is NULL in all rows and has no type" in done.stderr
    assert "Fatal Python error" not in done.stderr


def test_without_java_the_demo_says_so_and_leaves_nothing_behind(millstream: Processes, tmp_path: Path) -> None:
    done = millstream.run("demo", "--for", "1s", JAVA_HOME="/nowhere", TMPDIR=str(tmp_path))
    assert done.returncode == 5, done.stderr
    assert "JAVA_HOME is /nowhere" in done.stderr
    assert one_message(done.stderr)
    assert not list(tmp_path.glob("millstream-demo-*"))


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("query", "SELECT 1"), 4, "there is no Millstream home"),
        (("run", "no_such_file.py"), 2, "there is no flow file"),
        (("views", "--format", "xml"), 2, "invalid value for '--format'"),
    ],
)
def test_small_mistakes(millstream: Processes, arguments: tuple[str, ...], code: int, said: str) -> None:
    done = millstream.run(*arguments)
    assert done.returncode == code
    assert said in done.stderr
    assert one_message(done.stderr)
