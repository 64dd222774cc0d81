"""The task of one level and one shard: runs its operators over the state of the shard, and sends their results."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import orjson
import polars as pl

from millstream.engine.driver.driver import states_of, write_outcome
from millstream.engine.exchange.graph import PAIRS, GraphNode
from millstream.engine.exchange.hot_keys import split_side
from millstream.engine.exchange.pairs import FindPairs, PairsFound
from millstream.engine.exchange.parcels import (
    ANSWERS,
    DROPPED,
    FAILURES,
    NEWEST,
    PANES,
    ROWS,
    RUNS,
    SIDE,
    Batches,
    Parcel,
    Sender,
    parcels_of,
)
from millstream.engine.exchange.routes import COMBINED_SIDE, Routes, in_order
from millstream.engine.tasks.split_state import SplitState, kept
from millstream.engine.tasks.task_services import LookupTasks, TaskServices
from millstream.kernels.intake import gather
from millstream.kernels.kernel import COMBINED, NO_SERVICES, Services, advance
from millstream.kernels.outcome import OperatorClock, Outcome, State
from millstream.model.reserved import OP
from millstream.plan.operators.operator import Operator
from millstream.state.run import StateRun
from millstream.state.run_block import RunBlock
from millstream.state.shard import RunCache, StateReader, shard_of, shard_range
from millstream.state.storage import Storage
from millstream.state.version import Version


@dataclass
class TaskReport:
    """What the driver must know of a task: by operator, the rows that it received, and the runs that they wrote."""

    rows: dict[int, int] = field(default_factory=dict)
    runs: list[StateRun] = field(default_factory=list)
    views: list[int] = field(default_factory=list)
    """The operator of each run."""

    def encoded(self) -> bytes:
        """What `results.py` reads."""
        columns = RunBlock.of(self.runs).to_columns() if self.runs else None
        done = {"rows": self.rows, "views": self.views, "runs": columns}
        return orjson.dumps(done, option=orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY)


@dataclass(frozen=True)
class LevelTask:
    """What the tasks of one level need."""

    level: int
    routes: Routes
    state: Storage
    epoch: int
    attempt: int
    version: Version
    clocks: Mapping[int, OperatorClock]
    lookups: LookupTasks | None = None
    services: Services = NO_SERVICES

    @property
    def nodes(self) -> list[GraphNode]:
        """The operators of the level."""
        return self.routes.graph.at(self.level)

    def run(self, batches: Batches, shard: int, attempt: int) -> Batches:
        """Run the operators of one shard. Parcels for later levels and for the driver pass through."""
        mine: dict[tuple[int, int], list[Parcel]] = {}
        newest: dict[str, int] = {}
        pairing = self.routes.graph.pairing(self.level)
        here, next_level = {n.number for n in self.nodes}, {n.number for n in pairing}
        for parcel in parcels_of(batches):
            if parcel.kind in (ROWS, SIDE) and parcel.view in here | next_level:
                mine.setdefault((parcel.view, parcel.side), []).append(parcel)
                if parcel.view in here:
                    continue
            if parcel.kind == NEWEST:
                for source, time in orjson.loads(parcel.payload).items():
                    newest[source] = max(time, newest.get(source, time))
            yield parcel.batch
        sender = Sender((self.level << 20) + shard, shard)
        cache = _cache(self.state)
        cache.begin(self.epoch)
        done = TaskReport()
        for node in self.nodes:
            if node.number not in self.routes.whole or shard == 0:
                yield from self._operator(node, mine, newest, cache, shard, attempt, sender, done)
        for node in pairing:
            yield from self._find_pairs(node, mine, newest, cache, shard, sender)
        yield sender.data(RUNS, -1, done.encoded())
        yield from sender.keys()

    def _operator(
        self,
        node: GraphNode,
        mine: Mapping[tuple[int, int], list[Parcel]],
        newest: Mapping[str, int],
        cache: RunCache,
        shard: int,
        attempt: int,
        sender: Sender,
        done: TaskReport,
    ) -> Batches:
        """Run one operator and send what it gives. The runs that it wrote, and how many rows it received, are added to
        `done`.
        """
        operator, whole = node.operator, node.number in self.routes.whole
        inputs, begins = self._inputs(node, mine), False
        done.rows[node.number] = sum(len(rows) for rows in inputs.values() if rows is not None)
        if all(rows is None for rows in inputs.values()):
            if not operator.stateful:
                return
            begins = whole  # it is never empty, and gives its first row
        pairs = None if node.pairs is None else _frames(mine.get((node.number, PAIRS), ()))
        services = TaskServices(self.services, self.lookups, shard, attempt, pairs)
        states, clock = self._states(node, cache, shard), self._clock(node, newest, shard)
        outcome = advance(operator, inputs, states, replace(clock, begins=begins), services)
        if services.files:
            yield sender.data(ANSWERS, node.number, orjson.dumps(services.files))
        name = self._name(shard, attempt)
        keys, sides = split_side(self.routes.hot, operator)
        if len(keys) and not whole:
            written = self._write_split(cache, operator, outcome, keys, sides, shard, attempt)
        else:
            written = write_outcome(cache, operator, outcome, name)
        done.runs += written
        done.views += [node.number] * len(written)
        yield from self._reported(node, outcome, sender)
        if outcome.changes is not None and len(outcome.changes):
            file = f"{name}-{node.number}.arrow"
            yield from self.routes.deliver(node, outcome.changes, sender, file)

    def _find_pairs(
        self,
        node: GraphNode,
        mine: Mapping[tuple[int, int], list[Parcel]],
        newest: Mapping[str, int],
        cache: RunCache,
        shard: int,
        sender: Sender,
    ) -> Batches:
        """Send the pairs of an operator of the next level to Spark."""
        inputs = self._inputs(node, mine)
        if all(rows is None for rows in inputs.values()):
            return
        assert node.pairs is not None
        try:
            advance(
                node.operator, inputs, self._states(node, cache, shard), self._clock(node, newest, shard), FindPairs()
            )
        except PairsFound as found:
            yield from sender.records(node.pairs, found.pairs)

    def _states(self, node: GraphNode, cache: RunCache, shard: int) -> Mapping[str, State]:
        """The states of an operator in one shard."""
        hashes = self._hashes(node, shard)
        keys, sides = split_side(self.routes.hot, node.operator)
        states = states_of(cache, node.operator, self.version, hashes)
        if len(keys) and hashes is not None:
            return self._split_states(cache, node.operator, states, keys, sides, shard)
        return states

    def _hashes(self, node: GraphNode, shard: int) -> tuple[int, int] | None:
        """The first and last key hash of an operator in one shard; None if it runs in one shard."""
        return None if node.number in self.routes.whole else shard_range(shard, self.routes.shards)

    def _clock(self, node: GraphNode, newest: Mapping[str, int], shard: int) -> OperatorClock:
        """The clock of an operator in one shard."""
        hashes = self._hashes(node, shard)
        clock = replace(self.clocks[node.number], shard=shard, shards=self.routes.shards, hashes=hashes)
        if node.operator.ttl is None:
            return clock
        return replace(
            clock, newest=max((newest[s] for s in node.operator.sources if s in newest), default=clock.newest)
        )

    def _name(self, shard: int, attempt: int) -> str:
        return f"{self.epoch:012d}-{self.attempt}-{shard}-{attempt}"

    def _split_states(
        self,
        cache: RunCache,
        operator: Operator,
        states: Mapping[str, State],
        keys: np.ndarray,
        sides: np.ndarray,
        shard: int,
    ) -> dict[str, State]:
        """The states of the sides of an operator with hot keys."""
        found: dict[str, State] = {}
        for side, spec in enumerate(operator.states):
            own = states[spec.name]
            assert isinstance(own, StateReader)
            step, unique = operator.state_step(spec), list(spec.unique)
            hot = {k: StateReader(cache, self.version.of(step, (k, k)), unique) for k in keys.tolist()}
            found[spec.name] = SplitState(own, hot, keys[sides == side], shard, self.routes.shards)
        return found

    def _write_split(
        self,
        cache: RunCache,
        operator: Operator,
        outcome: Outcome,
        keys: np.ndarray,
        sides: np.ndarray,
        shard: int,
        attempt: int,
    ) -> list[StateRun]:
        """Write the rows that an operator with hot keys keeps: rows of hot keys of other shards in files of their
        own.
        """
        runs = []
        for side, spec in enumerate(operator.states):
            own = shard_range(shard, self.routes.shards)
            for rows, expiry in kept(outcome, spec.name, keys[sides != side], own):
                is_own = shard_of(rows["$h"].to_numpy()[:1], self.routes.shards)[0] == shard
                name = self._name(shard if is_own else shard + self.routes.shards, attempt)
                runs.append(cache.write(f"{operator.state_step(spec)}/{name}.arrow", rows, expiry))
        return runs

    def _inputs(self, node: GraphNode, mine: Mapping[tuple[int, int], list[Parcel]]) -> dict[str, pl.DataFrame | None]:
        """The inputs of an operator by side, in an order that does not depend on the shuffle."""
        operator = node.operator
        if operator.reads_scans:
            frames = _frames(mine.get((node.number, 0), ()))
            return {"rows": gather(operator, frames)}
        found: dict[str, pl.DataFrame | None] = {}
        for i, (name, side) in enumerate(zip(operator.side_names, operator.sides, strict=False)):
            frames = _frames(mine.get((node.number, i), ()))
            if len(side.takes) > 1:
                frames = [f.select(OP, *side.columns) for f in frames]
            if frames:
                rows = pl.concat(frames, how="vertical_relaxed")
                found[name] = in_order(rows, keep=operator.carries_order)
            else:
                found[name] = None
        combined = _frames(mine.get((node.number, COMBINED_SIDE), ()))
        return found | {COMBINED: pl.concat(combined, how="vertical_relaxed")} if combined else found

    def _reported(self, node: GraphNode, outcome: Outcome, sender: Sender) -> Batches:
        """What the driver must know of an outcome, in addition to its changes."""
        if outcome.panes is not None and len(outcome.panes):
            yield from sender.rows(PANES, node.number, outcome.panes)
        if outcome.dropped:
            yield sender.data(DROPPED, node.number, orjson.dumps([list(d) for d in outcome.dropped]))
        if outcome.failures or outcome.skipped:
            failed = {"failures": [list(f) for f in outcome.failures], "skipped": outcome.skipped}
            yield sender.data(FAILURES, node.number, orjson.dumps(failed))


def _frames(parcels: Iterable[Parcel]) -> list[pl.DataFrame]:
    return [p.rows() for p in sorted(parcels, key=lambda p: p.place)]


@functools.lru_cache(maxsize=32)
def _cache(state: Storage) -> RunCache:
    """The open runs of a worker process: the next task finds them mapped."""
    return RunCache(state, verify=False)
