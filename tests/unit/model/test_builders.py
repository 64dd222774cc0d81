"""Every mistake in building a flow is found while building, with a message that helps."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import millstream as ms
from millstream.errors import DefinitionError, DuplicateName, MillstreamError, SchemaError, Unsupported
from millstream.kernels.aggregates.partials import PARTIALS
from millstream.model.aggregates.aggregate import KINDS
from millstream.model.types.schema import TIMESTAMP, Schema

COLUMNS = "a BIGINT, s STRING, f DOUBLE, xs ARRAY<BIGINT>, ts TIMESTAMP"


def source(flow: ms.Flow | None = None, name: str = "bids", schema: str = COLUMNS) -> ms.Stream:
    return (flow or ms.Flow("f")).source(name, ms.memory(), schema=schema, event_time="ts")


class Half:
    def create(self) -> None: ...


Builder = Callable[[ms.Stream], Any]
WRONG: list[tuple[str, type[MillstreamError], str, Builder]] = [
    ("unknown column", SchemaError, "there is no column `b`", lambda s: s.where("b > 1")),
    ("where is no condition", SchemaError, "needs a condition", lambda s: s.where("a")),
    ("where is no text", DefinitionError, "is not an expression", lambda s: s.where(None)),
    ("aggregate in where", Unsupported, "`sum` cannot be used here", lambda s: s.where("sum(a) > 1")),
    ("select nothing", DefinitionError, "at least one column", lambda s: s.select()),
    ("select unnamed", DefinitionError, "needs a name", lambda s: s.select("a + 1")),
    ("select a field unnamed", DefinitionError, "needs a name", lambda s: s.select("a.b")),
    ("select twice", SchemaError, "twice", lambda s: s.select("a", a="s")),
    ("select twice by case", SchemaError, "twice", lambda s: s.select("a", A="s")),
    ("select bad name", DefinitionError, "not a valid name", lambda s: s.select(**{"a b": "a"})),
    ("select reserved name", DefinitionError, "not a valid name", lambda s: s.select(**{"$a": "a"})),
    ("with_columns nothing", DefinitionError, "at least one", lambda s: s.with_columns()),
    ("with_columns unknown", SchemaError, "there is no column", lambda s: s.with_columns(x="nope")),
    ("flat_map nothing", DefinitionError, "one name=array", lambda s: s.flat_map()),
    ("flat_map two", DefinitionError, "one name=array", lambda s: s.flat_map(x="xs", y="xs")),
    ("flat_map of a number", SchemaError, "needs an array", lambda s: s.flat_map(x="a")),
    ("flat_map bad name", DefinitionError, "not a valid name", lambda s: s.flat_map(**{"1x": "xs"})),
    (
        "map_batches kind",
        DefinitionError,
        "takes='spark'",
        lambda s: s.map_batches(lambda b: b, schema=COLUMNS, takes="spark"),
    ),
    ("map_batches schema", SchemaError, "has no type", lambda s: s.map_batches(lambda b: b, schema="a")),
    ("enrich table", DefinitionError, "not a valid name", lambda s: s.enrich("a table", on="a", columns="n STRING")),
    ("enrich key", SchemaError, "there is no column `k`", lambda s: s.enrich("t", on="k", columns="n STRING")),
    (
        "enrich key mapping",
        SchemaError,
        "there is no column `k`",
        lambda s: s.enrich("t", on={"k": "a"}, columns="n STRING"),
    ),
    ("enrich without key", DefinitionError, "on", lambda s: s.enrich("t", on={}, columns="n STRING")),
    ("enrich twice", SchemaError, "second column `s`", lambda s: s.enrich("t", on="a", columns="s STRING")),
    ("union of flows", DefinitionError, "one flow", lambda s: s.union(source())),
    ("union of columns", SchemaError, "different columns", lambda s: s.union(s.select("a"))),
    ("union of types", SchemaError, "BIGINT in one", lambda s: s.select(x="a").union(s.select(x="s"))),
    ("key_by nothing", DefinitionError, "at least one column", lambda s: s.key_by()),
    ("key_by unnamed", DefinitionError, "needs a name", lambda s: s.key_by("a % 2")),
    ("key_by unknown", SchemaError, "there is no column", lambda s: s.key_by("b")),
    ("window is text", DefinitionError, "is not a window", lambda s: s.window("10 seconds")),
    (
        "on_close without end",
        DefinitionError,
        "never closes",
        lambda s: s.window(ms.everything(), trigger=ms.on_close()),
    ),
    ("aggregate nothing", DefinitionError, "at least one", lambda s: s.aggregate()),
    ("aggregate is text", DefinitionError, "is not an aggregate", lambda s: s.aggregate(n="count")),
    ("aggregate bad name", DefinitionError, "not a valid name", lambda s: s.aggregate(**{"n n": ms.count()})),
    ("aggregate unknown", SchemaError, "there is no column", lambda s: s.aggregate(n=ms.max("b"))),
    ("aggregate of text", SchemaError, "needs numbers, but .*STRING", lambda s: s.aggregate(n=ms.sum("s"))),
    ("average of time", SchemaError, "needs numbers", lambda s: s.aggregate(n=ms.avg("ts"))),
    ("variance of text", SchemaError, "needs numbers", lambda s: s.aggregate(n=ms.variance("s"))),
    ("aggregate named as key", SchemaError, "twice", lambda s: s.key_by("a").aggregate(a=ms.count())),
    (
        "key named as border",
        SchemaError,
        "twice",
        lambda s: s.key_by(window_end="a").window(ms.tumbling("1 s")).aggregate(n=ms.count()),
    ),
    (
        "window behind an aggregate",
        Unsupported,
        "a window needs a time",
        lambda s: s.aggregate(n=ms.count()).window(ms.tumbling("1 second")).aggregate(m=ms.count()),
    ),
    (
        "enrich behind",
        Unsupported,
        "enrich after a stateful step",
        lambda s: s.key_by("a").aggregate(n=ms.count()).enrich("t", on="a", columns="x STRING"),
    ),
    (
        "no aggregator",
        DefinitionError,
        "Half is not an aggregator",
        lambda s: ms.user_aggregate(Half(), "a", returns="BIGINT"),
    ),
    ("unknown returns", SchemaError, "VARIANT", lambda s: ms.user_aggregate(Sum(), "a", returns="VARIANT")),
    ("view name", DefinitionError, "not a valid name for a view", lambda s: s.view("a-b")),
    ("view name too long", DefinitionError, "not a valid name", lambda s: s.view("v" * 64)),
    ("view name with a newline", DefinitionError, "not a valid name", lambda s: s.view("v\n")),
    ("view name of another kind", DefinitionError, "not a valid name", lambda s: s.view(5)),
    ("view named as the source", DuplicateName, "has a `bids` already", lambda s: s.view("bids")),
    ("two views of a name", DuplicateName, "`v` already", lambda s: [s.view("v"), s.view("v")]),
    ("two views of a name in the store", DuplicateName, "already", lambda s: [s.view("v"), s.view("V")]),
    ("retention", DefinitionError, "retention .* is not a duration", lambda s: s.view("v", retention="long")),
    ("no retention", DefinitionError, "longer than zero", lambda s: s.view("v", retention="0 s")),
    (
        "retention without window",
        DefinitionError,
        "no window to measure",
        lambda s: s.aggregate(n=ms.count()).view("v", retention="1 h"),
    ),
]


class Sum:
    def create(self) -> int:
        return 0

    def add(self, accumulator: int, value: int) -> int:
        return accumulator + value

    def merge(self, left: int, right: int) -> int:
        return left + right

    def result(self, accumulator: int) -> int:
        return accumulator


@pytest.mark.parametrize(("kind", "said", "build"), [w[1:] for w in WRONG], ids=[w[0] for w in WRONG])
def test_a_mistake_in_a_stream_is_found_while_building(kind: type[MillstreamError], said: str, build: Builder) -> None:
    with pytest.raises(kind, match=said) as caught:
        build(source())
    assert caught.value.origin is not None and caught.value.origin.file.endswith("test_builders.py")


SOURCES: list[tuple[str, str, dict[str, Any]]] = [
    ("no schema", "needs a schema", {"schema": None}),
    ("event time unknown", "there is no column `when`", {"event_time": "when"}),
    ("event time of another type", "not a TIMESTAMP", {"event_time": "a"}),
    ("lateness", "lateness", {"lateness": "soon"}),
    ("negative lateness", "must not be negative", {"lateness": "-1 s"}),
    ("future bound", "future_bound", {"future_bound": 5}),
    ("idle timeout", "longer than zero", {"idle_timeout": "0 s"}),
    ("negative idle timeout", "longer than zero", {"idle_timeout": "-5 s"}),
    ("punctuation unknown", "there is no column `done`", {"event_time": "ts", "punctuation": "done"}),
    ("punctuation no condition", "punctuation needs a condition, but", {"event_time": "ts", "punctuation": "a"}),
    ("punctuation no text", "is not an expression", {"event_time": "ts", "punctuation": True}),
    ("punctuation without time", "needs an event_time", {"punctuation": "a = 1"}),
    (
        "punctuation with lateness",
        "either lateness or punctuation",
        {"event_time": "ts", "punctuation": "a = 1", "lateness": "0 s"},
    ),
    ("max rows", "above zero", {"max_rows": 0}),
    ("name", "not a valid name", {"name": "1bids"}),
    ("connector", "is not a source", {"connector": "data/bids"}),
]


@pytest.mark.parametrize(("said", "wrong"), [s[1:] for s in SOURCES], ids=[s[0] for s in SOURCES])
def test_a_mistake_in_a_source_is_found_while_building(said: str, wrong: dict[str, Any]) -> None:
    given = {"name": "bids", "connector": ms.memory(), "schema": COLUMNS, **wrong}
    flow = ms.Flow("f")
    with pytest.raises(DefinitionError, match=said):
        flow.source(given.pop("name"), given.pop("connector"), **given)
    assert flow.sources == ()


def test_a_flow_and_its_sources_need_good_names_of_their_own() -> None:
    with pytest.raises(DefinitionError):
        ms.Flow("my flow")
    flow = ms.Flow("f")
    source(flow)
    for name in ("bids", "Bids"):
        with pytest.raises(DuplicateName):
            source(flow, name)


@pytest.mark.parametrize(
    "make",
    [
        lambda: ms.files("x", format="xml"),
        lambda: ms.generator(lambda a, b: None, rate=0),
        lambda: ms.generator(lambda a, b: None, events=-1),
        lambda: ms.memory(partitions=0),
    ],
)
def test_a_connector_that_makes_no_sense_is_refused(make: Callable[[], object]) -> None:
    with pytest.raises(DefinitionError):
        make()


def test_a_memory_source_refuses_a_partition_it_does_not_have() -> None:
    memory = ms.memory(partitions=2)
    memory.send({"a": 1}, partition=1)
    for partition in (2, -1):
        with pytest.raises(IndexError):
            memory.send({"a": 1}, partition=partition)


def test_a_memory_source_takes_nothing_after_its_end() -> None:
    memory = ms.memory()
    memory.send({"a": 1})
    memory.end()
    memory.end()
    with pytest.raises(ValueError, match="has ended"):
        memory.send({"a": 2})
    assert memory.rows == [[{"a": 1}]]


def test_punctuation_is_kept_as_spark_would_read_it() -> None:
    flow = ms.Flow("f")
    for name, condition in (("one", "a > 1 AND s = 'end'"), ("two", (ms.col("a") > 1) & (ms.col("s") == "end"))):
        flow.source(name, ms.memory(), schema=COLUMNS, event_time="ts", punctuation=condition)
    one, two = (s.options for s in flow.sources)
    assert one.punctuation == "`a` > 1 AND `s` = 'end'" and one.lateness.micros == 0
    assert two.punctuation == "(`a` > 1) AND (`s` = 'end')"


def test_building_gives_new_streams_and_changes_none() -> None:
    flow = ms.Flow("f")
    bids = source(flow)
    before = bids.schema.names
    filtered = bids.where("a > 1").with_columns(double="a * 2", s="upper(s)").select("double", "s", "ts")
    assert bids.schema.names == before
    assert filtered.schema.names == ("double", "s", "ts")
    assert flow.views == ()
    view = filtered.view("v")
    assert [v.name for v in flow.views] == ["v"] and view.input is filtered.step


def test_with_columns_keeps_the_place_of_what_it_replaces() -> None:
    assert source().with_columns(s="a", z="a").schema.names == ("a", "s", "f", "xs", "ts", "z")


def test_the_schema_of_an_aggregate_is_borders_keys_answers() -> None:
    made = (
        source()
        .key_by("s", even="a % 2 = 0")
        .window(ms.tumbling("1 minute"))
        .aggregate(
            n=ms.count(),
            total=ms.sum("a"),
            mean=ms.avg("a"),
            hi=ms.max("f"),
            all=ms.collect("a"),
            u=ms.user_aggregate(Sum(), "a", returns="INT"),
        )
    )
    assert [(f.name, f.type) for f in made.schema] == [
        ("window_start", TIMESTAMP),
        ("window_end", TIMESTAMP),
        ("s", pa.string()),
        ("even", pa.bool_()),
        ("n", pa.int64()),
        ("total", pa.int64()),
        ("mean", pa.float64()),
        ("hi", pa.float64()),
        ("all", pa.list_(pa.int64())),
        ("u", pa.int32()),
    ]


def test_flat_map_gives_the_element_its_type_and_place() -> None:
    made = source().flat_map(a="xs")
    assert made.schema.names == ("s", "f", "xs", "ts", "a") and made.schema.field("a").type == pa.int64()


def test_a_schema_may_come_from_arrow_or_from_another() -> None:
    flow = ms.Flow("f")
    arrow = pa.schema([("a", pa.int64()), ("ts", pa.timestamp("ms", tz="UTC"))])
    one = flow.source("one", ms.memory(), schema=arrow, event_time="ts")
    two = flow.source("two", ms.memory(), schema=Schema.parse("a BIGINT, ts TIMESTAMP"))
    assert one.schema == two.schema


def test_every_kind_of_aggregate_has_its_partials() -> None:
    assert set(PARTIALS) == set(KINDS)


@pytest.mark.parametrize(
    ("frame", "said"),
    [
        ({"rows": ms.row_number()}, "`rows` of over is a frame"),
        ({"rows": (1, 2, 3)}, "`rows` of over is a frame"),
        ({"spread": ms.lag("price")}, "`spread` of over is a frame"),
        ({"rows": (1, 0), "spread": (1, 0)}, "`rows` or `spread`, not both"),
    ],
)
def test_what_is_no_frame_is_refused(frame: dict[str, Any], said: str) -> None:
    bids = ms.Flow("f").source("bids", ms.memory(), schema="auction BIGINT, price BIGINT, at TIMESTAMP")
    with pytest.raises(DefinitionError, match=said):
        bids.key_by("auction").over("at", **frame, n=ms.count())
