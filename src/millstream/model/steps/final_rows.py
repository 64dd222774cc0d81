"""Final rows: EMIT ON CLOSE for a query that does not group.

The rows of any query are final once the watermark has passed their time; `Settling` holds them until then. There are
two complications. If the result does not include the time, rows are held before that projection. And a step directly
over the records of a source (a top-N, a DISTINCT) accepts late records, which change rows of any age. Then the records
are held first, until their own time or the end of their window has passed; late ones go to ``<view>$late``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from millstream.errors import Unsupported
from millstream.model.origin import here
from millstream.model.steps.aggregation import Aggregated
from millstream.model.steps.columns import plain_column
from millstream.model.steps.event_times import times_of
from millstream.model.steps.relations.as_of_join import JoinedAsOf
from millstream.model.steps.relations.distinct import Distinct
from millstream.model.steps.relations.hold_until import Settling
from millstream.model.steps.relations.join import Joined
from millstream.model.steps.relations.set_operation import Compared
from millstream.model.steps.relations.top_n import Top
from millstream.model.steps.relations.window_function import Windowed
from millstream.model.steps.step import Select, Source, Step, Two, Union, Where, changes, inputs, upstream

if TYPE_CHECKING:
    from millstream.model.streams.stream import Stream


def final(stream: Stream) -> Stream:
    """The rows of a stream, each emitted once it is final."""
    step, behind = _timely(stream.step), []
    while not _known(step) and isinstance(step, Select | Where):
        behind.append(step)
        step = step.input
    known = _known(step)
    if not known:
        raise Unsupported(
            "the rows of this query never become final: no event time reaches the result unchanged",
            detail=_why(stream.step),
            hint="keep the event time, or the `window_end` of a window, in every part of the query; or leave EMIT out",
            origin=here(),
        )
    settling: Step = Settling(step, min(known, key=lambda name: known[name]), here())
    for one in reversed(behind):
        settling = replace(one, input=settling)
    return stream._with(settling)


def _why(step: Step) -> str | None:
    if not any(isinstance(s, Source) and s.options.event_time is not None for s in upstream(step)):
        return "none of its sources has a watermark"
    return None


def _known(step: Step) -> dict[str, int]:
    """The times of a step that are never NULL."""
    return {n: s for n, s in times_of(step).items() if not _may_be_null(step, n)}


def _may_be_null(step: Step, name: str) -> bool:
    """Whether a time may be NULL: in a row for which an outer join found no partner."""
    if isinstance(step, Joined | JoinedAsOf):
        back = {new: old for old, new in step.renamed}
        outer = "left" if isinstance(step, JoinedAsOf) else step.how
        if name in step.left.schema:
            return outer in ("right", "full") or _may_be_null(step.left, name)
        return outer in ("left", "full") or _may_be_null(step.right, back[name])
    if isinstance(step, Source) or (isinstance(step, Aggregated) and not changes(step.input)):
        return False
    if isinstance(step, Select | Aggregated | Top | Windowed):
        named = step.columns if isinstance(step, Select) else step.keys
        ends = dict(step.after) if isinstance(step, Select) else {}
        before = ends.get(name) or next((plain_column(e) for n, e in named if n == name), None)
        return before is not None and _may_be_null(step.input, before)
    return any(_may_be_null(s, name) for s in inputs(step) if name in s.schema)


def _timely(step: Step) -> Step:
    """The same rows, with source records held in order before a step that would otherwise accept late ones."""
    if not changes(step) or _known(step):
        return step
    if isinstance(step, Select | Where):
        return replace(step, input=_timely(step.input))
    if isinstance(step, Top | Windowed):
        keys = {c for _, e in step.keys if (c := plain_column(e)) is not None}
        return replace(step, input=_in_time(step.input, keys))
    if isinstance(step, Distinct):
        return replace(step, input=_in_time(step.input, set(step.schema.names)))
    if isinstance(step, Union):
        return replace(step, inputs=tuple(_timely(s) for s in step.inputs))
    if isinstance(step, Two):
        names = set(step.left.schema.names) if isinstance(step, Compared) else set()
        sides: dict[str, Any] = {n: _in_time(getattr(step, n), names) for n in ("left", "right")}
        return replace(step, **sides)
    return step


def _in_time(step: Step, names: set[str]) -> Step:
    """The input of a step; records are held so that none is late, if one of these columns is a time."""
    if changes(step):
        return _timely(step)
    known = {n: s for n, s in times_of(step).items() if n in names}
    return Settling(step, min(known, key=lambda n: known[n]), here(), cuts=True) if known else step
