"""MATCH_RECOGNIZE: parses its clauses from tokens and binds them to the pattern-matching step.

    MATCH_RECOGNIZE (
      PARTITION BY auction ORDER BY ts
      MEASURES FIRST(a.price) AS was, LAST(b.price) AS now
      ONE ROW PER MATCH | ALL ROWS PER MATCH
      AFTER MATCH SKIP PAST LAST ROW | TO NEXT ROW | TO [FIRST | LAST] b
      PATTERN (a b+? (c | d){1,3} {- e* -}) WITHIN INTERVAL '10' MINUTE EMIT TIMEOUTS
      SUBSET u = (a, b)
      DEFINE a AS price > 100, b AS price < PREV(price)
    )

Before parsing, the clause is cut out of the query; in the tree, a LATERAL VIEW that records its position represents it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import permutations
from typing import TYPE_CHECKING

from sqlglot import exp
from sqlglot.tokens import Token, TokenType  # type: ignore[attr-defined]

from millstream.errors import DefinitionError, Unsupported
from millstream.model.expression import Expr
from millstream.model.patterns.navigation import NAMES, tokens_prepared
from millstream.model.patterns.pattern import PAST_LAST, TO_NEXT, Skip
from millstream.model.patterns.tree import Choice, Excluded, Part, Repeat, Sequence, Variable
from millstream.model.steps.pattern import matched
from millstream.model.types.duration import Duration
from millstream.sql.parse import queries
from millstream.sql.parse.cursor import Cursor
from millstream.sql.parse.match_recognize import NAME, stands_for
from millstream.sql.parse.script import StatementText
from millstream.sql.parse.text import Text, tokens, word
from millstream.sql.relations.relation import Relation, checked

if TYPE_CHECKING:
    from millstream.sql.bind.binder import _Query

_CLAUSES = (
    "PARTITION BY",
    "ORDER BY",
    "MEASURES",
    "ONE",
    "ALL",
    "AFTER",
    "PATTERN",
    "WITHIN",
    "EMIT",
    "SUBSET",
    "DEFINE",
)
_MOST_PERMUTED = 5


def clause_of(node: exp.Select) -> exp.Lateral | None:
    """The LATERAL VIEW of a SELECT that represents a MATCH_RECOGNIZE."""
    return next((v for v in node.args.get("laterals") or () if stands_for(v)), None)


def recognized(query: _Query, relation: Relation, node: exp.Select, clause: exp.Lateral) -> Relation:
    """A relation with its MATCH_RECOGNIZE applied."""
    text = query.text
    start, end = (int(n.name) for n in clause.this.expressions)
    for join in node.args.get("joins") or ():
        place = min((n.meta["start"] for n in join.walk() if "start" in n.meta), default=end)
        if place < start:
            raise Unsupported(
                "MATCH_RECOGNIZE after a JOIN",
                hint="make a subquery of one of them: FROM (SELECT ... FROM a JOIN b ON ...) MATCH_RECOGNIZE (...)",
                origin=text.origin(start, start + len(NAME) - 1),
            )
    inside = [t for t in tokens(text) if start <= t.start and t.end <= end]
    read = _read(text, tuple(inside))
    with text.at(inside[0]):
        stream = relation.stream._with(read.step(query, relation))
    return Relation(stream).called(clause.alias)


@dataclass
class _Clauses:
    """The clauses of a MATCH_RECOGNIZE."""

    text: Text
    first: Token
    keys: list[tuple[Token, ...]] = field(default_factory=list)
    order: list[tuple[Token, ...]] = field(default_factory=list)
    measures: dict[str, tuple[Token, ...]] = field(default_factory=dict)
    all_rows: bool = False
    skip: Skip = PAST_LAST
    pattern: Part | None = None
    within: Duration | None = None
    timeouts: bool = False
    subsets: dict[str, tuple[str, ...]] = field(default_factory=dict)
    conditions: dict[str, tuple[Token, ...]] = field(default_factory=dict)

    def step(self, query: _Query, relation: Relation):  # type: ignore[no-untyped-def]
        """The pattern-matching step."""
        text = self.text
        if self.pattern is None:
            raise DefinitionError("PATTERN is missing", hint="e.g. PATTERN (a b+)", origin=text.of_token(self.first))
        if not self.order:
            raise DefinitionError("ORDER BY is missing", hint="the event time", origin=text.of_token(self.first))
        tree = partial(_tree, query)
        keys = []
        for i, partition in enumerate(self.keys):
            key = relation.expr(text, tree(partition))
            plain = key.columns()[0] if len(key.columns()) == 1 and key.spark() == f"`{key.columns()[0]}`" else None
            keys.append((plain or f"key_{i}", key))
        time, order = self._order(relation, tree)
        spelled = {v.lower(): v for v in _variables(self.pattern)}
        conditions = {spelled.get(n.lower(), n): tree(c) for n, c in self.conditions.items()}
        measures = {n: tree(m) for n, m in self.measures.items()}
        expression_of: Callable[[exp.Expr], Expr] = partial(checked, text)
        return matched(
            relation.stream.step,
            tuple(keys),
            time,
            self.pattern,
            conditions,
            measures,
            skip=self.skip,
            within=self.within,
            order=order,
            subsets=self.subsets,
            all_rows=self.all_rows,
            timeouts=self.timeouts,
            origin_of=text.of_node,
            build=expression_of,
        )

    def _order(
        self, relation: Relation, tree: Callable[[tuple[Token, ...]], exp.Expr]
    ) -> tuple[str, tuple[tuple[str, bool, bool], ...]]:
        order_columns: list[tuple[str, bool, bool]] = []
        for order in self.order:
            rest, nulls, down = order, None, False
            words = [word(t) for t in rest]
            if len(words) > 2 and words[-2] == "NULLS" and words[-1] in ("FIRST", "LAST"):
                nulls, rest = words[-1] == "FIRST", rest[:-2]
            if len(rest) > 1 and word(rest[-1]) in ("ASC", "DESC"):
                down, rest = word(rest[-1]) == "DESC", rest[:-1]
            column = relation.resolved(self.text, tree(rest))
            if not isinstance(column, exp.Column) or (down and not order_columns):
                raise Unsupported(
                    "rows are matched in the order of event time, upwards",
                    hint="ORDER BY ts; other columns can follow, for rows of one time",
                    origin=self.text.of_token(order[0]),
                )
            order_columns.append((column.name, down, not down if nulls is None else nulls))
        return order_columns[0][0], tuple(order_columns[1:])


def _tree(query: _Query, tokens: tuple[Token, ...]) -> exp.Expr:
    """An expression in a clause, checked like any expression of a query."""
    text = query.text
    tree = queries.parsed(text, tuple(tokens_prepared(tokens)))
    queries.check(text, tree, tokens[0], functions=NAMES | set(query.binder.catalog.functions))
    if tree.find(exp.Query) is not None or not isinstance(tree, exp.Condition):
        raise Unsupported("only an expression is allowed here", origin=text.of_token(tokens[0]))
    return tree


def _variables(part: Part) -> Iterator[str]:
    from millstream.model.patterns.tree import named

    yield from named(part)


def _read(text: Text, tokens: tuple[Token, ...]) -> _Clauses:
    """Parse the clauses from the tokens of MATCH_RECOGNIZE (...)."""
    piece = StatementText(text, tokens)
    whole = Cursor(piece, first=1)
    inside = whole.bracketed()
    clauses = _Clauses(text, tokens[0])
    seen: set[str] = set()
    while not inside.done:
        name = word(inside.token)
        if name not in _CLAUSES:
            inside.one_of(_CLAUSES, "a clause of MATCH_RECOGNIZE")
        if name in seen:
            inside.fail(f"{name} appears twice")
        seen.add(name)
        inside.at += 1
        end = _end_of_clause(inside)
        _clause(clauses, name, Cursor(piece, first=inside.at, last=end))
        inside.at = end
    return clauses


def _end_of_clause(inside: Cursor) -> int:
    depth = 0
    for i in range(inside.at, inside.end):
        token = inside.piece.tokens[i]
        keyword = word(token)
        if depth == 0 and keyword in _CLAUSES and i > inside.at:
            following = word(inside.piece.tokens[i + 1]) if i + 1 < inside.end else ""
            rows = {"ONE": ("ROW",), "ALL": ("ROWS",), "AFTER": ("MATCH",), "EMIT": ("TIMEOUTS",), "PATTERN": ("(",)}
            if keyword not in rows or following in rows[keyword]:
                return i
        depth += (token.token_type is TokenType.L_PAREN) - (token.token_type is TokenType.R_PAREN)
    return inside.end


def _clause(clauses: _Clauses, name: str, cursor: Cursor) -> None:
    if name in ("PARTITION BY", "ORDER BY"):
        (clauses.keys if name == "PARTITION BY" else clauses.order).extend(_listed(cursor))
    elif name == "MEASURES":
        for item in _listed(cursor):
            if len(item) < 3 or word(item[-2]) != "AS":
                raise DefinitionError("a measure needs a name: ... AS name", origin=cursor.text.of_token(item[-1]))
            if str(item[-1].text) in clauses.measures:
                raise DefinitionError(f"two measures `{item[-1].text}`", origin=cursor.text.of_token(item[-1]))
            clauses.measures[str(item[-1].text)] = item[:-2]
    elif name == "DEFINE":
        for item in _listed(cursor):
            if len(item) < 3 or word(item[1]) != "AS":
                raise DefinitionError("variable AS condition is expected", origin=cursor.text.of_token(item[0]))
            clauses.conditions[str(item[0].text)] = item[2:]
    elif name == "SUBSET":
        for item in _listed(cursor):
            names = [str(t.text) for t in item[3:-1] if t.token_type is not TokenType.COMMA]
            if len(item) < 5 or word(item[1]) != "=" or word(item[2]) != "(":
                raise DefinitionError("name = (a, b) is expected", origin=cursor.text.of_token(item[0]))
            clauses.subsets[str(item[0].text)] = tuple(names)
    elif name == "PATTERN":
        inner = cursor.bracketed()
        with cursor.text.at(inner.token):
            clauses.pattern = _choice(inner)
        inner.finish()
        cursor.finish()
    else:
        _small(clauses, name, cursor)


def _small(clauses: _Clauses, name: str, cursor: Cursor) -> None:
    """Parse the short clauses."""
    if name == "ONE":
        cursor.expect("ROW", "PER", "MATCH")
    elif name == "ALL":
        cursor.expect("ROWS", "PER", "MATCH")
        clauses.all_rows = True
        if cursor.peek("WITH", "UNMATCHED"):
            raise Unsupported("WITH UNMATCHED ROWS", origin=cursor.text.of_token(cursor.take()))
        for more in (("SHOW", "EMPTY", "MATCHES"), ("OMIT", "EMPTY", "MATCHES")):
            cursor.accept(*more)  # there are none
    elif name == "AFTER":
        cursor.expect("MATCH", "SKIP")
        clauses.skip = _skip(cursor)
    elif name == "WITHIN":
        clauses.within = cursor.interval("the time of a match")
    else:
        cursor.expect("TIMEOUTS")
        clauses.timeouts = True
    cursor.finish()


def _skip(cursor: Cursor) -> Skip:
    if cursor.accept("PAST", "LAST", "ROW"):
        return PAST_LAST
    cursor.expect("TO", hint="PAST LAST ROW, TO NEXT ROW, TO FIRST a, TO LAST a")
    if cursor.accept("NEXT", "ROW"):
        return TO_NEXT
    to = "to first" if cursor.accept("FIRST") else "to last"
    cursor.accept("LAST")
    return Skip(to, cursor.name("variable"))


def _listed(cursor: Cursor) -> list[tuple[Token, ...]]:
    """The comma-separated parts."""
    items: list[list[Token]] = [[]]
    depth = 0
    while not cursor.done:
        token = cursor.take()
        if depth == 0 and token.token_type is TokenType.COMMA:
            items.append([])
            continue
        depth += (word(token) in ("(", "[")) - (word(token) in (")", "]"))
        items[-1].append(token)
    if not all(items):
        cursor.fail("something is expected here")
    return [tuple(item) for item in items]


# ---------------------------------------------------------------- the pattern itself


def _choice(cursor: Cursor) -> Part:
    parts = [_sequence(cursor)]
    while cursor.accept("|"):
        parts.append(_sequence(cursor))
    return parts[0] if len(parts) == 1 else Choice(tuple(parts))


def _sequence(cursor: Cursor) -> Part:
    parts: list[Part] = []
    while not cursor.done and word(cursor.token) not in ("|", ")", "}", "-", ","):
        parts.append(_repeated(cursor))
    if not parts:
        cursor.fail("a variable of the pattern is expected here")
    return parts[0] if len(parts) == 1 else Sequence(tuple(parts))


def _repeated(cursor: Cursor) -> Part:
    part = _one(cursor)
    for sign, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1)), ("??", (0, 1))):
        if cursor.accept(sign):
            reluctant = sign == "??" or cursor.accept("?")
            return Repeat(part, bounds[0], bounds[1], reluctant)
    if not cursor.peek("{") or cursor.peek("{", "-"):
        return part
    cursor.expect("{")
    least = 0 if cursor.peek(",") else cursor.whole("how often")
    most: int | None = least
    if cursor.accept(","):
        most = None if cursor.peek("}") else cursor.whole("how often at most")
    cursor.expect("}")
    return Repeat(part, least, most, cursor.accept("?"))


def _one(cursor: Cursor) -> Part:
    if cursor.accept("("):
        inner = _choice(cursor)
        cursor.expect(")")
        return inner
    if cursor.accept("{"):
        cursor.expect("-")
        inner = _choice(cursor)
        cursor.expect("-", "}")
        return Excluded(inner)
    token = cursor.take()
    if word(token) in ("^", "$"):
        raise Unsupported(
            "^ and $ in a pattern: a stream has no first and no last row", origin=cursor.text.of_token(token)
        )
    if word(token) == "PERMUTE" and cursor.accept("("):
        return _permuted(cursor)
    cursor.at -= 1
    return Variable(cursor.name("variable"))


def _permuted(cursor: Cursor) -> Part:
    parts = [_choice(cursor)]
    while cursor.accept(","):
        parts.append(_choice(cursor))
    if len(parts) > _MOST_PERMUTED:
        cursor.fail(f"PERMUTE of more than {_MOST_PERMUTED} parts")
    cursor.expect(")")
    return Choice(tuple(Sequence(one) for one in permutations(parts)))
