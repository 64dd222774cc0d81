"""Lists of runs as columns: whatever is done to them, they are the list of runs that plain objects would be."""

from __future__ import annotations

import pickle
from dataclasses import replace
from itertools import pairwise
from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st

from millstream.state import run_list
from millstream.state.run import Batch, StateRun
from millstream.state.run_block import ManifestFile, RunBlock
from millstream.state.run_list import RunList
from millstream.state.version import Version

HASHES = st.one_of(st.none(), st.tuples(st.integers(-5, 5), st.integers(0, 4)).map(lambda h: (h[0], h[0] + h[1])))
BATCHES = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=3)
DUE = st.one_of(st.none(), st.sampled_from([(), (("$x", 1, 2),), (("$pd", -7, 7), ("$till", 3, 4))]))
RUN = st.tuples(BATCHES, HASHES, DUE)
CHANGE = st.one_of(
    st.tuples(st.just("add"), st.lists(RUN, max_size=4)),
    st.tuples(st.just("expire"), st.integers(0, 9)),
    st.tuples(st.just("merge"), st.tuples(st.integers(0, 6), st.integers(1, 5), st.integers(0, 2))),
    st.tuples(st.just("save"), st.none()),
)


def run_of(name: str, given: Any) -> StateRun:
    batches, hashes, due = given
    return StateRun(name, len(name), 100, tuple(Batch(n, last, last) for n, last in batches), hashes, due)


def expired(run: StateRun, watermark: int) -> StateRun | None:
    batches = tuple(replace(b, dropped=b.dropped or b.last <= watermark) for b in run.batches)
    return None if all(b.dropped for b in batches) else replace(run, batches=batches)


@given(st.lists(CHANGE, max_size=12))
def test_a_list_of_blocks_is_the_list_of_its_runs(changes: list[Any]) -> None:
    limit, run_list.MOST_BLOCKS = run_list.MOST_BLOCKS, 3
    try:
        held, plain = RunList(), list[StateRun]()
        for number, (what, how) in enumerate(changes):
            if what == "add":
                added = [run_of(f"v/{number}-{i}", given) for i, given in enumerate(how)]
                held, plain = held.plus(added), plain + added
            elif what == "expire":
                held = held.expire(how)
                plain = [left for r in plain if (left := expired(r, how)) is not None]
            elif what == "merge":
                first, count, new = how
                old = plain[first : first + count]
                merged = [run_of(f"v/{number}-c{i}", ([(1, 9)], None, ())) for i in range(new)]
                held = held.replaced([r.file for r in old], merged)
                plain = plain[:first] + (merged if old else []) + plain[first + count :]
            else:
                held = RunList(replace(b, manifest=ManifestFile(f"v/{number}", 1, 2)) for b in held.blocks)
            _same(held, plain)
    finally:
        run_list.MOST_BLOCKS = limit


def _same(held: RunList, plain: list[StateRun]) -> None:
    assert list(held) == plain and held == plain and len(held) == len(plain)
    assert [held[i] for i in range(-len(plain), len(plain))] == plain + plain
    assert list(held.files) == [r.file for r in plain]
    assert held.rows == sum(r.rows for r in plain) and held.size == sum(r.bytes for r in plain)
    assert held.first == min((b.first for r in plain for b in r.batches if not b.dropped), default=held.first)
    for hashes in ((-9, 9), (0, 0), (3, 7)):
        assert held.meeting(hashes) == [r for r in plain if r.meets(hashes)]
    for at in range(len(plain) + 1):
        assert held.since(at) == plain[at:]
    assert pickle.loads(pickle.dumps(Version({"v": held}))).of("v") == plain
    assert all(RunBlock.from_columns([orjson.loads(b.encoded())]).runs == b.runs for b in held.blocks)
    starts = [start for start, _ in held.layers]
    assert starts == sorted(set(starts)) and sum(rows for _, rows in held.layers) == held.rows
    for start, end in pairwise([*starts, len(plain)]):
        layer = plain[start:end]
        assert not any(a.meets(b.hashes or (-9, 9)) for i, a in enumerate(layer) for b in layer[i + 1 :])


@given(st.lists(st.lists(RUN, min_size=1, max_size=3), min_size=1, max_size=4), st.integers(0, 9), st.integers(0, 3))
def test_the_files_that_a_version_no_longer_needs(added: list[list[Any]], watermark: int, merged: int) -> None:
    version = Version()
    for number, runs in enumerate(added):
        version = version.advance("v", [run_of(f"v/{number}-{i}", r) for i, r in enumerate(runs)], 0)
        version = version.advance("w", [run_of(f"w/{number}", runs[0])], 0)
    later = version.advance("v", [run_of("v/new", ([(1, 99)], None, None))], watermark)
    later = later.replaced("v", later.of("v")[:merged], [run_of("v/merged", ([(1, 99)], None, None))])
    assert version.dropped_in(later) == version.files - later.files
    assert later.dropped_in(version) == later.files - version.files
    assert version.dropped_in(version) == set()
