"""Loops: a stream that is computed from itself, round by round, until it reaches a fixpoint."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from millstream.errors import Origin
from millstream.model.types.schema import Schema

if TYPE_CHECKING:
    from millstream.model.steps.step import Step


@dataclass(frozen=True, eq=False)
class Round:
    """The rows of a loop at the start of a round."""

    schema: Schema


@dataclass(frozen=True, eq=False)
class Iterated:
    """Rows that a body derives from themselves, starting with those of `input`.

    `keep`: a round adds rows, each once; otherwise it replaces all rows.
    """

    input: Step
    round: Round
    body: Step
    keep: bool
    most: int
    settle: bool
    """Whether it is an error not to reach a fixpoint within this many rounds."""
    copies: bool = False
    """Whether a row that is added again counts as another copy; a round then sees only the rows of
    the previous round.
    """
    origin: Origin | None = None

    @property
    def schema(self) -> Schema:
        """The columns of its initial rows."""
        return self.input.schema


def depends(step: Step, on: Round) -> bool:
    """Whether a step is computed from the rows of a loop."""
    from millstream.model.steps.step import upstream

    return any(s is on for s in upstream(step))


def outside(step: Step, on: Round) -> Iterator[Step]:
    """The largest steps of a body that are not computed from the rows of the loop."""
    from millstream.model.steps.step import inputs

    if step is on:
        return
    if not depends(step, on):
        yield step
        return
    for before in inputs(step):
        yield from outside(before, on)
