"""Schemas: Spark DDL in, Arrow types out, and errors that say what there is."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import SchemaError, Unsupported
from millstream.model.types.schema import TIMESTAMP, Field, Schema, ddl_type

PLAIN = [
    pa.bool_(),
    pa.int8(),
    pa.int16(),
    pa.int32(),
    pa.int64(),
    pa.float32(),
    pa.float64(),
    pa.string(),
    pa.binary(),
    pa.date32(),
    TIMESTAMP,
]
TYPES = st.recursive(
    st.sampled_from(PLAIN) | st.builds(pa.decimal128, st.integers(10, 38), st.integers(0, 10)),
    lambda inner: st.one_of(
        inner.map(pa.list_),
        st.builds(pa.map_, st.sampled_from([pa.string(), pa.int64()]), inner),
        st.lists(inner, min_size=1, max_size=3).map(lambda ts: pa.struct([(f"f{i}", t) for i, t in enumerate(ts)])),
    ),
    max_leaves=6,
)


@given(st.lists(TYPES, min_size=1, max_size=5))
def test_types_survive_the_way_through_ddl(kinds: list[pa.DataType]) -> None:
    ddl = ", ".join(f"c{i} {ddl_type(k)}" for i, k in enumerate(kinds))
    assert [f.type for f in Schema.parse(ddl)] == kinds


@pytest.mark.parametrize(
    ("ddl", "kind"),
    [
        ("x BYTE", pa.int8()),
        ("x SHORT", pa.int16()),
        ("x INTEGER", pa.int32()),
        ("x LONG", pa.int64()),
        ("x REAL", pa.float32()),
        ("x STRING", pa.string()),
        ("x VARCHAR", pa.string()),
        ("x DECIMAL", pa.decimal128(10, 0)),
        ("x NUMERIC(3)", pa.decimal128(3, 0)),
        ("x BIGINT NULL", pa.int64()),
        ("x BIGINT COMMENT 'why'", pa.int64()),
        ("x TIMESTAMP_LTZ", TIMESTAMP),
        ("x ARRAY<STRUCT<a: INT>>", pa.list_(pa.struct([("a", pa.int32())]))),
    ],
)
def test_the_names_spark_people_use_are_known(ddl: str, kind: pa.DataType) -> None:
    assert Schema.parse(ddl).field("x").type == kind


@pytest.mark.parametrize(
    ("ddl", "named"),
    [
        ("x BIGINT NOT NULL", "NOT NULL"),
        ("x BIGINT DEFAULT 5", "DEFAULT 5"),
        ("x BIGINT COMMENT 'why' UNIQUE", "UNIQUE"),
        ("x BIGINT PRIMARY KEY", "PRIMARY KEY"),
        ("x VARCHAR(5)", "VARCHAR(5)"),
        ("x ARRAY<STRUCT<a: CHAR(3)>>", "CHAR(3)"),
        ("x TIMESTAMP(3)", "TIMESTAMP(3)"),
        ("x STRUCT<a: INT NOT NULL>", "NOT NULL"),
    ],
)
def test_a_clause_that_a_schema_does_not_keep_is_refused_by_its_name(ddl: str, named: str) -> None:
    with pytest.raises(Unsupported) as refused:
        Schema.parse(ddl)
    assert named in refused.value.message
    assert refused.value.hint


@pytest.mark.parametrize(
    "ddl",
    [
        "",
        "a",
        "a FOO",
        "a ARRAY<FOO>",
        "a INTERVAL",
        "a INTERVAL YEAR TO MONTH",
        "PRIMARY KEY (a)",
        "a BIGINT b",
        "a STRUCT<>",
        "((",
        "a DECIMAL(50, 2)",
        "a DECIMAL(0, 0)",
        "a ARRAY",
        "a MAP<STRING>",
        "'",
    ],
)
def test_ddl_that_cannot_be_read_is_a_schema_error_at_the_users_line(ddl: str) -> None:
    with pytest.raises(SchemaError) as caught:
        Schema.parse(ddl)
    assert caught.value.origin is not None and caught.value.origin.file.endswith("test_schema.py")


def test_an_unknown_type_lists_the_known_ones() -> None:
    with pytest.raises(SchemaError, match="unknown type `VARIANT`") as caught:
        Schema.parse("a VARIANT")
    assert "BIGINT" in (caught.value.detail or "")


def test_an_unknown_column_lists_the_known_ones_and_suggests_the_nearest() -> None:
    schema = Schema.parse("auction BIGINT, price BIGINT, ts TIMESTAMP")
    error = schema.unknown("prise")
    assert error.message == "there is no column `prise`"
    assert error.detail == "there are: auction, price, ts"
    assert error.hint == "did you mean `price`?"
    assert schema.unknown("zzz").hint is None
    with pytest.raises(SchemaError):
        schema.field("prise")


@pytest.mark.parametrize(
    ("ddl", "said"), [("a INT, a INT", "twice"), ("a INT, A BIGINT", "twice"), ("`$ts` BIGINT", "reserved")]
)
def test_names_that_repeat_or_are_reserved_are_refused(ddl: str, said: str) -> None:
    with pytest.raises(SchemaError, match=said):
        Schema.parse(ddl)


def test_an_arrow_schema_becomes_types_that_spark_has() -> None:
    given = pa.schema(
        [
            ("a", pa.uint32()),
            ("b", pa.large_string()),
            ("t", pa.timestamp("ns", tz="Europe/Berlin")),
            ("r", pa.large_binary()),
        ]
    )
    assert [f.type for f in Schema.from_arrow(given)] == [pa.int64(), pa.string(), TIMESTAMP, pa.binary()]


def test_membership_order_and_arrow_form() -> None:
    schema = Schema.of([Field("b", pa.int64()), Field("a", pa.string())])
    assert schema.names == ("b", "a") and "a" in schema and "c" not in schema
    assert schema.to_arrow() == pa.schema([("b", pa.int64()), ("a", pa.string())])


@pytest.mark.parametrize(
    ("ddl", "message"),
    [
        ("a", "the column `a` has no type"),
        ("a BIGINT); DROP TABLE x; --", "the schema cannot be read"),
        ("a BIGINT) USING x --", "the schema cannot be read"),
        ("a BIGINT, CHECK (a > 1)", "`CHECK (a > 1)` is not a column"),
        ("a BIGINT, PRIMARY KEY (a)", "`PRIMARY KEY (a)` is not a column"),
        ("a DECIMAL(5, 9)", "`DECIMAL(5, 9)` is not a type"),
        ("a DECIMAL(39)", "`DECIMAL(39)` is not a type"),
        ("a DECIMAL(x)", "`DECIMAL(X)` is not a type"),
        ("a ARRAY", "`ARRAY` is not a type"),
        ("a MAP<INT>", "`MAP<INT>` is not a type"),
        ("a STRUCT<x: INT, X: INT>", "the field `x` is twice"),
        ("a STRUCT<STRING, zip: INT>", "has no name or no type"),
        ("a STRUCT<city: STRING, INT>", "has no name or no type"),
        ("a " + "ARRAY<" * 3000 + "INT" + ">" * 3000, "nested too deeply"),
        ("a 'b", "the schema cannot be read"),
        (None, "it is not text"),
    ],
)
def test_a_schema_that_cannot_be_kept_is_refused_in_plain_words(ddl: str, message: str) -> None:
    with pytest.raises(SchemaError) as caught:
        Schema.parse(ddl)
    said = str(caught.value)
    assert message in said
    assert len(said) < 600
    assert not any(word in said for word in ("object has no attribute", "list index", "int()", "Constraint", "<class"))
