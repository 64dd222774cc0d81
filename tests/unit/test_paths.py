"""Names in paths, and deletions that stay inside the home and follow no link."""

from __future__ import annotations

from pathlib import Path

import pytest

from millstream import paths
from millstream.errors import DefinitionError, HomeDamaged
from millstream.home import Home
from millstream.log.storage.disk import RealDisk
from millstream.runtime.recovery import checkpoint
from millstream.state.durable import write_durably

HOSTILE = [
    "", ".", "..", "../x", "../../x", "/", "/tmp/x", "a/b", "a\\b", "a\0b", "a\nb", "\x1b[2J", " x", "x ", ".hidden",
    "x" * 300, "é" * 150,
]  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_cannot_leave_its_folder(tmp_path: Path, name: str) -> None:
    for place in (paths.flow_folder, paths.table_folder, paths.topic_folder):
        with pytest.raises(DefinitionError, match="cannot be the name of a"):
            place(tmp_path, name)


@pytest.mark.parametrize("name", ["bids", "_x9", "Bids", "x y", "über", "a.b", "x" * 63])
def test_a_plain_name_stands_for_itself(tmp_path: Path, name: str) -> None:
    assert paths.flow_folder(tmp_path, name) == tmp_path / "flows" / name


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home, and beside it what must stay as it is."""
    (tmp_path / "home" / "flows").mkdir(parents=True)
    (tmp_path / "home" / paths.MARKER).write_text("{}")
    (tmp_path / "canary").mkdir()
    (tmp_path / "canary" / "file").write_text("as it was")
    return tmp_path / "home"


def test_a_folder_outside_is_not_deleted(home: Path) -> None:
    for path in (home, home.parent, home / "flows" / ".." / ".." / "canary", Path("/")):
        with pytest.raises(HomeDamaged, match="is not inside"):
            paths.delete_tree(path, within=home)
    assert (home.parent / "canary" / "file").read_text() == "as it was"


def test_a_folder_that_is_not_there_is_deleted_already(home: Path) -> None:
    paths.delete_tree(home / "flows" / "none", within=home)
    paths.delete_tree(home / "none" / "none", within=home)
    paths.delete_file(home / "none" / "none", missing_ok=True)
    with pytest.raises(FileNotFoundError):
        paths.delete_file(home / "none")


def test_nothing_is_done_through_a_link(home: Path) -> None:
    canary = home.parent / "canary"
    (home / "flows" / "linked").symlink_to(canary)
    (home / "flows" / "file").symlink_to(canary / "file")
    (home / "own").write_text("x")
    disk = RealDisk()
    for does in (
        lambda: paths.delete_tree(home / "flows" / "linked", within=home),
        lambda: paths.delete_file(home / "flows" / "linked" / "file"),
        lambda: paths.delete_file(home / "flows" / "file"),
        lambda: paths.delete_folder(home / "flows" / "linked"),
        lambda: paths.rename(home / "own", home / "flows" / "linked" / "file"),
        lambda: paths.rename(home / "flows" / "linked" / "file", home / "own"),
        lambda: paths.truncate(home / "flows" / "file", 0),
        lambda: paths.truncate(home / "flows" / "linked" / "file", 0),
        lambda: write_durably(home / "flows" / "linked" / "file", b"other"),
        lambda: disk.unlink(home / "flows" / "linked" / "file"),
        lambda: disk.rename(home / "own", home / "flows" / "linked" / "file"),
        lambda: disk.truncate(home / "flows" / "linked" / "file", 0),
        lambda: disk.create(home / "flows" / "file"),
    ):
        with pytest.raises(HomeDamaged, match="is a symbolic link"):
            does()
    assert [p.name for p in canary.iterdir()] == ["file"]
    assert (canary / "file").read_text() == "as it was"
    assert (home / "own").read_text() == "x"


def test_links_inside_a_tree_go_and_what_they_lead_to_stays(home: Path) -> None:
    tree = home / "flows" / "mine"
    (tree / "inner").mkdir(parents=True)
    (tree / "inner" / "link").symlink_to(home.parent / "canary")
    paths.delete_tree(tree, within=home)
    assert not tree.exists()
    assert (home.parent / "canary" / "file").read_text() == "as it was"


def test_a_home_may_be_named_through_a_link(home: Path) -> None:
    (home.parent / "alias").symlink_to(home)
    (home / "flows" / "mine").mkdir()
    paths.delete_tree(home.parent / "alias" / "flows" / "mine", within=home.parent / "alias")
    assert not (home / "flows" / "mine").exists()


def test_a_link_itself_can_be_deleted_where_one_is_expected(home: Path) -> None:
    (home / "query.sock").symlink_to(home.parent / "canary")
    paths.delete_file(home / "query.sock", link_ok=True)
    assert (home.parent / "canary" / "file").exists()


def test_only_checkpoints_of_the_home_are_dropped(tmp_path: Path) -> None:
    with Home(tmp_path / "home") as home:
        _ = home.store
        elsewhere = home.checkpoint("kept", tmp_path / "backup")
        home.checkpoint("mine")
        for name in (str(elsewhere), "../../backup/kept", "../checkpoints/mine", "/"):
            with pytest.raises(DefinitionError):
                checkpoint.drop(home.path, name, home.log)
        assert (elsewhere / "manifest.json").exists()
        checkpoint.drop(home.path, "mine", home.log)
        assert checkpoint.listed(home.path) == []


def test_a_link_itself_can_be_renamed_where_one_is_expected(home: Path) -> None:
    (home / "to").write_text("as it was")
    (home / "link").symlink_to(home / "to")
    with pytest.raises(HomeDamaged, match="symbolic link"):
        paths.rename(home / "link", home / "away")
    paths.rename(home / "link", home / "away", link_ok=True)
    assert (home / "away").is_symlink()
    assert (home / "to").read_text() == "as it was"


def test_an_error_of_the_system_names_the_whole_path(home: Path) -> None:
    folder = home / "flows" / "a"
    folder.mkdir(parents=True)
    file = home / "file"
    file.touch()
    for path, call in (
        (folder, lambda: paths.delete_file(folder)),
        (folder, lambda: paths.rename(file, folder)),
        (home / "gone", lambda: paths.rename(home / "gone", file)),
        (home / "none", lambda: paths.open_file(home / "none" / "file", 0)),
        (file, lambda: paths.truncate(file / "below", 0)),
    ):
        with pytest.raises(OSError) as caught:
            call()
        assert caught.value.filename == str(path)
