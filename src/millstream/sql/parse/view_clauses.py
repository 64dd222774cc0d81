"""The clauses after the query of a view: when it emits results, how results relate, allowed lateness, and retention.

    EMIT ON CHANGE
    EMIT ON [WINDOW] CLOSE [EARLY <when>] [LATE <when> | LATE NEVER]
    EMIT EARLY <when> [LATE <when>]
    EMIT <trigger>
    DISCARDING | ACCUMULATING | RETRACTING
    ALLOWED LATENESS INTERVAL '1' MINUTE
    RETAIN INTERVAL '1' DAY
    FILL (PREVIOUS | LINEAR | NULL | <constant>) [FOR INTERVAL '1' DAY]
    FILL (<column> <how>, ...)

<when> is ``EVERY INTERVAL '1' SECOND [ALIGNED]``, ``EVERY 100 ROWS``, ``ON CHANGE`` or a <trigger>; a <trigger> is one
of these, ``AFTER 100 ROWS``, ``AFTER INTERVAL '1' MINUTE [ALIGNED]``, ``AFTER FRACTION 0.9``, ``ON CLOSE``, ``ANY OF
(t, ...)``, ``ALL OF (t, ...)``, ``IN ORDER (t, ...)``, ``REPEATEDLY (t)``, ``ONCE (t)``, ``(t) UNTIL (t)``.
"""

from __future__ import annotations

from collections.abc import Callable

from millstream.model.steps.fill import Filling
from millstream.model.types.duration import Duration
from millstream.model.windows import trigger as triggers
from millstream.model.windows.accumulation import Accumulation
from millstream.model.windows.trigger import Trigger
from millstream.sql.bind.grouping import fill
from millstream.sql.parse.cursor import Cursor
from millstream.sql.parse.statement_values import Clauses
from millstream.sql.parse.text import word

_ACCUMULATIONS = {a.name: a for a in Accumulation}
_GROUPS: dict[str, Callable[..., Trigger]] = {
    "ANY OF": triggers.any_of,
    "ALL OF": triggers.all_of,
    "IN ORDER": triggers.in_order,
}
_WRAPS: dict[str, Callable[[Trigger], Trigger]] = {"REPEATEDLY": triggers.repeatedly, "ONCE": triggers.once}
_CLOSE = (("ON", "CLOSE"), ("ON", "WINDOW", "CLOSE"))
_DEEPEST = 20
_INSIDE = frozenset(
    "WHERE AND OR NOT BY ON HAVING WHEN THEN ELSE CASE BETWEEN IN LIKE QUALIFY DISTINCT".split()
) | frozenset(["=", "<", ">", "<=", ">=", "<>", "!=", "+", "-", "*", "/", "%", "||", "::"])
"""Words that may precede a function of this name; no query ends with them."""


def begin(cursor: Cursor) -> int:
    """The position of the first clause after the query that starts here: a top-level word that starts one."""
    depth = 0
    for i in range(cursor.at, cursor.end):
        keyword = word(cursor.piece.tokens[i])
        depth += (keyword == "(") - (keyword == ")")
        ahead = i - cursor.at
        begins = keyword in _ACCUMULATIONS or cursor.peek("ALLOWED", "LATENESS", ahead=ahead)
        begins = begins or (keyword == "EMIT" and _follows(cursor, i)) or cursor.peek("RETAIN", "INTERVAL", ahead=ahead)
        fills_gaps = cursor.peek("FILL", "(", ahead=ahead) and word(cursor.piece.tokens[i - 1]) not in _INSIDE
        begins = begins or fills_gaps
        if (
            depth == 0
            and i > cursor.at
            and begins
            and word(cursor.piece.tokens[i - 1]) not in ("AS", ".", ",", "SELECT")
        ):
            return i
    return cursor.end


def _follows(cursor: Cursor, at: int) -> bool:
    following = cursor.piece.tokens[at + 1] if at + 1 < cursor.end else None
    return word(following) in ("ON", "EARLY", "LATE", "EVERY", "AFTER", "ANY", "ALL", "IN", "REPEATEDLY", "ONCE", "(")


def read(cursor: Cursor, *, kept: bool = False) -> Clauses:
    """Parse all clauses from here to the end; with `kept` they belong to a stored definition of the catalog."""
    _check_depth(cursor)
    clauses: dict[str, Trigger | Accumulation | Duration | Filling] = {}
    while not cursor.done:
        token = cursor.token
        if cursor.accept("EMIT"):
            key, value = "trigger", _emit(cursor)
        elif cursor.accept("ALLOWED"):
            cursor.expect("LATENESS", hint="ALLOWED LATENESS INTERVAL '1' MINUTE")
            key, value = "lateness", cursor.interval("the allowed lateness")  # type: ignore[assignment]
        elif cursor.accept("RETAIN"):
            key, value = "retain", cursor.interval("how long rows are kept")  # type: ignore[assignment]
        elif cursor.accept("FILL"):
            key, value = "fill", fill.read(cursor)  # type: ignore[assignment]
        else:
            words = (*_ACCUMULATIONS, "EMIT", "ALLOWED LATENESS", "RETAIN", "FILL")
            name = cursor.one_of(words, "a clause of the view")
            key, value = "accumulation", _ACCUMULATIONS[name]  # type: ignore[assignment]
        if key in clauses:
            cursor.at -= 1
            with cursor.text.at(token):
                cursor.fail(f"the {key} is specified twice")
        clauses[key] = value
    return Clauses(**clauses, kept=kept)  # type: ignore[arg-type]


def _check_depth(cursor: Cursor) -> None:
    depth = 0
    for i in range(cursor.at, cursor.end):
        keyword = word(cursor.piece.tokens[i])
        depth += (keyword == "(") - (keyword == ")")
        if depth > _DEEPEST:
            cursor.at = i
            cursor.fail(f"more than {_DEEPEST} nested triggers")


def _emit(cursor: Cursor) -> Trigger:
    if cursor.peek("EARLY") or cursor.peek("LATE") or any(cursor.peek(*words) for words in _CLOSE):
        closes = _closes(cursor)
        early = _when(cursor) if cursor.accept("EARLY") else None
        late: Trigger | None = triggers.ON_CHANGE
        if cursor.accept("LATE"):
            late = None if cursor.accept("NEVER") else _when(cursor)
        if closes and early is None and late == triggers.ON_CHANGE:
            return triggers.on_close()
        return triggers.after_watermark(early=early, late=late)
    return _trigger(cursor)


def _closes(cursor: Cursor) -> bool:
    return any(cursor.accept(*words) for words in _CLOSE)


def _when(cursor: Cursor) -> Trigger:
    return _trigger(cursor)


def _trigger(cursor: Cursor) -> Trigger:
    token = cursor.token
    with cursor.text.at(token):
        trigger = _one(cursor)
        if cursor.accept("UNTIL"):
            trigger = triggers.until(trigger, _one(cursor))
        return trigger


def _one(cursor: Cursor) -> Trigger:
    if cursor.accept("ON", "CHANGE"):
        return triggers.on_change()
    if _closes(cursor):
        return triggers.on_close()
    if cursor.peek("EVERY") or cursor.peek("AFTER"):
        return _counted(cursor)
    for words, make in _GROUPS.items():
        if cursor.accept(*words.split()):
            return make(*_listed(cursor.bracketed()))
    for keyword, wrap in _WRAPS.items():
        if cursor.accept(keyword):
            inner = cursor.bracketed()
            part = _trigger(inner)
            inner.finish()
            return wrap(part)
    if cursor.peek("("):
        inner = cursor.bracketed()
        part = _trigger(inner)
        inner.finish()
        return part
    cursor.fail(
        "when the view emits results is expected here",
        hint="e.g. EMIT ON CHANGE, EMIT ON CLOSE, EMIT EARLY EVERY INTERVAL '1' SECOND, EMIT EVERY 100 ROWS",
    )


def _counted(cursor: Cursor) -> Trigger:
    if cursor.accept("EVERY"):
        if cursor.peek("INTERVAL"):
            return triggers.every(cursor.interval("the interval"), aligned=cursor.accept("ALIGNED"))
        return triggers.repeatedly(_rows(cursor))
    cursor.expect("AFTER")
    if cursor.accept("FRACTION"):
        return triggers.after_fraction(cursor.value("the fraction"))
    if cursor.peek("INTERVAL"):
        return triggers.after_delay(cursor.interval("the delay"), aligned=cursor.accept("ALIGNED"))
    return _rows(cursor)


def _rows(cursor: Cursor) -> Trigger:
    number = cursor.whole("a number of rows")
    if not (cursor.accept("ROWS") or cursor.accept("ROW")):
        cursor.fail("ROWS is expected here", hint="e.g. EVERY 100 ROWS, or EVERY INTERVAL '1' SECOND")
    return triggers.after_count(number)


def _listed(cursor: Cursor) -> list[Trigger]:
    triggers = [_trigger(cursor)]
    while cursor.accept(","):
        triggers.append(_trigger(cursor))
    cursor.finish()
    return triggers
