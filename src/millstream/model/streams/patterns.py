"""The stream methods for pattern matching."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from millstream.errors import DefinitionError, Unsupported
from millstream.model.expression import Expr
from millstream.model.origin import here
from millstream.model.patterns.pattern import Pattern
from millstream.model.steps.pattern import of_pattern
from millstream.model.windows.windowing import Windowing

if TYPE_CHECKING:
    from millstream.model.steps.columns import Named
    from millstream.model.streams.stream import Stream


class Matches:
    """Mixin for streams: pattern matching over all rows."""

    def match(
        self,
        /,
        pattern: Pattern,
        *,
        rows: str = "one",
        timeouts: bool = False,
        **measures: str | Expr,
    ) -> Stream:
        """Match a pattern against the rows of the whole stream; see `Keyed.match`."""
        return _found(cast("Stream", self), (), Windowing(), pattern, rows, timeouts, measures)


class KeyedMatches:
    """Mixin for keyed streams: pattern matching per key."""

    stream: Stream
    keys: Named
    windowing: Windowing

    def match(
        self,
        /,
        pattern: Pattern,
        *,
        rows: str = "one",
        timeouts: bool = False,
        **measures: str | Expr,
    ) -> Stream:
        """Match a pattern against the rows of each key, in event-time order, and return measures of each match.

        A measure is a SQL expression over the match: ``first(a.price)``, ``count(b.*)``, ``c.ts - a.ts``. With
        ``rows="all"`` the result has every row of a match, with the measures as of that row. With `timeouts` the result
        also has partial matches that ran out of time (`within`); the column ``timed_out`` marks them.

        >>> import millstream as ms
        >>> schema = "item INT, price INT, at TIMESTAMP"
        >>> bids = ms.Flow("shop").source("bids", ms.memory(), schema=schema, event_time="at")
        >>> drop = ms.pattern().then("high", "price > 100").followed_by("low", "price < high.price / 2")
        >>> bids.key_by("item").match(drop.within("1 hour"), was="high.price", now="low.price").schema.names
        ('item', 'was', 'now')
        """
        return _found(self.stream, self.keys, self.windowing, pattern, rows, timeouts, measures)


def _found(
    stream: Stream,
    keys: Named,
    windowing: Windowing,
    pattern: Pattern,
    rows: str,
    timeouts: bool,
    measures: dict[str, str | Expr],
) -> Stream:
    if rows not in ("one", "all"):
        raise DefinitionError(
            f"`rows` of match is one or all, not {rows!r:.60}",
            hint='one row per match: "one", all its rows: "all"; a measure gets this name afterwards, with select',
            origin=here(),
        )
    if not windowing.window.is_global:
        raise Unsupported("a pattern within a window", hint="use pattern.within(...) instead", origin=here())
    stream._refuse_panes("match")
    step = of_pattern(stream.step, keys, None, pattern, measures, all_rows=rows == "all", timeouts=timeouts)
    return stream._with(step)
