"""Every file of a home is accounted for: each one harmed in every way ends in the right answer or in a named error, and
neither a repair nor `doctor` says that all is well where a run fails.
"""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from millstream.cli.commands.machine.doctor import OK, check_home
from millstream.errors import MillstreamError
from millstream.runtime.recovery.file_inventory import kind_of

from . import rich_homes as homes

SEED = 12
SAMPLE, FEW = 2, 1
SHARES = 48
MAY_DIFFER = {"flows/loose/stopped.json": ("loose",)}
"""A flow that may lose records does so without the note that it has ended well."""
NOT_HARMED = ("logs/", "repair/", "query.sock", "tmp/")
"""What other programs write, and what a repair has taken away: nothing reads it."""


@pytest.fixture(scope="module")
def built() -> Iterator[Path]:
    """In memory where that can be had, and where somebody without rights can come to it."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        root = Path(folder)
        root.chmod(0o755)
        homes.build(root)
        yield root


@pytest.fixture(scope="module")
def right(built: Path) -> dict[str, Any]:
    place = built / "right"
    shutil.copytree(built / "now", place, symlinks=True)
    return homes.attempt(place)


def files(built: Path) -> list[str]:
    home = built / "now" / "home"
    return sorted(str(p.relative_to(home)) for p in home.rglob("*") if p.is_file())


def cases(built: Path) -> list[tuple[str, str]]:
    now, older = built / "now" / "home", built / "older" / "home"
    return [
        (file, harm)
        for file in files(built)
        if not file.startswith(NOT_HARMED)
        for harm in homes.HARMS
        if homes.applies(harm, now / file, older / file)
    ]


def test_every_file_has_a_kind(built: Path) -> None:
    unknown = [f for f in files(built) if kind_of(f) is None]
    assert unknown == [], "add its kind to runtime/recovery/file_inventory.py"


def test_the_rich_home_has_what_it_is_for(built: Path) -> None:
    kinds = {kind_of(f)[0] for f in files(built)}  # type: ignore[index]
    missing = {
        *("format", "home lock", "store", "catalog", "copy of the catalog", "epoch record", "state run"),
        *("kinds of sources", "changes for a sink", "note of a clean stop", "version of a table"),
        *("checksums of a table", "topic", "copy of a topic", "hold", "copy of a hold", "start of a partition"),
        *("copy of a start", "durable end of a partition", "write-ahead file", "segment", "part of a checkpoint"),
        *("part of a repair", "partition lock", "lock of holds", "lock of the topics"),
    } - kinds
    assert missing == set()
    assert (built / "now/home/store.duckdb.wal").exists()


def test_a_home_that_is_whole_is_found_so(built: Path, right: dict[str, Any], tmp_path: Path) -> None:
    place = Path(shutil.copytree(built / "now", tmp_path / "place", symlinks=True))
    assert homes.checked(place / "home") == []
    assert check_home(place / "home").state == OK
    assert homes.mended(place / "home") == ("mended", []), "only what the epoch that died has left"
    assert homes.run(place) == right


def test_a_sample_of_all_harm(built: Path, right: dict[str, Any]) -> None:
    """A few cases; the seed is in the failure."""
    _all(random.Random(SEED).sample(cases(built), SAMPLE), built, right)


@pytest.mark.slow
@pytest.mark.parametrize("share", range(SHARES))
def test_all_harm(built: Path, right: dict[str, Any], share: int) -> None:
    _all(cases(built)[share::SHARES], built, right)


def test_a_sample_of_harm_to_several_files(built: Path, right: dict[str, Any]) -> None:
    _all(random.Random(SEED).sample(several(built), FEW), built, right)


@pytest.mark.slow
def test_all_harm_to_several_files(built: Path, right: dict[str, Any]) -> None:
    _all(several(built), built, right)


@pytest.mark.slow
def test_harm_to_every_block_of_the_store(built: Path, right: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = range((built / "now/home/store.duckdb").stat().st_size // homes.BLOCK)
    for block in blocks:
        monkeypatch.setitem(homes.HARMS, f"byte of block {block}", homes.flipped(block))
    _all([("store.duckdb", f"byte of block {block}") for block in blocks], built, right)


def several(built: Path) -> list[tuple[str, str]]:
    return [(name, "") for name in sorted(homes.together(built / "now/home", built / "older/home"))]


def _all(chosen: list[tuple[str, str]], built: Path, right: dict[str, Any]) -> None:
    wrong = []
    for file, harm in chosen:
        root = built / "case"
        root.mkdir()
        try:
            said = _look(built, right, root, file, harm)
        except Exception as error:  # noqa: BLE001 - what it is, is the finding
            said = f"{type(error).__name__}: {str(error)[:300]}"
        if said:
            wrong.append(f"{harm} {file}: {said}")
        shutil.rmtree(root)
    assert wrong == [], f"{len(wrong)} of {len(chosen)} cases (seed {SEED})\n" + "\n".join(wrong)


def _look(built: Path, right: dict[str, Any], root: Path, file: str, harm: str) -> str:
    """What is wrong with the outcome of one case; empty when it is right."""
    root.chmod(0o755)
    right = {k: v for k, v in right.items() if k not in MAY_DIFFER.get(file, ())}
    first, second = (_harmed(built, root / name, file, harm) for name in ("first", "second"))
    with homes.as_nobody(first, harm):
        found = homes.run(first)
        if isinstance(found, dict) and _difference(found, right):
            return f"the answer is wrong: {_difference(found, right)}"
        if isinstance(found, MillstreamError):
            said = _after(first, found)
            if said:
                return said
    with homes.as_nobody(second, harm):  # the other way round: a repair, and then a run
        checked, examined = homes.checked(second / "home"), check_home(second / "home")
        how, lost = homes.mended(second / "home")
        then = homes.run(second)
    if isinstance(found, MillstreamError) and examined.state == OK:
        return f"`doctor` says that all is well, but a run fails: {found}"
    if how != "stuck" and isinstance(then, MillstreamError):
        return f"a repair says `{how}`, but a run fails: {then}"
    if how == "stuck" and isinstance(then, dict) and harm != "unreadable":
        return f"a repair says that nothing can be done ({lost}), but a run works"
    if isinstance(then, dict) and not lost and _difference(then, right):
        return f"`{how}`, nothing lost, but the answer is wrong: {_difference(then, right)}"
    if isinstance(found, MillstreamError) and "/log/" in str(found) and not checked and "lock" not in file:
        return f"a check of the log says that all is well, but a run fails: {found}"
    return ""


def _after(place: Path, error: MillstreamError) -> str:
    """A run has failed: a repair mends it, or says that it cannot."""
    how, _ = homes.mended(place / "home")
    if how == "nothing":
        return f"a run fails, but a repair says that all is well: {error}"
    then = homes.run(place)
    if how == "mended" and isinstance(then, MillstreamError):
        return f"mended after `{error.message}`, but a run fails: {then}"
    # a run that failed halfway may have appended its records already; they are there twice then
    return ""


def _harmed(built: Path, place: Path, file: str, harm: str) -> Path:
    shutil.copytree(built / "now", place, symlinks=True)
    if harm:
        homes.HARMS[harm](place / "home" / file, built / "older" / "home" / file)
    else:
        homes.together(place / "home", built / "older" / "home")[file](place / "home")
    return place


def _difference(found: dict[str, Any], right: dict[str, Any]) -> str:
    keys = [k for k in right if found.get(k) != right[k]]
    return "; ".join(f"{k}: {str(found.get(k))[:120]} instead of {str(right[k])[:120]}" for k in keys[:2])
