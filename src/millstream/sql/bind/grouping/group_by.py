"""GROUP BY: binds keys, windows, grouping sets and aggregates, and the output columns over them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from sqlglot import exp

from millstream.errors import SchemaError, Unsupported
from millstream.model.aggregates.aggregate import Aggregate
from millstream.model.expression import Expr, col
from millstream.model.reserved import free_name
from millstream.model.steps.aggregation import INDEX, Aggregated, borders_of
from millstream.model.steps.step import changes
from millstream.model.streams.keyed import Keyed
from millstream.model.streams.stream import Stream
from millstream.model.windows.accumulation import Accumulation
from millstream.model.windows.kinds import AnyWindow, SessionWindow
from millstream.model.windows.trigger import ON_CHANGE
from millstream.model.windows.window import everything
from millstream.model.windows.windowing import Windowing
from millstream.sql.bind import emit, same_expression
from millstream.sql.bind import window_function as over
from millstream.sql.bind.grouping import aggregates, fill
from millstream.sql.bind.grouping.grouping_sets import split
from millstream.sql.bind.result_columns import numbered
from millstream.sql.bind.same_expression import Identity
from millstream.sql.relations import windows
from millstream.sql.relations.relation import BORDERS, HIDDEN, Relation, checked, swap
from millstream.sql.subqueries import correlated, subqueries
from millstream.sql.subqueries.correlated import Outer
from millstream.sql.subqueries.scopes import free_columns

if TYPE_CHECKING:
    from millstream.sql.bind.binder import _Query


_GROUPS = f"{HIDDEN}groups"
"""The name of the groups in a subquery over them."""
_WINDOWS = {"window", "session_window"}
"""The names by which a query refers to the window of its GROUP BY, for its start and end."""


@dataclass
class _Groups:
    """The parts of a GROUP BY."""

    keys: list[tuple[str, exp.Expr]] = field(default_factory=list)
    window: AnyWindow | None = None
    time: str | None = None
    by_borders: bool = False
    sets: list[set[str]] = field(default_factory=list)
    """The keys of each grouping set; empty if there is only one set."""


def grouped(
    query: _Query,
    relation: Relation,
    node: exp.Select,
    items: list[tuple[str, exp.Expr]],
    ctes: Mapping[str, Relation],
    outer: Outer | None = None,
    qualify: exp.Expr | None = None,
) -> tuple[Relation, list[tuple[str, exp.Expr]], exp.Expr | None]:
    """The relation of groups, and the output columns and the condition of QUALIFY over it."""
    grouping = Grouping(query, relation, node, items, ctes, outer)
    groups = grouping.groups_of_rows(qualify)
    if outer is not None and grouping.is_total:
        groups = grouping.completed(groups, outer)
    groups_relation, answer, condition = grouping.bound(groups, qualify)
    if query.clauses.fill is not None and node is query.main_select:
        groups_relation, answer = fill.applied(grouping, groups_relation, answer, condition)
    return groups_relation, answer, condition


class Grouping:
    """The groups of one SELECT."""

    def __init__(
        self,
        query: _Query,
        relation: Relation,
        node: exp.Select,
        items: list[tuple[str, exp.Expr]],
        ctes: Mapping[str, Relation],
        outer: Outer | None,
    ) -> None:
        self.query, self.text, self.node, self.ctes = query, query.text, node, ctes
        self.relation, self.items = relation, items
        self.set = free_name("grouping_set", relation.stream.schema.names)
        """The column that identifies the grouping set of a row."""
        self.table: dict[Identity, str] = {}
        """From a part of the SELECT (over the input) to its column over the groups."""
        self.groups = self._read()
        group = node.args.get("group")
        self.is_total = group is None or (bool(group.args.get("all")) and not self.groups.keys)
        """Whether all rows are one group, which exists even without rows."""
        sets = self.groups.sets if self.groups.window is None else []
        self.totals = tuple(i for i, names in enumerate(sets) if not names)
        """The grouping sets without keys: each is one group, which exists even without rows."""
        if outer is not None and self.totals:
            raise Unsupported(
                "a grouping set without keys in a correlated subquery",
                hint="leave () out: GROUPING SETS ((a, b), (a)) has no total over all rows",
                origin=self.text.of_node(node),
            )
        self.outer = [] if outer is None else outer.names
        for name in self.outer:
            self.table[same_expression.of(exp.column(name))] = name
            self.groups.keys.append((name, exp.column(name)))
            self.groups.sets = [{*names, name} for names in self.groups.sets]
        self.measures: dict[str, Aggregate] = {}

    def groups_of_rows(self, qualify: exp.Expr | None = None) -> Relation:
        """The groups with their keys and aggregates."""
        having = self.node.args.get("having")
        more = [p for p in (None if having is None else having.this, qualify) if p is not None]
        measures = self._measures([*(i for _, i in self.items), *more])
        keyed = self._keyed()
        with self.text.at(self.node):
            if not measures:  # only keys: a group exists as soon as it has a row
                measures = {free_name("rows_", (n for n, _ in self.groups.keys)): Aggregate("count")}
            stream = keyed.aggregate(**measures)
        step = stream.step
        if isinstance(step, Aggregated) and self.totals:
            stream = stream._with(replace(step, totals=self.totals))
        self.measures = measures
        return Relation(stream)

    def completed(self, groups: Relation, outer: Outer) -> Relation:
        """The groups of a subquery without GROUP BY: one for each value of the enclosing rows, even without rows."""
        correlated.check_over_no_rows(self.query, self.measures, self.node)
        values = outer.values(outer.names)
        on = outer.on(correlated.inside(values, groups), values=True)
        joined_groups, names = correlated.joined(self.query, values, groups, "left", on, self.node)
        measures = {n: Expr(correlated.over_no_rows(m.kind, exp.column(names[n]))) for n, m in self.measures.items()}
        outer.equal.clear()
        return Relation(joined_groups.stream.select(**{n: col(n) for n in outer.names}, **measures))

    def bound(
        self, groups: Relation, qualify: exp.Expr | None
    ) -> tuple[Relation, list[tuple[str, exp.Expr]], exp.Expr | None]:
        """The groups that pass HAVING, and the output columns and the condition of QUALIFY over them."""
        groups_relation = replace(groups, aliases={_GROUPS: {n.lower(): n for n in groups.stream.schema.names}})
        having = self.node.args.get("having")
        if having is not None:
            groups_relation, tree = subqueries.attached(self.query, groups_relation, self.over(having.this), self.ctes)
            condition = checked(self.text, tree, clock=True)
            with self.text.at(having):
                groups_relation = groups_relation.with_stream(groups_relation.stream.where(condition))
        items = []
        for name, inner in self.items:
            groups_relation, tree = subqueries.attached(self.query, groups_relation, self.over(inner), self.ctes)
            items.append((name, tree))
        qualified = None
        if qualify is not None:
            groups_relation, qualified = subqueries.attached(self.query, groups_relation, self.over(qualify), self.ctes)
        return groups_relation, [*items, *((n, exp.column(n)) for n in self.outer)], qualified

    # ------------------------------------------------------------ keys

    def _read(self) -> _Groups:
        group = self.node.args.get("group")
        pending = self.relation.windowed
        groups = _Groups() if pending is None else _Groups(window=pending.window, time=pending.time)
        if group is None:
            self._check_borders(groups)
            return groups
        plain, sets = split(self.text, group)
        for each in plain:
            self._key(groups, self._spelled(each))
        for each in self._all() if group.args.get("all") else ():
            self._key(groups, each)
        always = {n for n, _ in groups.keys}
        by_window: set[bool] = set()
        for members in sets:
            named = [self._key(groups, self._spelled(each)) for each in members]
            by_window.add(None in named)
            groups.sets.append(always | {n for n in named if n is not None})
        if len(by_window) > 1:
            raise Unsupported(
                "a window in some of the grouping sets only",
                hint="group by it outside of them, or in each: GROUPING SETS ((window_start, window_end, a), ...)",
                origin=self.text.of_node(group),
            )
        self._check_borders(groups)
        return groups

    def _all(self) -> list[exp.Expr]:
        """The keys of GROUP BY ALL: each output column that is neither an aggregate nor a constant."""
        plain = [i for _, i in self.items if i.find(exp.Column) is not None or windows.name_of(i)]
        return [i for i in plain if i.find(exp.Window) is None and not any(True for _ in aggregates.aggregates_in(i))]

    def _spelled(self, node: exp.Expr) -> exp.Expr:
        """The expression of a key: a number or a name may refer to an output column."""
        inner = node.this if isinstance(node, exp.Paren) else node
        item = numbered(self.text, inner, self.items, "GROUP BY", part=node)
        if item is not None:
            return item[1]
        if isinstance(inner, exp.Column) and len(inner.parts) == 1:
            known = {n.lower() for n in (*self.relation.names, *(c for a in self.relation.aliases.values() for c in a))}
            alias = next((i for n, i in self.items if n.lower() == inner.name.lower()), None)
            if inner.name.lower() not in known and alias is not None:
                return alias
        return inner

    def _key(self, groups: _Groups, node: exp.Expr) -> str | None:
        """Add one item of GROUP BY; returns its name if it is a key."""
        called = windows.name_of(node)
        if called in windows.GROUPING:
            call = windows.group_call(self.text, node)  # type: ignore[arg-type]
            time = windows.check_time(self.text, call, self.relation)
            if groups.window is not None:
                raise Unsupported(
                    "two windows in one GROUP BY",
                    hint="write a view for each, or CUMULATE for windows that grow",
                    origin=self.text.of_node(node),
                )
            groups.window, groups.by_borders = windows.window_of(self.text, call), True
            groups.time = time
            if isinstance(groups.window, SessionWindow) and groups.window.gap_by is not None:
                groups.window = SessionWindow(gap_by=self.relation.expr(self.text, call.values["gap"]))
            return None
        if called in windows.STARTS | windows.ENDS | windows.TIMES:
            return None
        if self.relation.windowed is not None and isinstance(node, exp.Column):
            borders = borders_of(Windowing(self.relation.windowed.window))
            if node.name.lower() in (*BORDERS, *borders):
                groups.by_borders = groups.by_borders or node.name.lower() in borders
                return None
        tree = self.relation.resolved(self.text, node)
        identity = same_expression.of(tree)
        if identity in self.table:
            return self.table[identity]
        if any(True for _ in aggregates.aggregates_in(node)):
            raise SchemaError("an aggregate cannot be grouped by", origin=self.text.of_node(node))
        name = tree.name if isinstance(tree, exp.Column) else self._alias(identity) or f"key_{len(groups.keys) + 1}"
        name = free_name(name, (n for n, _ in groups.keys))
        self.table[identity] = name
        groups.keys.append((name, tree))
        return name

    def _alias(self, identity: Identity) -> str | None:
        for name, inner in self.items:
            computed = any(True for _ in aggregates.aggregates_in(inner)) or inner.find(exp.Query) is not None
            if not computed and not windows.name_of(inner):
                try:
                    tree = self.relation.resolved(self.text, inner)
                except SchemaError:
                    continue
                if same_expression.of(tree) == identity:
                    return name
        return None

    def _check_borders(self, groups: _Groups) -> None:
        pending = self.relation.windowed
        if pending is None:
            return
        if not groups.by_borders:
            raise Unsupported(
                "the rows of a window function are grouped without their window",
                hint="add window_start, window_end to GROUP BY",
                origin=self.text.of_node(self.node),
            )
        if isinstance(pending.window, SessionWindow) and set(pending.partition) != {n for n, _ in groups.keys}:
            keys = ", ".join(n for n, _ in groups.keys)
            raise Unsupported(
                "sessions are cut by other columns than the rows are grouped by",
                hint=f"SESSION(TABLE ... PARTITION BY {keys}, ...)" if keys else "leave PARTITION BY out",
                origin=self.text.of_node(self.node),
            )

    def _keyed(self) -> Keyed:
        stream, groups = self._rows(), self.groups
        keys = {n: self._expression(t) for n, t in groups.keys}
        if groups.sets:
            numbers = ", ".join(str(i) for i in range(len(groups.sets)))
            with self.text.at(self.node):
                stream = stream._flattened(self.set, f"array({numbers})")
            keys = {n: _in_sets(e, n, groups.sets, self.set) for n, e in keys.items()}
            keys[self.set] = col(self.set)
        with self.text.at(self.node):
            plain = [n for n, e in keys.items() if e.spark() == f"`{n}`"]
            if len(plain) == len(keys):
                keyed = stream.key_by(*(col(n) for n in plain)) if keys else Keyed(stream, ())
            else:
                keyed = stream.key_by(**keys)
            return self._windowed(keyed)

    def _rows(self) -> Stream:
        """The rows to group: with a window, those that have a time."""
        relation, window, time = self.relation, self.groups.window, self.groups.time
        if window is None or time is None or time in relation.clocks or not changes(relation.stream.step):
            return relation.stream
        with self.text.at(self.node):
            return windows.known_times(relation, window, time)

    def _expression(self, tree: exp.Expr) -> Expr:
        return self.relation.expr(self.text, tree)

    def _windowed(self, keyed: Keyed) -> Keyed:
        clauses, mine = self.query.clauses, self.node is self.query.main_select
        window = self.groups.window
        has_clauses = mine and (clauses.trigger, clauses.accumulation, clauses.lateness) != (None, None, None)
        panes = self.query.options.get("panes") if mine else None
        if window is None and not has_clauses and panes is None:
            return keyed
        if window is None and emit.by_rows(self.query, self.relation, self.node):
            return keyed
        windowing: dict[str, object] = {}
        if mine:
            windowing = {"trigger": clauses.trigger or ON_CHANGE, "panes": panes}
            windowing["accumulation"] = clauses.accumulation or Accumulation.RETRACTING
            if clauses.lateness is not None:
                windowing["lateness"] = clauses.lateness
        time, relation = self.groups.time, self.relation
        by_watermark = time in relation.times | relation.clocks and not changes(relation.stream.step)
        if time is not None and window is not None and not by_watermark:
            windowing["time"] = time
        return keyed.window(window or everything(), **windowing)  # type: ignore[arg-type]

    # ------------------------------------------------------------ aggregates and output columns

    def _measures(self, parts: list[exp.Expr]) -> dict[str, Aggregate]:
        measures: dict[str, Aggregate] = {}
        names_in_use = {n.lower() for n, _ in self.groups.keys} | {*BORDERS, INDEX, self.set.lower()}
        named = {i.sql(dialect="spark"): n for n, i in reversed(self.items) if aggregates.is_aggregate(i)}
        for part in parts:
            for node in aggregates.aggregates_in(part):
                if isinstance(node, exp.Grouping | exp.GroupingId) or windows.name_of(node) in (
                    "grouping",
                    "grouping_id",
                ):
                    continue
                identity = same_expression.of(self.relation.resolved(self.text, node))
                if identity in self.table:
                    continue
                name = named.get(node.sql(dialect="spark")) or aggregates.name_of(node)
                fresh, number = name, 2
                while fresh.lower() in names_in_use:
                    fresh, number = f"{name}_{number}", number + 1
                names_in_use.add(fresh.lower())
                with self.text.at(node):
                    measures[fresh] = aggregates.aggregate_of(
                        self.text, node, lambda n: self.relation.expr(self.text, n)
                    )
                self.table[identity] = fresh
        return measures

    def over(self, node: exp.Expr) -> exp.Expr:
        """A part of the SELECT over the groups."""
        root = exp.Paren(this=node.copy())
        over: exp.Expr = swap(root, lambda p: None if p is root else self._replaced(p)).this
        return over

    def _replaced(self, part: exp.Expr) -> exp.Expr | None:  # noqa: PLR0911 - one for each kind of part
        """The replacement of a part over the groups; None means to look inside it."""
        if isinstance(part, exp.Literal | exp.Null | exp.Boolean | exp.DataType | exp.Interval):
            return part
        if isinstance(part, exp.Identifier | exp.Var | exp.Lambda) or over.is_call(part):
            return None
        if isinstance(part, exp.Query):
            return self._subquery(part)
        if part.find(exp.Query) is not None:
            return None
        border = self._border(part) if self.groups.window is not None else None
        if border is not None:
            return border
        if _is_grouping(part):
            return self._grouping(part)
        try:
            name = self.table.get(same_expression.of(self.relation.resolved(self.text, part)))
        except SchemaError:
            name = None
        if name is not None:
            return exp.column(name)
        if isinstance(part, exp.Column):
            answer = self._answer(part)
            if answer is not None:
                return answer
            self.relation.resolved(self.text, part)  # raises if there is no such column
            raise SchemaError(
                f"`{part.name}` is neither grouped by nor inside an aggregate",
                hint=f"add it to GROUP BY, or take one of its values: max({part.name})",
                origin=self.text.of_node(part),
            )
        return None

    def _answer(self, part: exp.Column) -> exp.Expr | None:
        """An output column that HAVING names: ``HAVING n > 1`` for ``count(*) AS n``."""
        known = {n.lower() for n in (*self.relation.names, *(c for a in self.relation.aliases.values() for c in a))}
        if len(part.parts) != 1 or part.name.lower() in known:
            return None
        item = next((i for n, i in self.items if n.lower() == part.name.lower()), None)
        return None if item is None or item is part else exp.paren(self.over(item))

    def _subquery(self, node: exp.Query) -> exp.Expr:
        """A subquery over the groups: its columns of the enclosing rows are those of their group."""
        for column in free_columns(self.query, node, self.ctes, self.relation):
            replacement = self._replaced(column)
            for key in [] if replacement is None else [replacement, *replacement.find_all(exp.Column)]:
                if isinstance(key, exp.Column):
                    key.set("table", exp.to_identifier(_GROUPS))
            column.replace(replacement if replacement is not None else column)
        return node

    def _border(self, part: exp.Expr) -> exp.Expr | None:
        """The window of a group, or one of its bounds, if a part refers to it."""
        assert self.groups.window is not None
        called, start, end = windows.name_of(part), exp.column("window_start"), exp.column("window_end")
        name = part.name.lower() if isinstance(part, exp.Column) else ""
        table = part.table.lower() if isinstance(part, exp.Column) else ""
        of_window = table in _WINDOWS and name not in self.relation.aliases.get(table, {})
        name = "" if name in {n.lower() for n, _ in self.groups.keys} and not of_window else name
        border: exp.Expr | None = None
        windows.check_border(self.text, part, self.groups.window)
        if called in windows.STARTS or name == "window_start" or (of_window and name == "start"):
            border = start
        elif called in windows.ENDS or name == "window_end" or (of_window and name == "end"):
            border = end
        elif called in windows.TIMES or name == "window_time":
            border = end - exp.Interval(this=exp.Literal.string("1"), unit=exp.var("MILLISECOND"))
        elif name == INDEX and INDEX in borders_of(Windowing(self.groups.window)):
            border = exp.column(INDEX)
        elif called in windows.GROUPING or (name in _WINDOWS and self.relation.windowed is None):
            literal = exp.Literal.string
            border = exp.func("named_struct", literal("start"), start, literal("end"), end)
        return border

    def _grouping(self, node: exp.Expr) -> exp.Expr:
        """GROUPING(key): 1 in the sets that do not contain the key."""
        arguments = [*([node.this] if isinstance(node.args.get("this"), exp.Expr) else []), *node.expressions]
        if len(arguments) != 1 or not self.groups.sets:
            raise Unsupported(
                "GROUPING needs one key, in a query with GROUPING SETS, ROLLUP or CUBE",
                hint="SELECT a, grouping(a), count(*) ... GROUP BY ROLLUP (a)",
                origin=self.text.of_node(node),
            )
        name = self.table.get(same_expression.of(self.relation.resolved(self.text, arguments[0])))
        without = [i for i, names in enumerate(self.groups.sets) if name not in names]
        if not without:
            return exp.Literal.number(0)
        return exp.case().when(exp.column(self.set).isin(*without), "1").else_("0")


def _is_grouping(part: exp.Expr) -> bool:
    return isinstance(part, exp.Grouping | exp.GroupingId) or windows.name_of(part) in ("grouping", "grouping_id")


def _in_sets(key: Expr, name: str, sets: list[set[str]], of: str) -> Expr:
    inside = [i for i, names in enumerate(sets) if name in names]
    if len(inside) == len(sets):
        return key
    return Expr(exp.case().when(exp.column(of).isin(*inside), key.node.copy()), key.origin)
