"""Flows, streams and views print what one wants to know: name, columns with types, what they read."""

import millstream as ms
from millstream.display import MOST_IN_A_LINE


def flow_of_bids() -> tuple[ms.Flow, ms.Stream]:
    flow = ms.Flow("auctions")
    schema = "auction BIGINT, price BIGINT, ts TIMESTAMP"
    return flow, flow.source("bids", ms.memory(), schema=schema, event_time="ts")


def test_a_source_names_itself_and_its_columns() -> None:
    _, bids = flow_of_bids()
    assert repr(bids) == "<Stream bids, flow auctions: auction BIGINT, price BIGINT, ts TIMESTAMP>"


def test_a_stream_names_what_it_reads() -> None:
    flow, bids = flow_of_bids()
    items = flow.table("items", schema="auction BIGINT, name STRING")
    joined = bids.join(items, on="auction").select("name", half="price / 2")
    assert repr(joined) == "<Stream, flow auctions, reads bids, items: name STRING, half DOUBLE>"


def test_a_keyed_stream_names_keys_and_window() -> None:
    _, bids = flow_of_bids()
    keyed = bids.key_by("auction", double="price * 2")
    assert repr(keyed) == f"<Keyed by auction, double=`price` * 2: {bids!r}>"
    assert repr(keyed.window(ms.tumbling("10 seconds"))).startswith("<Keyed by auction, double=`price` * 2, tumbling")
    assert repr(bids.window(ms.tumbling("10 seconds"))).startswith("<Keyed by nothing, tumbling")


def test_a_view_and_a_flow() -> None:
    flow, bids = flow_of_bids()
    view = bids.key_by("auction").aggregate(n=ms.count()).view("hot")
    assert repr(view) == "<View hot, reads bids: auction BIGINT, n BIGINT>"
    assert view.schema.names == ("auction", "n")
    assert repr(flow) == (
        "<Flow auctions: 1 source, 1 view, exactly_once>\n"
        "  <Source bids: auction BIGINT, price BIGINT, ts TIMESTAMP>\n"
        "  <View hot, reads bids: auction BIGINT, n BIGINT>"
    )
    sink = bids.sink("printed", ms.console())
    assert repr(sink).startswith("<Sink printed, reads bids: auction BIGINT")


def test_a_wide_stream_is_cut() -> None:
    schema = ", ".join(f"c{i} INT" for i in range(40))
    wide = ms.Flow("wide").source("s", ms.memory(), schema=schema)
    assert repr(wide).endswith(f"c11 INT, ... {40 - MOST_IN_A_LINE} more>")
    assert wide._repr_html_().count("<tr>") == 41  # a notebook shows all


def test_a_notebook_shows_the_schema_escaped() -> None:
    flow = ms.Flow("f")
    shown = flow.source("s", ms.memory(), schema="`<b>` INT, x ARRAY<INT>")._repr_html_()
    assert "<b>" not in shown and "&lt;b&gt;" in shown and "<td>ARRAY&lt;INT&gt;</td>" in shown
    assert "<div>Stream s, flow f</div>" in shown
