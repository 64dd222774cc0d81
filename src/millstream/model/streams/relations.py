"""Stream methods that relate rows to other rows: joins, set operations, changelogs, iteration and window functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from millstream.errors import DefinitionError, SchemaError, Unsupported
from millstream.model.connectors import check_name
from millstream.model.expression import Expr, boolean, col, expr
from millstream.model.origin import here
from millstream.model.reserved import CHANGED_AT, SHOWN_EPOCH, SHOWN_OP, folded
from millstream.model.steps.columns import Named, Order, plain_column
from millstream.model.steps.event_times import joined, nearest, times_of
from millstream.model.steps.relations.as_of_join import JoinedAsOf
from millstream.model.steps.relations.changelog import Changelog
from millstream.model.steps.relations.hold_until import Settling
from millstream.model.steps.relations.join import KINDS, Joined
from millstream.model.steps.relations.loop import Iterated, Round, depends
from millstream.model.steps.relations.set_operation import Compared
from millstream.model.steps.relations.window_function import Windowed, WindowFunction
from millstream.model.steps.step import Step
from millstream.model.types.duration import Duration

if TYPE_CHECKING:
    from millstream.model.flow import Flow
    from millstream.model.streams.stream import Stream
    from millstream.model.types.schema import Schema

Span = str | timedelta | Duration
On = str | Sequence[str] | Mapping[str, str | Expr] | None
_DIRECTIONS = ("backward", "forward", "nearest")


class Relations:
    """Mixin for streams: methods that relate rows to other rows."""

    flow: Flow
    step: Step

    @property
    def schema(self) -> Schema:
        """The columns at this point."""
        return self.step.schema

    def join(
        self,
        other: Stream,
        on: On = None,
        *,
        how: str = "inner",
        where: str | Expr | None = None,
        within: tuple[Span, Span] | Span | None = None,
        time: tuple[str, str] | None = None,
        unmatched: str | None = None,
        lateness: Span = "0 seconds",
        suffix: str = "_right",
    ) -> Stream:
        """Join the rows of two streams. The result is kept up to date when either stream changes.

        `on` names columns that must be equal: ``"id"``, ``["id", "day"]`` or ``{"auction": "id"}``. `where` is any
        other condition on a pair. A column of `other` whose name is already in use gets `suffix`. `how` is inner, left,
        right, full, semi or anti.

        `within` bounds the time between the two rows: ``"10 minutes"`` (in either direction) or ``("-1 minute", "10
        minutes")``, from this stream's event time to the other's. Comparisons of event times in `where` have the same
        effect. Then rows are kept only as long as they can still find a partner, and rows behind the watermark are
        late. Without a bound, rows are kept permanently.

        `unmatched` defines when rows without a match are emitted: ``"certain"`` waits until no partner can arrive any
        more (this needs a time bound), and ``"at once"`` emits them immediately and retracts them if a partner arrives.

        >>> import millstream as ms
        >>> flow = ms.Flow("shop")
        >>> bids = flow.source("bids", ms.memory(), schema="auction BIGINT, price BIGINT")
        >>> auctions = flow.source("auctions", ms.memory(), schema="id BIGINT, seller STRING")
        >>> bids.join(auctions, on={"auction": "id"}).schema.names
        ('auction', 'price', 'id', 'seller')
        """
        self._check_other(other, "join")
        if how not in KINDS:
            raise DefinitionError(f"a join cannot be {how!r}", hint="one of: " + ", ".join(KINDS), origin=here())
        if unmatched not in (None, "certain", "at once"):
            raise DefinitionError(
                f"unmatched={unmatched!r}", hint='"certain" or "at once", or leave it out', origin=here()
            )
        pairs = _pairs(on, self.schema, other.schema)
        renamed = _renamed(self.schema.names, other.schema.names, suffix)
        made = Joined(self.step, other.step, pairs, how, tuple(renamed.items()), origin=here())
        conditions = [] if where is None else [boolean(where, made.pair, "join").node]
        if within is not None:
            conditions += _within(self.step, other.step, renamed, within, time)
        if not pairs and not conditions:
            raise DefinitionError("a join needs `on` or `where`", hint="e.g. on='id'", origin=here())
        step = Joined(
            self.step,
            other.step,
            pairs,
            how,
            tuple(renamed.items()),
            Expr(exp.and_(*conditions)) if conditions else None,
            None if unmatched is None else unmatched == "certain",
            Duration.not_negative(lateness, what="lateness").micros,
            origin=here(),
        )
        _check_certain(step)
        joined = self._with(step)
        if how in ("semi", "anti") or not isinstance(on, str | Sequence):
            return joined
        return _one_key(joined, [c for mine, _ in pairs if (c := plain_column(mine))], renamed, how)

    def join_as_of(
        self,
        other: Stream,
        on: On = None,
        *,
        time: tuple[str, str] | None = None,
        direction: str = "backward",
        tolerance: Span | None = None,
        strict: bool = False,
        required: bool = False,
        lateness: Span = "0 seconds",
        suffix: str = "_right",
    ) -> Stream:
        """Join each row with the row of `other` that was valid at its event time: the last one at or before it, among
        the rows with equal columns `on`.

        With ``direction="forward"`` it is the first one at or after it, with ``"nearest"`` the closest; both need a
        `tolerance`, the maximum time between the two rows. `strict` excludes rows with exactly the same time. Rows
        without a match have NULLs; with `required` they are dropped. A row is emitted once the watermark has passed
        it, and is final.

        >>> import millstream as ms
        >>> flow = ms.Flow("bank")
        >>> orders = flow.source("orders", ms.memory(), schema="at TIMESTAMP, money STRING", event_time="at")
        >>> rates = flow.source("rates", ms.memory(), schema="at TIMESTAMP, money STRING, rate DOUBLE", event_time="at")
        >>> orders.join_as_of(rates, on="money").schema.names
        ('at', 'money', 'at_right', 'rate')
        """
        self._check_other(other, "join_as_of")
        if direction not in _DIRECTIONS:
            raise DefinitionError(f"direction={direction!r}", hint="one of: " + ", ".join(_DIRECTIONS), origin=here())
        allowed = None if tolerance is None else Duration.not_negative(tolerance, what="tolerance").micros
        if allowed is None and direction != "backward":
            raise DefinitionError(
                f"an as-of join that looks {direction} needs a tolerance",
                detail="a row would wait indefinitely for a match that may never arrive",
                hint='e.g. tolerance="1 hour"',
                origin=here(),
            )
        pairs = _pairs(on, self.schema, other.schema)
        renamed = _renamed(self.schema.names, other.schema.names, suffix)
        step = JoinedAsOf(
            self.step,
            other.step,
            pairs,
            time or (_clock(self.step, "left"), _clock(other.step, "right")),
            tuple(renamed.items()),
            direction,
            allowed,
            strict,
            required,
            Duration.not_negative(lateness, what="lateness").micros,
            here(),
        )
        for which, (stream, name) in enumerate(zip((self.step, other.step), step.times, strict=True)):
            if name not in times_of(stream):
                raise Unsupported(
                    f"`{name}` of the {('left', 'right')[which]} stream has no watermark",
                    hint="declare it: flow.source(..., event_time=...)",
                    origin=here(),
                )
        same = [plain_column(m) or "" for m, _ in pairs] if isinstance(on, str | Sequence) else []
        return _one_key(self._with(step), same, renamed, "left")

    def intersect(self, other: Stream, *, copies: bool = False) -> Stream:
        """The rows that are currently in both streams, each once. With `copies`, each row occurs as often as in the
        stream that has fewer copies.
        """
        return self._compared(other, "intersect", copies=copies)

    def subtract(self, other: Stream, *, copies: bool = False) -> Stream:
        """The rows of this stream that are currently not in the other, each once. With `copies`, each copy in the other
        stream removes one copy.
        """
        return self._compared(other, "except", copies=copies)

    def settled(self, time: str | None = None) -> Stream:
        """Hold rows until they are final, and emit them in the order of their time. The result is append-only.

        `time` is an event time or the end of a window. It may be omitted if there is only one.

        >>> import millstream as ms
        >>> bids = ms.Flow("shop").source("bids", ms.memory(), schema="auction BIGINT, at TIMESTAMP", event_time="at")
        >>> counts = bids.window(ms.tumbling("1 minute")).aggregate(n=ms.count())
        >>> counts.settled("window_end").schema.names
        ('window_start', 'window_end', 'n')
        """
        known = times_of(self.step)
        name = time or nearest(self.step) or ""
        if name not in known:
            raise Unsupported(
                f"`{name}` has no watermark here, so these rows can still change"
                if name
                else "no column is an event time here, so these rows can always change",
                hint="keep the event time, or the `window_end` of a window",
                origin=here(),
            )
        return self._with(Settling(self.step, name, here()))

    def changelog(self, *, op: str = SHOWN_OP, epoch: str = SHOWN_EPOCH, time: str = CHANGED_AT) -> Stream:
        """Each change of the rows as a row of its own. The result is append-only.

        Three columns precede those of the row: the kind of change (``+I`` a new row, ``-U`` and ``+U`` the old row and
        the new row of an update, ``-D`` a deleted row), the number of the epoch, and its processing time. `op`, `epoch`
        and `time` name these columns.

        >>> import millstream as ms
        >>> bids = ms.Flow("shop").source("bids", ms.memory(), schema="auction BIGINT, price BIGINT")
        >>> bids.key_by("auction").aggregate(n=ms.count()).changelog().schema.names
        ('op', 'epoch', 'changed_at', 'auction', 'n')
        """
        self._refuse_panes("a changelog")
        names = (op, epoch, time)
        names_in_use = {folded(n) for n in self.schema.names}
        for i, name in enumerate(names):
            check_name(name, "column")
            if folded(name) in names_in_use or folded(name) in {folded(n) for n in names[:i]}:
                raise SchemaError(
                    f"`{name}` is already a column of a changelog",
                    hint="name each column: FROM CHANGELOG OF v AS c(kind, epoch, changed_at, ...); in Python "
                    f".changelog({('op', 'epoch', 'time')[i]}='other_name')",
                    origin=here(),
                )
        return self._with(Changelog(self.step, names, here()))

    def iterate(
        self, body: Callable[[Stream], Stream], *, most: int = 1_000, keep: bool = True, settle: bool = True
    ) -> Stream:
        """Iterate to a fixpoint: in each round `body` derives rows from the current rows, until there are no new rows.

        All rounds run within one epoch. With ``keep=False`` a round replaces all rows, until they no longer change. If
        there is no fixpoint after `most` rounds it is an error; with ``settle=False`` the rows of the last round are
        used instead. When a row is deleted, the rows that were derived only from it are deleted too.

        >>> import millstream as ms
        >>> edges = ms.Flow("net").source("edges", ms.memory(), schema="a BIGINT, b BIGINT")
        >>> reached = edges.iterate(lambda r: r.join(edges, on={"b": "a"}).select("a", b="b_right"))
        >>> reached.schema.names
        ('a', 'b')
        """
        if type(most) is not int or most < 1:
            raise DefinitionError(f"most={most!r} is not a number of iterations", origin=here())
        rows = Round(self.schema)
        results = body(self._with(rows))
        if results.schema.names != self.schema.names:
            raise SchemaError(
                "an iteration returns other columns than the loop begins with",
                detail=f"{', '.join(self.schema.names)}  against  {', '.join(results.schema.names)}",
                hint="bring them into the same shape with .select(...)",
                origin=here(),
            )
        if not depends(results.step, rows):
            raise DefinitionError("the body of the loop does not read its rows", origin=here())
        return self._with(Iterated(self.step, rows, results.step, keep, most, settle, origin=here()))

    def _windowed(self, keys: Named, order: Sequence[Order], functions: Mapping[str, WindowFunction]) -> Stream:
        """Window functions over the rows of each key."""
        orders = [Order(one.by.bind(self.schema), one.descending, one.nulls_first) for one in order]
        named = []
        for name, function in functions.items():
            check_name(name, "column")
            argument = None if function.argument is None else function.argument.bind(self.schema)
            named.append(
                (name, WindowFunction(function.kind, argument, function.offset, function.default, function.frame))
            )
        step = Windowed(self.step, keys, tuple(orders), tuple(named), here())
        assert step.schema.names  # raises on a duplicate name
        return self._with(step)

    def _compared(self, other: Stream, keep: str, *, copies: bool) -> Stream:
        self._check_other(other, keep)
        if len(other.schema.names) != len(self.schema.names):
            raise SchemaError(
                "the streams have different columns",
                detail=f"{', '.join(self.schema.names)}  against  {', '.join(other.schema.names)}",
                hint="bring them into the same shape with .select(...)",
                origin=here(),
            )
        return self._with(Compared(self.step, other.step, keep, copies, here()))

    def _check_other(self, other: Any, what: str) -> None:
        if not isinstance(other, Relations):
            raise DefinitionError(f"{what} takes another stream, not {other!r}", origin=here())
        if other.flow is not self.flow:
            raise DefinitionError(f"only streams of one flow can be combined by {what}", origin=here())
        self._refuse_panes(what)
        other._refuse_panes(what)

    def _refuse_panes(self, what: str) -> None:
        raise NotImplementedError

    def _with(self, step: Step) -> Stream:
        """A stream of the same flow at another step."""
        raise NotImplementedError


def _pairs(on: On, mine: Schema, theirs: Schema) -> tuple[tuple[Expr, Expr], ...]:
    """The pairs of expressions that must be equal."""
    if on is None:
        return ()
    pairs = {on: on} if isinstance(on, str) else dict(on) if isinstance(on, Mapping) else {n: n for n in on}
    return tuple((_named(left, mine), _named(right, theirs)) for left, right in pairs.items())


def _named(key: str | Expr, schema: Schema) -> Expr:
    """A column by its exact name, or an expression."""
    return (col(key) if isinstance(key, str) and key in schema else expr(key)).bind(schema)


def _renamed(mine: Sequence[str], theirs: Sequence[str], suffix: str) -> dict[str, str]:
    """The names of the right stream's columns in a joined row."""
    names_in_use, names = {folded(n) for n in mine}, {}
    for name in theirs:
        new = name
        while folded(new) in names_in_use:
            new += suffix or "_right"
        names_in_use.add(folded(new))
        names[name] = new
    return names


def _clock(step: Step, side: str) -> str:
    time = nearest(step)
    if time is None:
        raise DefinitionError(
            f"the {side} stream has no event time", hint="declare it: flow.source(..., event_time='ts')", origin=here()
        )
    return time


def _within(
    left: Step, right: Step, renamed: Mapping[str, str], within: tuple[Span, Span] | Span, time: tuple[str, str] | None
) -> list[exp.Expr]:
    """The conditions that bound the time between two rows."""
    mine, theirs = time or (_clock(left, "left"), _clock(right, "right"))
    if isinstance(within, tuple):
        low, high = (Duration.of(w) for w in within)
    else:
        high = Duration.not_negative(within, what="within")
        low = Duration(-high.micros)
    if low.micros > high.micros:
        raise DefinitionError(f"within={within!r} begins after its end", origin=here())
    first, second = exp.column(mine), exp.column(renamed[theirs])
    return [
        exp.GTE(this=second.copy(), expression=_plus(first, low.micros)),
        exp.LTE(this=second.copy(), expression=_plus(first, high.micros)),
    ]


def _plus(node: exp.Expr, micros: int) -> exp.Expr:
    if not micros:
        return node.copy()
    length = exp.Interval(this=exp.Literal.string(str(abs(micros))), unit=exp.var("MICROSECONDS"))
    kind = exp.Add if micros > 0 else exp.Sub
    return kind(this=node.copy(), expression=length)


def _check_certain(step: Joined) -> None:
    """Reject `unmatched="certain"` where certainty is never reached."""
    bounds = joined(step)
    padded = [(step.how in ("left", "full", "anti"), bounds.left), (step.how in ("right", "full"), bounds.right)]
    if step.certain and any(p and not until for p, until in padded):
        raise Unsupported(
            "it never becomes certain that a row has no match, because the join has no time bound",
            hint='bound it, e.g. within="10 minutes", or use unmatched="at once"',
            origin=step.origin,
        )


def _one_key(joined: Stream, keys: Sequence[str], renamed: Mapping[str, str], how: str) -> Stream:
    """A join with one column for each key that has the same name on both sides."""
    if not keys:
        return joined
    second = {renamed[k]: k for k in keys}
    columns: dict[str, Expr] = {}
    for name in joined.schema.names:
        if name in second:
            continue
        if name in keys and how in ("right", "full"):
            other = col(renamed[name])
            columns[name] = other if how == "right" else Expr(exp.func("coalesce", exp.column(name), other.node))
        else:
            columns[name] = col(name)
    return joined._project(tuple(columns.items()))
