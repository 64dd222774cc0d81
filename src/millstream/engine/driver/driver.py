"""The driver's part of an epoch, without Spark: runs operators over the intake and processes their outcomes.

`engine/epoch.py` provides the rows and evaluates expressions; tests provide both in other ways. The result is an
`EpochOutput`, which `runtime/` commits.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import replace
from functools import partial

import polars as pl
import pyarrow as pa

from millstream.clock import BEGINNING
from millstream.engine.driver.epoch_io import EpochInput, EpochOutput, Replay, polars
from millstream.engine.driver.evaluate import Failed, evaluated
from millstream.engine.driver.row_errors import Errors, errors_of, policy, reached
from millstream.engine.driver.services import DriverServices, Expressions
from millstream.engine.driver.update_pairs import paired
from millstream.engine.exchange.graph import Graph
from millstream.engine.exchange.hot_keys import hot_of_next, loads
from millstream.engine.exchange.results import OperatorResult, Results
from millstream.engine.exchange.routes import in_order
from millstream.errors import Unsupported
from millstream.kernels.intake import Intake, gather
from millstream.kernels.kernel import advance, needs_first_row
from millstream.kernels.outcome import Dropped, OperatorClock, Outcome, State, net
from millstream.kernels.scan_input import Role
from millstream.kernels.windows.late_replay import check, recomputed, windows_of
from millstream.model.reserved import OP
from millstream.model.types.unknown_column import missing_column
from millstream.plan.operators.inputs import Side, Take
from millstream.plan.operators.operator import Operator
from millstream.plan.operators.python.lookup import AsyncLookup
from millstream.plan.parts import Op, Project
from millstream.plan.plan import Plan, PlannedView, Scan
from millstream.state.run import StateRun
from millstream.state.run_block import RunBlock
from millstream.state.shard import RunCache, StateReader
from millstream.state.storage import Storage
from millstream.state.version import Version


class EpochDriver:
    """The results of an epoch so far, by the number of the view in the plan."""

    def __init__(
        self,
        plan: Plan,
        cache: RunCache,
        version: Version,
        epoch_input: EpochInput,
        expressions: Expressions,
        answers: Storage,
    ) -> None:
        self.plan, self.cache, self.version, self.input = plan, cache, version, epoch_input
        self.expressions = expressions
        self.out = EpochOutput(version, hot=epoch_input.hot)
        self.frames: dict[int, list[pl.DataFrame]] = {}
        self.changes: dict[int, list[pl.DataFrame]] = {}
        self.panes: dict[int, list[pl.DataFrame]] = {}
        self.dropped: dict[int, list[Dropped]] = {}
        self.spread: dict[int, RunBlock | None] = {}
        """The operators that the executors have finished, and the runs they wrote."""
        self.final: dict[int, list[pa.Table]] = {}
        """The views whose changes the executors have finished."""
        self._done: set[int] = set()
        """The operators that have been run."""
        self.late: list[tuple[Scan, Role]] = []
        self.operator_changes: dict[str, pl.DataFrame] = {}
        """By view: the changes of its operator, if it feeds others."""
        self.errors = Errors()
        self.services = DriverServices(plan, expressions, answers, epoch_input.number, self._set_aside)
        self._inputs = plan.inputs
        self._downstream = [plan.downstream[v.name] for v in plan.views]
        self.clocks = {
            i: replace(
                OperatorClock.of(
                    v.operator,
                    epoch_input.before,
                    epoch_input.watermarks,
                    epoch_input.now,
                    epoch_input.fractions,
                    epoch_input.since,
                ),
                epoch=epoch_input.number,
            )
            for i, v in enumerate(plan.views)
        }

    # ---- rows of scans

    def roles(self, scan: Scan) -> list[Role]:
        """The operators that a scan feeds."""
        return [
            Role(i, view.operator, feed, _taken_from(view.operator, self.clocks[i]))
            for i, view in enumerate(self.plan.views)
            if view.operator.reads_scans
            for feed in view.operator.feeds
            if feed.scan == scan.id
        ]

    def replayed(self, replay: Replay, read: Callable[[Scan, list[Role], int, int], Intake]) -> None:
        """Recompute the windows of late records. `read` takes in the rows of a scan's history between two times."""
        i, view = next((i, v) for i, v in enumerate(self.plan.views) if v.name == replay.view)
        operator = check(view.operator, view.name)
        windows = windows_of(operator, replay.times)
        frames: list[pl.DataFrame] = []
        for feed in operator.feeds:
            scan = next(s for s in self.plan.scans if s.id == feed.scan)
            first, last = windows["$s"].to_numpy().min(), windows["$e"].to_numpy().max()
            intake = read(scan, [Role(i, operator, feed, BEGINNING)], int(first), int(last))
            frames += intake.frames.get(i, [])
        rows = recomputed(operator, gather(operator, frames), windows)
        if rows is not None:
            table = rows.to_arrow()
            post = view.post
            self.out.replayed = table if post is None else paired(view, self.expressions.computed([post], table))

    def add_intake(self, scan: Scan, intake: Intake) -> None:
        """Add the intake of a scan."""
        if not scan.ops:
            self.out.tallies[scan.source] = intake.tally
        for view, frames in intake.frames.items():
            self.frames.setdefault(view, []).extend(frames)
        for counts, into in ((intake.applied, self.out.applied), (intake.filtered, self.out.filtered)):
            for view, count in counts.items():
                for name in self._downstream[view]:
                    into[name] = into.get(name, 0) + count
        self.late += [(scan, r) for r in self.roles(scan) if intake.late.get(r.view)]

    def forget(self, scan: Scan) -> None:
        """Discard the intake of a scan, so that it can be read again."""
        for role in self.roles(scan):
            for results in (self.changes, self.panes, self.dropped):
                results.pop(role.view, None)  # type: ignore[attr-defined]

    def apart(self, sources: list[str]) -> list[tuple[Scan, Role, list[Dropped]]]:
        """The scans of these sources that hold rows which an operator did not accept."""
        late = {(role.view, scan.id) for scan, role in self.late}
        return [
            (scan, role, self.dropped.get(role.view, []))
            for name in sources
            for scan in self.plan.scans_of(name)
            for role in self.roles(scan)
            if self.dropped.get(role.view) or (role.view, scan.id) in late
        ]

    def set_apart(self, role: Role, rows: pa.Table) -> None:
        """Add rows that an operator did not accept to the late rows of the views downstream."""
        for name in self._downstream[role.view]:
            before = self.out.late.get(name)
            self.out.late[name] = rows if before is None else pa.concat_tables([before, rows])

    # ---- operators

    def received(self, graph: Graph, results: Results, shards: int) -> None:
        """Add what the executors gave: results of their operators in some shards, and rows of scans for the others."""
        names = {i: n.view.name for i, n in graph.nodes.items()}
        self.out.loads = loads(names, results.counts, results.received)
        self.out.hot = hot_of_next(self.input.hot, graph, results.counts, shards)
        for i, rows in results.rows.items():
            self.frames.setdefault(i, []).extend(rows)
        for i, node in graph.nodes.items():
            result = results.operators.get(i) or OperatorResult()
            self.spread[i], self.panes[i] = result.runs, result.panes
            self.changes[i] = [in_order(pl.concat(result.changes, how="vertical_relaxed"))] if result.changes else []
            self.dropped[i] = result.dropped
            self.final[i] = result.final
            if isinstance(node.operator, AsyncLookup) and result.answers:
                self.services.looked_up(node.operator, result.answers)
            if result.parts:
                self.out.parts[node.view.name] = tuple(result.parts)
            self._failed(node.view, Outcome(failures=tuple(result.failures), skipped=result.skipped))

    def operators(self, only: Container[int] | None = None) -> None:
        """Run every operator that the executors did not finish, in plan order; then the views. With `only`, run just
        these.
        """
        for i, view in enumerate(self.plan.views):
            if i not in self._done and (only is None or i in only):
                self._operator(i, view)
                self._done.add(i)
        if only is None:
            self._tell_errors()

    def _operator(self, i: int, view: PlannedView) -> None:
        operator = view.operator
        runs = self.spread[i] if i in self.spread else self._advance(i, view)
        steps = [operator.state_step(spec) for spec in operator.states]
        for step in steps:
            self._add(step, None if runs is None else runs.of_step(step, of=steps), self.clocks[i].watermark)
        if operator.follows is not None:
            files = tuple(self.out.version.list_of(operator.step).files)
            self.cache.notes[operator.step] = (str(self.input.tables[operator.follows]), files)
        self._deliver(i, view)

    def _advance(self, i: int, view: PlannedView) -> RunBlock | None:
        """Run one operator in the driver. Returns the runs it wrote."""
        operator, clock = view.operator, self._clock(i)
        inputs = self._inputs_of(i, view)
        if not operator.stateful and all(rows is None for rows in inputs.values()):
            return None
        if needs_first_row(operator, self.version) and all(rows is None or not len(rows) for rows in inputs.values()):
            clock = replace(clock, begins=True)
        states = states_of(self.cache, operator, self.version)
        outcome = advance(operator, inputs, states, clock, self.services)
        changes = None if outcome.changes is None else in_order(outcome.changes)
        for into, rows in ((self.changes, changes), (self.panes, outcome.panes)):
            if rows is not None:
                into.setdefault(i, []).append(rows)
        self.dropped[i] = list(outcome.dropped)
        self._failed(view, outcome)
        written = write_outcome(self.cache, operator, outcome, f"{self.input.number:012d}-{self.input.attempt}")
        return RunBlock.of(written) if written else None

    def _clock(self, i: int) -> OperatorClock:
        """The clock of an operator. With a time to live, it includes the newest event time of the epoch."""
        operator, clock = self.plan.views[i].operator, self.clocks[i]
        if operator.ttl is None:
            return clock
        times = [t for s in operator.sources if s in self.out.tallies for t in self.out.tallies[s].newest.values()]
        return replace(clock, newest=max(times, default=clock.newest))

    def _inputs_of(self, i: int, view: PlannedView) -> dict[str, pl.DataFrame | None]:
        """The inputs of an operator: rows of scans, rows of a stored table, or changes of other operators."""
        operator = view.operator
        if operator.reads_scans:
            return {"rows": gather(operator, self.frames.get(i, []))}
        if operator.constant:
            return {"rows": self._constant_row(operator)}
        if operator.follows is not None:
            return {"rows": self._table(operator, operator.follows)}
        sides = zip(operator.side_names, operator.sides, strict=False)
        return {name: self._side_changes(view, side) for name, side in sides}

    def _deliver(self, i: int, view: PlannedView) -> None:
        """Pass the changes of an operator to its view and to downstream operators."""
        dropped = sum(d.rows for d in self.dropped.get(i, ()))
        for name in self._downstream[i] if dropped else ():
            self.out.applied[name] -= dropped
        changed = self.changes.get(i, [])
        if changed:
            changes = changed[0] if len(changed) == 1 else pl.concat(changed, how="vertical_relaxed")
            if i in self.final:
                self.operator_changes[view.name] = changes
            elif view.operator.appends:
                self._appended(view, changes)
            else:
                self._changed(view, changes)
        if self.final.get(i):
            self._show(view, pa.concat_tables(self.final[i], promote_options="permissive"))
        if self.panes.get(i):
            panes = pl.concat(self.panes[i], how="vertical_relaxed")
            numbered = panes.with_columns(pl.lit(self.input.number).cast(pl.Int64).alias("epoch"))
            self.out.panes[view.name] = numbered.to_arrow()

    def _appended(self, view: PlannedView, rows: pl.DataFrame) -> None:
        """Rows of scans, as inserts."""
        hidden = [pl.col("$ts").cast(pl.Datetime("us", "UTC"))] if "$ts" in view.hidden else []
        table = rows.select(pl.lit("+I").alias(OP), *view.columns, *hidden).to_arrow()
        if view.inner:
            self.operator_changes[view.name] = polars(table)
        else:
            self.out.changes[view.name] = self.out.stored[view.name] = table

    def _changed(self, view: PlannedView, changes: pl.DataFrame) -> None:
        """Changes after the view's projection."""
        if view.name in self._inputs:
            self.operator_changes[view.name] = changes
        if view.inner:
            return
        final = self.post(view, changes.to_arrow())
        if final.num_rows:
            self._show(view, final)

    def _show(self, view: PlannedView, final: pa.Table) -> None:
        """The finished changes of a view."""
        self.out.changes[view.name] = self.out.stored[view.name] = final
        if not view.operator.one_change_per_row:
            self.out.stored[view.name] = net(polars(final), view.identity or ()).to_arrow()

    def _constant_row(self, operator: Operator) -> pl.DataFrame | None:
        """The row of a query without FROM, if the state does not have it yet."""
        if self.version.rows(operator.step):
            return None
        return pl.DataFrame({OP: ["+I"], **{n: [True] for n in operator.columns}})

    def _table(self, operator: Operator, name: str) -> pl.DataFrame | None:
        """All rows of a stored table, if it may have changed since the state was written."""
        path = self.input.tables[name]
        seen = (str(path), tuple(self.version.list_of(operator.step).files))
        if self.cache.notes.get(operator.step) == seen:
            return None
        with pa.memory_map(str(path)) as file:
            rows = pa.ipc.open_file(file).read_all()
        columns = list(operator.columns)
        missing = [n for n in columns if n not in rows.column_names]
        if missing:
            raise missing_column(Unsupported, f"the table `{name}`", missing[0], rows.column_names)
        typed = rows.select(columns).cast(pa.schema(list(zip(columns, operator.types, strict=True))))
        return polars(typed).select(pl.lit("+I").alias(OP), *columns)

    def _side_changes(self, view: PlannedView, side: Side) -> pl.DataFrame | None:
        """The changes that arrived at one side of an operator."""
        found = [rows for take in side.takes if (rows := self.changes_for(view, take)) is not None]
        if len(found) < 2:
            return found[0] if found else None
        return pl.concat([f.select(OP, *side.columns) for f in found], how="vertical_relaxed")

    def changes_for(self, view: PlannedView, take: Take) -> pl.DataFrame | None:
        """The changes of another operator that an operator takes; None if there are none."""
        changes = self.operator_changes.get(take.view)
        if changes is not None and take.ops:
            changes = self._projected(view, take, changes)
        return changes if changes is not None and len(changes) else None

    def _projected(self, view: PlannedView, take: Take, changes: pl.DataFrame) -> pl.DataFrame:
        only = take.ops[0] if len(take.ops) == 1 else None
        names = only.renames if isinstance(only, Project) else None
        if names is None:
            return polars(self._evaluated(view.name, _origin(self.plan.view(take.view)), take.ops, changes.to_arrow()))
        return changes.select(OP, *(pl.col(column).alias(name) for name, column in names.items()))

    # ---- expressions and errors

    def post(self, view: PlannedView, changes: pa.Table) -> pa.Table:
        """Compute the changes of a view from the changes of its operator."""
        if view.post is None:
            return changes
        return paired(view, self._evaluated(view.name, _origin(view), [view.post], changes))

    def _evaluated(self, view: str, step: str, ops: Sequence[Op], changes: pa.Table) -> pa.Table:
        """Apply ops to changes on their way to a view. Rows that fail are handled by the view's policy. When such a row
        is deleted, its error is retracted too.
        """
        done = evaluated(
            self.expressions.computed,
            partial(self.expressions.computed, quiet=True),
            ops,
            changes,
            policy(self.plan, view),
        )
        for failed in done.failed:
            comes = changes[OP][failed.at].as_py() in ("+I", "+U")
            self._set_aside(view, step, failed, 1 if comes else -1)
        return done.rows

    def _set_aside(self, view: str, step: str, failed: Failed, times: int) -> None:
        for name in reached(self.plan, view):
            self.errors.add(name, step, failed.row, times, failed.reason)

    def _tell_errors(self) -> None:
        """Add the rows that expressions failed on to the output of the epoch."""
        for name in self.errors.views:
            new, over = self.errors.of(name, self.input.number, self.input.now)
            self.out.failed[name] = self.out.failed.get(name, 0) + new.num_rows - sum(over["times"].to_pylist())
            if new.num_rows:
                before = self.out.errors.get(name)
                self.out.errors[name] = new if before is None else pa.concat_tables([before, new])
            if over.num_rows:
                self.out.mended[name] = over

    def _failed(self, view: PlannedView, outcome: Outcome) -> None:
        """Quarantine, or only count, the rows that user code failed on."""
        failed = len(outcome.failures) + outcome.skipped
        for name in reached(self.plan, view.name) if failed else ():
            self.out.failed[name] = self.out.failed.get(name, 0) + failed
            if outcome.failures:
                rows = errors_of(outcome, self.input.number, self.input.now)
                before = self.out.errors.get(name)
                self.out.errors[name] = rows if before is None else pa.concat_tables([before, rows])

    def _add(self, step: str, runs: RunBlock | None, watermark: int) -> None:
        if runs is not None:
            self.cache.trust(runs.files)
        self.out.version = self.out.version.advance(step, () if runs is None else runs, watermark)


def states_of(
    cache: RunCache, operator: Operator, version: Version, hashes: tuple[int, int] | None = None
) -> dict[str, State]:
    """The states of an operator by name, optionally restricted to a range of hashes."""
    return {
        spec.name: StateReader(cache, version.of(operator.state_step(spec), hashes), list(spec.unique), hashes)
        for spec in operator.states
    }


def write_outcome(cache: RunCache, operator: Operator, outcome: Outcome, name: str) -> list[StateRun]:
    """Write the rows that an operator keeps, as runs with this name."""
    return [
        cache.write(f"{operator.state_step(spec)}/{name}.arrow", *outcome.state_rows[spec.name])
        for spec in operator.states
        if spec.name in outcome.state_rows
    ]


def _origin(view: PlannedView) -> str:
    """The origin of the rows of a view's operator, for error messages: a stored table, or a step of a view."""
    return view.operator.follows or view.name


def _taken_from(operator: Operator, clock: OperatorClock) -> int:
    """The event time from which rows are not late for an operator that reads a scan."""
    return clock.watermark - operator.late_allowance
