"""A plain model of what statements do to a home: names, kinds, texts, rows, what depends on what. And random
statements, valid and not, with what the model says of them.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

Row = tuple[int, int]

GOOD = ["a", "A", "b", "Cc", "dd", "op", "epoch", "ts", "`order`", "`select`", "v_1", "x" * 63]
BAD = ["`../../canary`", "`/tmp/x`", "`x y`", "`é`", "`$x`", "`a.b`", "`..`", "`" + "x" * 300 + "`", "9a", "``"]
TOPICS = ["t", "u", "T", "long" * 15, "op"]
BAD_TOPICS = ["../../canary", "/tmp/x", "x y", "é", "", "..", "x" * 300, "topics.lock", ".t"]
FLOWS = ["f", "F", "g" * 63, "checkpoint", "a"]
BAD_FLOWS = ["../../canary", "{outside}", "x y", "..", "é", "x" * 64, "$f", "a/b"]
READ = ("source", "view", "table")
"""What a query can read."""
BUILT_IN = ["upper", "count", "tumble"]


@dataclass
class Entry:
    """A definition."""

    kind: str
    sql: str
    needs: set[str] = field(default_factory=set)
    topic: str | None = None


@dataclass
class Model:
    """What a home holds."""

    entries: dict[str, Entry] = field(default_factory=dict)
    tables: dict[str, dict[int, int]] = field(default_factory=dict)
    topics: dict[str, list[Row]] = field(default_factory=dict)
    flow_of: dict[str, str] = field(default_factory=dict)
    """The flow of every view and fed sink, as the home has chosen it."""
    paused: set[str] = field(default_factory=set)
    """Flows."""

    def copy(self) -> Model:
        tables = {n: dict(rows) for n, rows in self.tables.items()}
        topics = {n: list(rows) for n, rows in self.topics.items()}
        return Model(dict(self.entries), tables, topics, dict(self.flow_of), set(self.paused))

    def dependents(self, name: str) -> set[str]:
        found = {name}
        while more := {n for n, e in self.entries.items() if e.needs & found} - found:
            found |= more
        return found - {name}

    def remove(self, names: set[str]) -> None:
        for name in names:
            del self.entries[name]
            self.tables.pop(name, None)
            self.flow_of.pop(name, None)
        self.paused &= set(self.flow_of.values())

    def feeds(self, names: set[str], sink: str) -> set[str]:
        """The topics that what these names read comes from, through sinks too; but not through the sink that is asked
        about, whose definition goes.
        """
        topics: set[str] = set()
        todo = list(names)
        while todo:
            entry = self.entries[todo.pop()]
            todo += entry.needs
            if entry.kind == "source" and entry.topic is not None and entry.topic not in topics:
                topics.add(entry.topic)
                todo += [
                    n for n, e in self.entries.items() if e.kind == "sink" and e.topic == entry.topic and n != sink
                ]
        return topics


Effect = Callable[[Model], None]


@dataclass
class Step:
    """A statement; what it does to the model, or None where it must be refused."""

    sql: str
    effect: Effect | None
    new: str = ""
    """The view or sink whose flow the home chooses."""


def nothing(model: Model) -> None:
    """It is there already, or is not there."""


class Speaker:
    """Says random statements, with what a model makes of them."""

    def __init__(self, seed: int, outside: str) -> None:
        self.random = random.Random(seed)
        self.outside = outside

    def next(self, model: Model) -> Step:
        """The next one, for a home that is as the model says."""
        kinds = {
            self.source: 3, self.table: 3, self.view: 5, self.sink: 3, self.feed: 2, self.insert: 6, self.change: 4,
            self.drop: 7, self.drop_topic: 1, self.pause: 2, self.function: 1, self.wrong: 1,
        }  # fmt: skip
        (made,) = self.random.choices(list(kinds), list(kinds.values()))
        return made(model)

    def _name(self) -> str:
        return self.random.choice(BAD if self.random.random() < 0.08 else GOOD)

    def _known(self, model: Model, *kinds: str) -> str:
        """A name that is likely there."""
        there = [n for n, e in model.entries.items() if e.kind in kinds]
        return self.random.choice(there) if there and self.random.random() < 0.9 else self._name().strip("`")

    def _topic(self) -> str:
        return self.random.choice(BAD_TOPICS if self.random.random() < 0.1 else TOPICS)

    def _create(self, model: Model, kind: str, name: str, tail: str, entry: Entry, wrong: bool, then: Effect) -> Step:
        how = self.random.choice(["", "", "", "OR REPLACE ", "IF NOT EXISTS "])
        start = f"CREATE {kind.upper()} {how}" if how.startswith("IF") else f"CREATE {how}{kind.upper()} "
        sql, key = f"{start}{name} {tail}", name.strip("`").lower()
        entry.sql = sql
        there = model.entries.get(key)
        if name in BAD:
            return Step(sql, None)
        if there is not None:
            if there.kind != kind:
                return Step(sql, None)
            fed_later = kind == "sink" and not entry.needs and there.sql.startswith(f"{sql} AS ")
            if how.startswith("IF") or there.sql == sql or fed_later:
                return Step(sql, nothing)
            if how != "OR REPLACE " or model.dependents(key):
                return Step(sql, None)
        if wrong or key in entry.needs:
            return Step(sql, None)

        def effect(after: Model) -> None:
            if key in after.entries:
                after.remove({key})
            after.entries[key] = entry
            then(after)

        return Step(sql, effect, key if kind in ("view", "sink") and entry.needs else "")

    def source(self, model: Model) -> Step:
        name, topic = self._name(), self._topic()
        alike = any(t.lower() == topic.lower() and t != topic for t in model.topics)
        wrong = topic in BAD_TOPICS or (alike and topic not in model.topics)
        options = self.random.choice(["", "", "", ", partitions = 0", ", key = 'none'"])
        wrong = wrong or bool(options and topic not in model.topics)
        tail = f"(k BIGINT, v BIGINT) FROM LOG('{topic}'{options})"
        entry = Entry("source", "", topic=topic)
        return self._create(model, "source", name, tail, entry, wrong, lambda m: m.topics.setdefault(topic, []))

    def table(self, model: Model) -> Step:
        name = self._name()
        key = self.random.choice(["PRIMARY KEY", "PRIMARY KEY", "PRIMARY KEY", ", PRIMARY KEY (none)"])
        wrong = "none" in key
        made = name.strip("`").lower()
        tail = f"(k BIGINT {key}, v BIGINT)".replace(" ,", ",")
        return self._create(
            model, "table", name, tail, Entry("table", ""), wrong, lambda m: m.tables.update({made: {}})
        )

    def view(self, model: Model) -> Step:
        name, read = self._name(), self._known(model, *READ)
        there = model.entries.get(read.lower())
        wrong = there is None or there.kind not in READ
        flow, option = self._flow()
        column = "none" if self.random.random() < 0.05 else "v"
        tail = f"{option}AS SELECT k, v FROM `{read}` WHERE {column} > {self.random.randrange(3)}"
        entry = Entry("view", "", {read.lower()})
        return self._create(model, "view", name, tail, entry, wrong or column == "none" or flow, lambda m: None)

    def _flow(self) -> tuple[bool, str]:
        """Whether a flow is wrong, and the option that asks for it."""
        chance = self.random.random()
        if chance < 0.6:
            return False, ""
        flow = self.random.choice(BAD_FLOWS if chance < 0.75 else FLOWS).format(outside=self.outside)
        return chance < 0.75, f"WITH (flow = '{flow}') "

    def sink(self, model: Model) -> Step:
        name, topic, read = self._name(), self._topic(), self._known(model, *READ)
        there = model.entries.get(read.lower())
        fed = self.random.random() < 0.7
        if not fed:
            return self._create(
                model,
                "sink",
                name,
                f"INTO LOG('{topic}')",
                Entry("sink", "", topic=topic),
                topic in BAD_TOPICS,
                nothing,
            )
        wrong = topic in BAD_TOPICS or there is None or there.kind not in READ
        wrong = wrong or topic in model.feeds({read.lower()}, name.strip("`").lower())
        entry = Entry("sink", "", {read.lower()}, topic)
        return self._create(
            model, "sink", name, f"INTO LOG('{topic}') AS SELECT k, v FROM `{read}`", entry, wrong, nothing
        )

    def feed(self, model: Model) -> Step:
        """INSERT INTO sink SELECT."""
        sink, read = self._known(model, "sink").lower(), self._known(model, *READ).lower()
        sql = f"INSERT INTO `{sink}` SELECT k, v FROM `{read}`"
        there, given = model.entries.get(sink), model.entries.get(read)
        if (
            there is not None
            and there.needs
            and there.kind == "sink"
            and there.sql.endswith(sql[sql.index(" SELECT") :])
        ):
            return Step(sql, nothing)
        if there is None or there.kind != "sink" or there.needs or given is None or given.kind not in READ:
            rows = sink in model.topics if there is None else there.kind != "sink"
            return self.wrong(model) if rows else Step(sql, None)
        if there.topic in model.feeds({read}, sink):
            return Step(sql, None)

        def effect(after: Model) -> None:
            old = after.entries.pop(sink)
            after.entries[sink] = Entry("sink", f"{old.sql} AS SELECT k, v FROM `{read}`", {read}, old.topic)

        return Step(sql, effect, sink)

    def insert(self, model: Model) -> Step:
        if self.random.random() < 0.2:
            name = self.random.choice([*model.topics, *TOPICS])
        else:
            name = self._known(model, "table", "table", "source")
        rows = [(self.random.randrange(40), self.random.randrange(5)) for _ in range(self.random.randint(1, 3))]
        sql = f"INSERT INTO `{name}` VALUES {', '.join(map(str, rows))}"
        entry = model.entries.get(name.lower())
        topic = name if entry is None else entry.topic if entry.kind == "source" else None
        if topic is not None and topic in model.topics:
            return Step(sql, lambda m: m.topics[topic].extend(rows))
        if entry is None or entry.kind != "table":
            return Step(sql, None)
        there, keys = model.tables[name.lower()], [k for k, _ in rows]
        if len(set(keys)) < len(keys) or there.keys() & set(keys):
            return Step(sql, None)
        return Step(sql, lambda m: m.tables[name.lower()].update(rows))

    def change(self, model: Model) -> Step:
        name = self._known(model, "table")
        entry, key, value = model.entries.get(name.lower()), self.random.randrange(40), self.random.randrange(5)
        update = self.random.random() < 0.6
        sql = f"UPDATE `{name}` SET v = {value} WHERE k > {key}" if update else f"DELETE FROM `{name}` WHERE k = {key}"
        if entry is None or entry.kind != "table":
            return Step(sql, None)

        def effect(after: Model) -> None:
            rows = after.tables[name.lower()]
            if update:
                rows.update({k: value for k in rows if k > key})
            else:
                rows.pop(key, None)

        return Step(sql, effect)

    def drop(self, model: Model) -> Step:
        name = self._known(model, "source", "table", "view", "sink", "function")
        key, entry = name.lower(), model.entries.get(name.lower())
        kind = entry.kind if entry is not None and self.random.random() < 0.9 else self.random.choice(["view", "table"])
        if_exists, cascade = self.random.random() < 0.2, self.random.random() < 0.5
        sql = f"DROP {kind.upper()} {'IF EXISTS ' if if_exists else ''}`{name}`{' CASCADE' if cascade else ''}"
        if f"`{name}`" in BAD or name in BAD:
            return Step(sql, None)
        if entry is None or entry.kind != kind:
            return Step(sql, nothing if if_exists else None)
        gone = {key} | model.dependents(key)
        if len(gone) > 1 and not cascade:
            return Step(sql, None)
        return Step(sql, lambda m: m.remove(gone))

    def drop_topic(self, model: Model) -> Step:
        name = self.random.choice([*model.topics, *TOPICS])
        sql = f"DROP TOPIC `{name}`"
        if name not in model.topics or any(e.topic == name for e in model.entries.values()):
            return Step(sql, None)
        return Step(sql, lambda m: m.topics.__delitem__(name))

    def pause(self, model: Model) -> Step:
        name, resume = self._known(model, "view", "sink"), self.random.random() < 0.5
        sql = f"{'RESUME' if resume else 'PAUSE'} `{name}`"
        flow = model.flow_of.get(name.lower()) or (name if name in model.flow_of.values() else None)
        if flow is None:
            return Step(sql, None)
        return Step(sql, lambda m: m.paused.discard(flow) if resume else m.paused.add(flow))

    def function(self, model: Model) -> Step:
        name = self.random.choice([*BUILT_IN, "root", "Root", "b"])
        target = self.random.choice(["math:sqrt", "math:sqrt", "math:none", "nothing_at_all:x"])
        wrong = name in BUILT_IN or "not" in target or "none" in target
        step = self._create(
            model, "function", name, f"AS '{target}' RETURNS DOUBLE", Entry("function", ""), wrong, nothing
        )
        return Step(step.sql, None) if name in BUILT_IN else step

    def wrong(self, model: Model) -> Step:
        return Step(self.random.choice(["CREATE", "DROP VIEW", "SELEKT 1", "CREATE VIEW a AS", "INSERT INTO"]), None)
