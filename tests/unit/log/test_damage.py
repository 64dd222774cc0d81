"""Each byte of small files flipped: found, or without any meaning. Files that go missing are found too."""

from __future__ import annotations

import pytest

from millstream.errors import HomeDamaged, HomeTooNew, MillstreamError
from millstream.log.storage.files import read_small, write_small

from .disk import Node, SimDisk
from .world import ROOT, World, run

FOLDER = str(ROOT / "t" / "p00000")


def built(*names: str) -> World:
    world = World()
    run(world, names)
    world.log.close()
    return world


def flipped(world: World, folder: str, name: str, byte: int, bit: int = 0) -> World:
    disk = world.disk.killed()
    data = bytearray(disk.names[folder][name].current)
    data[byte] ^= 1 << bit
    disk.names[folder][name] = Node(bytes(data), bytes(data))
    return World(disk, world.promise)


def file_of(disk: SimDisk, ending: str) -> str:
    (name,) = (n for n in disk.names[FOLDER] if n.endswith(ending))
    return name


def notices(world: World) -> bool:
    """Whether damage is told by a reader, or by a writer, or by both."""
    try:
        end = world.topic.end()[0]
        assert end >= len(world.promise.acked), f"{end} records are left"
        table = world.topic.read(0, 0, end)
        assert table["n"].to_pylist() == list(world.promise.acked)
        damages = world.topic.verify()
        world._opened()
    except HomeDamaged as error:
        assert FOLDER in error.message, "the error names the file"
        return True
    assert world.topic.read(0, 0, end) == table
    return bool(damages)


@pytest.mark.parametrize("bit", [0, 7])
def test_every_flipped_byte_of_a_write_ahead_file_is_noticed(bit: int) -> None:
    world = built("small", "small", "small")
    name = file_of(world.disk, ".wal")
    size = len(world.disk.names[FOLDER][name].current)
    missed = [b for b in range(size) if not notices(flipped(world, FOLDER, name, b, bit))]
    assert missed == []


def test_every_flipped_byte_of_a_segment_is_noticed() -> None:
    world = built("small", "large", "roll")
    name = file_of(world.disk, ".parquet")
    size = len(world.disk.names[FOLDER][name].current)
    missed = [b for b in range(size) if not notices(flipped(world, FOLDER, name, b, b % 8))]
    assert missed == []


def test_a_flipped_byte_of_what_was_published_never_costs_a_record() -> None:
    world = built("small", "large")
    size = len(world.disk.names[FOLDER]["durable"].current)
    for byte in range(size):
        assert not notices(flipped(world, FOLDER, "durable", byte))


def test_a_flipped_byte_of_the_last_frame_is_no_torn_tail_for_who_knows_better() -> None:
    world = built("small", "small")
    disk = world.disk.killed()
    disk.start += 1  # the machine was started since, but what was published has reached the medium
    name = file_of(disk, ".wal")
    damaged = flipped(World(disk, world.promise), FOLDER, name, len(disk.names[FOLDER][name].current) - 9)
    with pytest.raises(HomeDamaged, match=r"\.wal is damaged at byte"):
        damaged._opened()


@pytest.mark.parametrize("folder", [str(ROOT / "t"), str(ROOT / "t" / "holds"), FOLDER])
def test_every_flipped_byte_of_a_small_file_is_noticed(folder: str) -> None:
    world = built("small", "small", "roll", "small", "trim", "hold")
    (name,) = (n for n in world.disk.names[folder] if n.endswith(".json"))
    path = ROOT.parent / folder[len(str(ROOT.parent)) + 1 :] / name
    for byte in range(len(world.disk.names[folder][name].current)):
        disk = world.disk.killed()
        data = bytearray(disk.names[folder][name].current)
        data[byte] ^= 1
        disk.names[folder][name] = Node(bytes(data), bytes(data))
        with pytest.raises(HomeDamaged):
            read_small(disk, path)


@pytest.mark.parametrize(
    ("names", "ending"),
    [
        (("small", "roll", "small"), "001.wal"),
        (("small", "roll", "small"), ".parquet"),
        (("small", "small"), ".wal"),
        (("small", "roll", "small", "trim"), ".wal"),
    ],
)
@pytest.mark.parametrize("started", [False, True], ids=["the same run", "started since"])
def test_a_file_that_is_gone_is_damage(names: tuple[str, ...], ending: str, started: bool) -> None:
    world = built(*names)
    disk = world.disk.killed()
    disk.start += started
    del disk.names[FOLDER][file_of(disk, ending)]
    gone = World(disk, world.promise)
    with pytest.raises(HomeDamaged, match="p00000"):
        gone._opened()


def test_a_torn_tail_is_cut_off_and_said() -> None:
    world = built("small", "large")
    disk = world.disk.killed()
    disk.start += 1
    name = file_of(disk, ".wal")
    torn = disk.names[FOLDER][name].current + b"MSF\1" + bytes(100)
    disk.names[FOLDER][name] = Node(torn, torn)
    again = World(disk, world.promise)
    again._opened()
    assert again.topic.cut() == {0: 104}
    again.check()


def test_a_segment_of_another_topic_is_not_taken() -> None:
    one, other = built("small", "roll"), built("small", "roll")
    name = file_of(other.disk, ".parquet")
    disk = one.disk.killed()
    disk.names[FOLDER] = {n: x for n, x in disk.names[FOLDER].items() if not n.endswith(".parquet")}
    disk.names[FOLDER][name] = other.disk.names[FOLDER][name]
    with pytest.raises(HomeDamaged, match="another topic"):
        World(disk, one.promise).topic.read(0, 0, 1)


def test_a_topic_of_a_newer_version_is_refused() -> None:
    world = built("small")
    path = ROOT / "t" / "topic.json"
    write_small(world.disk, path, {**read_small(world.disk, path), "format": 2})
    with pytest.raises(HomeTooNew, match="newer version"):
        World(world.disk, world.promise)


def test_an_error_says_what_to_do() -> None:
    world = built("small")
    name = file_of(world.disk, ".wal")
    with pytest.raises(MillstreamError) as told:
        flipped(world, FOLDER, name, 20)._opened()
    assert told.value.hint
