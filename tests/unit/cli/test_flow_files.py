"""Flow files that are missing, broken, empty or unclear: one message with the user's line, exit code 2."""

from pathlib import Path

import pytest

from millstream.cli.flow_file import load
from millstream.errors import DefinitionError, DuplicateName, UnknownName

from .conftest import Cli

GOOD = """
import millstream as ms
flow = ms.Flow("{name}")
flow.source("bids", ms.memory(), schema="price BIGINT").aggregate(n=ms.count()).view("{name}_total")
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "flow.py"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("text", "said", "line"),
    [
        ("x = 1\nraise ValueError('the moon is full')\n", "ValueError: the moon is full", 2),
        ("def f():\n    return 1 / 0\n\n\nf()\n", "ZeroDivisionError: division by zero", 2),
        ("import json\n\njson.loads('{')\n", "JSONDecodeError", 3),
        ("x = 1\nflow = (\n", "cannot be read as Python", 2),
        ("import no_such_module_at_all\n", "no_such_module_at_all", 1),
        ("import sys\nsys.exit('enough')\n", "SystemExit: enough", 2),
        ("import millstream as ms\n\nms.files('x', format='xml')\n", "unknown format 'xml'", 3),
        ("import millstream as ms\nf = ms.Flow('f')\nf.source('s', ms.memory())\n", "needs a schema", 3),
    ],
)
def test_a_flow_file_that_raises_is_told_with_its_own_line(
    millstream: Cli, tmp_path: Path, text: str, said: str, line: int
) -> None:
    written(tmp_path, text)
    done = millstream("run", "flow.py")
    assert done.exit_code == 2, done.output
    assert said in done.stderr
    assert f"at flow.py:{line}" in done.stderr
    assert "Traceback" not in done.output
    assert "runpy" not in done.output
    assert not (tmp_path / "millstream-home").exists()


def test_a_flow_file_that_is_not_there_is_said(millstream: Cli, tmp_path: Path) -> None:
    written(tmp_path, "")
    done = millstream("run", "flwo.py")
    assert done.exit_code == 2
    assert "there is no flow file flwo.py" in done.stderr
    assert "flow.py" in done.stderr


def test_a_file_without_a_flow_says_how_to_make_one(millstream: Cli, tmp_path: Path) -> None:
    written(tmp_path, "x = 1\n")
    done = millstream("explain", "flow.py")
    assert done.exit_code == 2
    assert 'flow = ms.Flow("name")' in done.stderr


def test_a_flow_without_a_view_says_so(millstream: Cli, tmp_path: Path) -> None:
    written(tmp_path, "import millstream as ms\nflow = ms.Flow('empty')\n")
    done = millstream("explain", "flow.py")
    assert done.exit_code == 2
    assert "has no view" in done.stderr


def test_all_flows_of_a_file_are_found_once(tmp_path: Path) -> None:
    path = written(tmp_path, GOOD.format(name="one") + "again = flow\n" + GOOD.format(name="two"))
    assert sorted(f.name for f in load(path).flows) == ["one", "two"]
    assert [f.name for f in load(path, "two").flows] == ["two"]
    with pytest.raises(UnknownName, match="three"):
        load(path, "three")


def test_two_flows_of_one_name_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path, GOOD.format(name="one") + "again = flow\n" + GOOD.format(name="one"))
    with pytest.raises(DuplicateName):
        load(path)


def test_the_main_part_of_a_file_does_not_run(tmp_path: Path) -> None:
    path = written(tmp_path, GOOD.format(name="one") + "if __name__ == '__main__':\n    raise SystemExit\n")
    assert len(load(path).flows) == 1


def test_a_module_beside_the_file_can_be_imported(tmp_path: Path) -> None:
    (tmp_path / "beside_the_flow.py").write_text("NAME = 'named_elsewhere'\n", encoding="utf-8")
    path = written(tmp_path, "from beside_the_flow import NAME\n" + GOOD.replace('"{name}"', "NAME").format(name="a"))
    assert load(path).flows[0].name == "named_elsewhere"


def test_tables_must_be_a_dict(tmp_path: Path) -> None:
    path = written(tmp_path, GOOD.format(name="one") + "TABLES = [1]\n")
    with pytest.raises(DefinitionError, match="TABLES"):
        load(path)


def test_explain_as_json_names_the_views(millstream: Cli, tmp_path: Path) -> None:
    written(tmp_path, GOOD.format(name="one"))
    done = millstream("explain", "flow.py", "--format", "json")
    assert done.exit_code == 0
    assert '"name": "one_total"' in done.stdout


@pytest.mark.parametrize("name", ["hot_auctions", "word_count", "enrich"])
def test_the_examples_can_be_explained(millstream: Cli, name: str) -> None:
    path = Path(__file__).parents[3] / "examples" / f"{name}.py"
    done = millstream("explain", path)
    assert done.exit_code == 0, done.output
    assert "exactly once" in done.stdout
