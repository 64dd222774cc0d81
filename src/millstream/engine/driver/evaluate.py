"""Evaluates expressions over changing rows, so that one failing row does not stop the others.

When ops fail on a set of rows, the set is halved until single rows are left that fail alone. The result depends on the
rows alone: a row that fails when it is inserted fails in the same way when it is deleted, so its error can be retracted
then. `engine/driver/driver.py` handles the failed rows by the policy of the view.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import orjson
import pyarrow as pa

from millstream.errors import EngineFailed, EngineLost, MillstreamError, UserCodeFailed
from millstream.model.error_policy import FAIL, NULL
from millstream.model.types.schema import ddl_type
from millstream.model.types.values import in_json, python_rows
from millstream.plan.parts import Column, Op, Project

MOST = 100
"""If more rows than this fail in one evaluation, the expression is wrong, not the rows."""

Compute = Callable[[Sequence[Op], pa.Table], pa.Table]
"""Applies ops to rows. Raises a MillstreamError if they fail."""


@dataclass(frozen=True)
class Failed:
    """A row that ops fail on: its number among the input rows, the row as JSON, and the reason."""

    at: int
    row: str
    reason: str


@dataclass(frozen=True)
class Evaluated:
    """The result of ops over rows, in order, and the rows that they fail on."""

    rows: pa.Table
    failed: tuple[Failed, ...] = ()


def evaluated(compute: Compute, quiet: Compute, ops: Sequence[Op], rows: pa.Table, policy: str) -> Evaluated:
    """Apply ops to rows under a policy (see `model/error_policy.py`). `quiet` evaluates without a report of each
    failure.
    """
    try:
        return Evaluated(compute(ops, rows))
    except MillstreamError as error:
        if policy == FAIL or not is_of_rows(error) or not rows.num_rows:
            raise
        return _Halving(quiet, ops, policy).of(rows, error)


def is_of_rows(error: MillstreamError) -> bool:
    """Whether an evaluation may have failed because of a row."""
    return isinstance(error, EngineFailed | UserCodeFailed) and not isinstance(error, EngineLost)


class _Halving:
    """Halves rows until only those are left that fail alone."""

    def __init__(self, compute: Compute, ops: Sequence[Op], policy: str) -> None:
        self._compute, self._ops, self._policy = compute, tuple(ops), policy
        self._parts: list[pa.Table] = []
        self._failed: list[Failed] = []
        self._found = 0

    def of(self, rows: pa.Table, error: MillstreamError) -> Evaluated:
        """Evaluate rows that fail with `error` as a whole."""
        none = self._compute(self._ops, rows.slice(0, 0))  # raises if no row is the cause
        self._halve(rows, 0, error)
        parts = [p.cast(none.schema) for p in self._parts if p.num_rows]
        return Evaluated(pa.concat_tables([none, *parts]), tuple(self._failed))

    def _halve(self, rows: pa.Table, first: int, error: MillstreamError) -> None:
        if rows.num_rows == 1:
            self._one(rows, first, error)
            return
        middle = rows.num_rows // 2
        for at, part in ((first, rows.slice(0, middle)), (first + middle, rows.slice(middle))):
            try:
                self._parts.append(self._compute(self._ops, part))
            except MillstreamError as failed:
                if not is_of_rows(failed):
                    raise
                self._halve(part, at, failed)

    def _one(self, row: pa.Table, at: int, error: MillstreamError) -> None:
        try:
            self._parts.append(self._compute(self._ops, row))  # it did not repeat, so the row is not the cause
            return
        except MillstreamError as again:
            if not is_of_rows(again):
                raise
            error = again
        self._found += 1
        if self._found > MOST:
            raise UserCodeFailed(
                f"more than {MOST} rows of one epoch fail: {reason_of(error)}",
                detail="so many failures are taken for a fault of the expression, not of the rows",
                hint="correct the expression, e.g. with try_cast or try_divide, or filter such rows out",
            ) from error
        if self._policy == NULL:
            done = self._with_nulls(row)
            if done is not None:
                self._parts.append(done)
                return
        self._failed.append(Failed(at, row_json(row), self._reason(row, error)))

    def _reason(self, row: pa.Table, error: MillstreamError) -> str:
        """Why a row fails, with the failing expression if it can be determined."""
        for op in self._ops:
            wrong = self._wrong(op, row) if isinstance(op, Project) else []
            if wrong:
                return f"{readable(wrong[0][0])}: {reason_of(wrong[0][1])}"
            try:
                row = self._compute([op], row)
            except MillstreamError:
                break
            if row.num_rows != 1:
                break
        return reason_of(error)

    def _wrong(self, project: Project, row: pa.Table) -> list[tuple[str, MillstreamError]]:
        """The expressions of a projection that fail on a row, each evaluated alone."""
        alone = [] if project.keep is None else [(project.keep, Project(project.keep, ()))]
        alone += [(c.sql, Project(None, (c,))) for c in project.columns if c.only_names is None]
        found = []
        for sql, only in alone:
            try:
                self._compute([only], row)
            except MillstreamError as error:
                if not is_of_rows(error):
                    raise
                found.append((sql, error))
        return found

    def _with_nulls(self, row: pa.Table) -> pa.Table | None:
        """The result of ops for a row, with NULL for each failing expression; None if that does not help."""
        for op in self._ops:
            try:
                row = self._compute([op], row)
                continue
            except MillstreamError as error:
                if not isinstance(op, Project) or not is_of_rows(error):
                    return None
            wrong = {sql for sql, _ in self._wrong(op, row)}
            kinds = self._compute([op], row.slice(0, 0)).schema
            columns = tuple(_null(c, kinds.field(c.name).type) if c.sql in wrong else c for c in op.columns)
            keep = "CAST(NULL AS BOOLEAN)" if op.keep in wrong else op.keep
            try:
                row = self._compute([replace(op, keep=keep, columns=columns)], row)
            except MillstreamError:
                return None
        return row


def _null(column: Column, kind: pa.DataType) -> Column:
    return Column(column.name, f"CAST(NULL AS {ddl_type(kind)})")


def row_json(row: pa.Table) -> str:
    """A row as JSON: the columns that its author knows, in a stable form."""
    names = [n for n in row.column_names if not n.startswith("$")] or row.column_names
    (values,) = python_rows(row.select(names))
    return orjson.dumps(values, default=in_json, option=orjson.OPT_NON_STR_KEYS).decode()


def reason_of(error: MillstreamError) -> str:
    """The reason of an error, in one line."""
    text = error.message if isinstance(error, UserCodeFailed) or not error.detail else error.detail
    line = (text.strip().splitlines() or [""])[0]
    line = re.sub(r"; the full report is in .*$", "", line)
    line = re.sub(r"\s*SQLSTATE: .*$", "", line)  # followed by the expression, which is reported separately
    return line or error.message


def readable(sql: str) -> str:
    """SQL without quotes around plain names."""
    return re.sub(r"`([A-Za-z_][A-Za-z0-9_]*)`", r"\1", sql)
