"""The search for poison records, over the real loop, store and state: an engine that cannot stand some records."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import millstream as ms
from millstream.connect.memory import MemorySource
from millstream.connect.port import SourcePort, SourceSlice
from millstream.engine.driver.epoch_io import EpochInput, EpochOutput
from millstream.errors import DiskFull, EngineLost, MillstreamError, UserCodeFailed
from millstream.home import Home
from millstream.kernels.intake import Tally
from millstream.model.dead_letters import ERRORS
from millstream.plan.plan import Plan
from millstream.plan.planner import plan
from millstream.runtime.supervision import poison_search
from millstream.runtime.supervision.run import Run
from millstream.runtime.supervision.supervisor import Restarts
from millstream.state.flow_state import FlowState
from millstream.state.version import Version
from tests.local import LocalEngine

Refuses = Callable[[list[int]], Exception | None]
"""What is wrong with a set of numbers, if anything is."""


class Part(MemorySource):
    """Some of the rows of a memory source."""

    def __init__(self, whole: MemorySource, epoch_input: EpochInput, name: str) -> None:
        super().__init__(whole._memory, whole._schema)
        self._input, self._name = epoch_input, name

    def table(self, part: SourceSlice) -> pa.Table:
        rows = super().table(part)
        places = list(zip(rows["$part"].to_pylist(), rows["$pos"].to_pylist(), strict=True))
        out = {(p, q) for p, q, _ in self._input.without.get(self._name, ())}
        only = None if self._input.only is None else self._input.only.get(self._name, ())
        kept = [
            place not in out and (only is None or any(p == place[0] and a <= place[1] <= b for p, a, b in only))
            for place in places
        ]
        return rows.filter(pa.array(kept, pa.bool_()))


class Picky(LocalEngine):
    """The local engine, with user code that refuses some numbers, alone or together."""

    def __init__(self, planned: Plan, ports: Mapping[str, SourcePort], state: FlowState, refuses: Refuses) -> None:
        super().__init__(planned, ports, state)
        self.whole, self.refuses, self.tries = ports, refuses, 0

    def run(self, version: Version, epoch_input: EpochInput) -> EpochOutput:
        self.tries += 1
        self.ports = {n: Part(p, epoch_input, n) for n, p in self.whole.items()}  # type: ignore[arg-type]
        tables = {n: p.table(epoch_input.slices[n]) for n, p in self.ports.items()}
        error = self.refuses([n for t in tables.values() for n in t["n"].to_pylist()])
        if error is not None:
            raise error
        output = super().run(version, epoch_input)
        for name, out in epoch_input.without.items():
            output.tallies[name].add(Tally(len(out), len(out)))
            rows = [
                {"epoch": epoch_input.number, "reason": r, "offset": q, "seen_at": epoch_input.now} for _, q, r in out
            ]
            output.errors[name] = pa.Table.from_pylist(rows, schema=ERRORS)
        return output

    def places(self, epoch_input: EpochInput) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        found = {}
        for name, port in self.whole.items():
            table = Part(port, epoch_input, name).table(epoch_input.slices[name])  # type: ignore[arg-type]
            table = table.filter(pc.equal(table["$bad"], 0)).sort_by([("$part", "ascending"), ("$pos", "ascending")])
            found[name] = table["$part"].to_numpy(), table["$pos"].to_numpy()
        return found


class World:
    """A flow over two sources in a home, and what its user code refuses."""

    def __init__(self, path: Path, refuses: Refuses, rows: int = 40) -> None:
        self.path = path
        flow = ms.Flow("f")
        self.memories = [ms.memory(partitions=2), ms.memory()]
        streams = [
            flow.source(f"s{i}", m, schema="n BIGINT, ts TIMESTAMP", event_time="ts")
            for i, m in enumerate(self.memories)
        ]
        for i, stream in enumerate(streams):
            stream.aggregate(n=ms.count(), s=ms.sum("n")).view(f"v{i}")
        for n in range(rows):
            if n % 3:
                self.memories[0].send({"n": n, "ts": 1767225600}, partition=n % 2)
            else:
                self.memories[1].send({"n": n, "ts": 1767225600})
        self.plan = plan(flow)
        self.engines: list[Picky] = []
        self.refuses = refuses

    def loop(self, home: Home) -> Any:
        def engine(planned: Plan, ports: Mapping[str, SourcePort], state: FlowState) -> Picky:
            self.engines.append(Picky(planned, ports, state, self.refuses))
            return self.engines[-1]

        return home.loop(self.plan, engine=engine)

    def run(self, home: Home, **options: Any) -> Run:
        given = {"restarts": Restarts(first="0 seconds"), **options}
        return Run("f", lambda: self.loop(home), **given)


def refusing(*bad: int, all_of: int = 1) -> Refuses:
    def refuses(numbers: list[int]) -> Exception | None:
        hit = sorted(set(bad) & set(numbers))
        return UserCodeFailed(f"cannot stand {hit[0]}") if len(hit) >= all_of else None

    return refuses


def sums(home: Home) -> tuple[int, int]:
    rows = [home.query(f"SELECT n, s FROM v{i}").to_dicts() for i in range(2)]
    return sum(r[0]["n"] for r in rows if r), sum(r[0]["s"] for r in rows if r)


@pytest.mark.parametrize("bad", [(17,), (0,), (39,), (4, 5), (1, 9, 18, 33, 38), (2, 10)])
def test_the_records_that_fail_alone_are_set_apart_and_the_flow_goes_on(tmp_path: Path, bad: tuple[int, ...]) -> None:
    world = World(tmp_path, refusing(*bad))
    with Home(tmp_path) as home:
        run = world.run(home).catch_up(timeout=60)
        run.stop()
        good = [n for n in range(40) if n not in bad]
        assert sums(home) == (len(good), sum(good))
        told = [home.query(f"SELECT reason FROM s{i}$errors").to_dicts() for i in range(2)]
        reasons = sorted(r["reason"] for rows in told for r in rows)
        assert reasons == sorted(f"poisonous: cannot stand {n}" for n in bad)
        progress = home.store.last("f").progress  # type: ignore[union-attr]
        assert sum(progress["rows"].values()) == 40
        assert sum(progress["errors"].values()) == len(bad)
        assert sum(progress["applied"].values()) == 40 - len(bad)


def test_finding_one_record_takes_few_tries(tmp_path: Path) -> None:
    world = World(tmp_path, refusing(700), rows=1000)
    with Home(tmp_path) as home:
        world.run(home).catch_up(timeout=60).stop()
        (searching,) = [e for e in world.engines if e.tries > 5]
        assert searching.tries <= 2 * 10 + poison_search.PROBES + 3


def test_what_was_found_is_in_the_record_before_the_epoch_is_performed(tmp_path: Path) -> None:
    world = World(tmp_path, refusing(17))
    with Home(tmp_path) as home:
        loop = world.loop(home)
        with pytest.raises(UserCodeFailed):
            loop.step()
        poison_search.search(loop, UserCodeFailed("cannot stand 17"))
        record = loop.book.read(1)
        assert record.state == "open" and loop.number == 0
        assert record.poison == {"s0": [(1, 5, "poisonous: cannot stand 17")]}
        loop.close()
        assert home.store.last("f") is None
        again = world.loop(home)  # as another process would, after a crash: no search, the same rows left out
        again.step()
        again.close()
        assert sums(home) == (39, sum(range(40)) - 17)


def test_a_search_leaves_no_state_files_behind(tmp_path: Path) -> None:
    world = World(tmp_path, refusing(17))
    with Home(tmp_path) as home:
        world.run(home).catch_up(timeout=60).stop()
        version = Version.from_json(home.store.last("f").version)  # type: ignore[union-attr]
        found = {str(p.relative_to(tmp_path / "flows/f/state")) for p in (tmp_path / "flows/f/state").glob("*/*")}
        assert found == set(version.files)


def failing(world: World, path: Path) -> tuple[Run, MillstreamError]:
    with Home(path) as home:
        run = world.run(home)
        with pytest.raises(MillstreamError) as caught:
            run.wait(timeout=60)
        run.stop()
        assert home.store.last("f") is None
        return run, caught.value


def test_records_that_fail_only_together_are_not_blamed(tmp_path: Path) -> None:
    run, error = failing(World(tmp_path, refusing(3, 36, all_of=2)), tmp_path)
    assert run.state == "failed" and isinstance(error, UserCodeFailed)
    assert "no single record of epoch 1 is at fault" in str(error)
    assert "neither half of them alone" in str(error)


def test_an_epoch_that_fails_without_records_is_not_searched_further(tmp_path: Path) -> None:
    _, error = failing(World(tmp_path, lambda _: UserCodeFailed("always")), tmp_path)
    assert "fails even without any record" in str(error)


def test_when_every_record_fails_it_is_the_code(tmp_path: Path) -> None:
    world = World(tmp_path, lambda numbers: UserCodeFailed("no numbers, please") if numbers else None)
    _, error = failing(world, tmp_path)
    assert "it is the code, not the data of epoch 1" in str(error)
    assert error.message == "no numbers, please"
    assert sum(e.tries for e in world.engines) <= 3 + poison_search.PROBES + 2


def test_more_poison_than_the_bound_is_the_code_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(poison_search, "MOST", 5)
    _, error = failing(World(tmp_path, refusing(*range(1, 30, 4))), tmp_path)
    assert "more than 5 of its records fail alone" in str(error)


@pytest.mark.parametrize("transient", [EngineLost("Java is gone"), DiskFull("no space")])
def test_a_search_that_is_disturbed_is_begun_again(tmp_path: Path, transient: MillstreamError) -> None:
    disturbances = [transient]
    calls = 0

    def refuses(numbers: list[int]) -> Exception | None:
        nonlocal calls
        calls += 1
        if calls > 6 and disturbances:
            return disturbances.pop()
        return refusing(17)(numbers)

    world = World(tmp_path, refuses)
    with Home(tmp_path) as home:
        world.run(home).catch_up(timeout=60).stop()
        assert sums(home) == (39, sum(range(40)) - 17)
    assert not disturbances
