"""The Nexmark generator: the same events for every cut, in the shares and ranges of the specification."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.connect.nexmark import KINDS, SCHEMAS, Nexmark, count, event_number, event_time_us, events
from millstream.errors import DefinitionError

NUMBERS = ["auction", "bidder", "price", "date_time"]
CONFIGS = st.builds(
    Nexmark,
    rate=st.sampled_from([1, 7, 10_000, 10_000_000]),
    seed=st.integers(0, 2**64 - 1),
    out_of_order_group=st.sampled_from([1, 2, 50, 1000]),
)


def test_fifty_events_are_one_person_three_auctions_and_the_rest_bids() -> None:
    assert [count(kind, 0, 50) for kind in KINDS] == [1, 3, 46]
    assert [events(kind, 0, 5_000).num_rows for kind in KINDS] == [100, 300, 4_600]


def test_an_event_kind_follows_from_its_number() -> None:
    assert [[count(kind, n, n + 1) for kind in KINDS].index(1) for n in range(6)] == [0, 1, 1, 1, 2, 2]


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from(KINDS),
    st.lists(st.integers(0, 2_500), min_size=3, max_size=3).map(sorted),
    st.integers(0, 10**10),
    CONFIGS,
)
def test_every_cut_gives_the_same_events(kind: str, cuts: list[int], shift: int, config: Nexmark) -> None:
    a, b, c = (cut + shift for cut in cuts)
    whole = events(kind, a, c, config)
    assert whole.equals(pa.concat_tables([events(kind, a, b, config), events(kind, b, c, config)]))
    assert whole.num_rows == count(kind, a, c, config) == count(kind, a, b, config) + count(kind, b, c, config)


def test_a_cut_across_internal_chunks_gives_the_same_events() -> None:
    whole = events("bid", 0, 100_000)
    assert whole.slice(count("bid", 0, 77_777)).equals(events("bid", 77_777, 100_000))


@pytest.mark.parametrize("kind", KINDS)
def test_columns_asked_for_are_those_of_the_whole_event(kind: str) -> None:
    whole = events(kind, 1_000, 3_000)
    assert whole.schema == SCHEMAS[kind]
    for name in whole.schema.names:
        assert events(kind, 1_000, 3_000, columns=[name]).equals(whole.select([name]))
    backwards = whole.schema.names[::-1]
    assert events(kind, 1_000, 3_000, columns=backwards).schema.names == backwards


def test_an_empty_range_gives_an_empty_table_with_its_schema() -> None:
    assert events("person", 7, 7).equals(SCHEMAS["person"].empty_table())
    assert events("bid", 9, 5).num_rows == count("bid", 9, 5) == 0


def test_equal_seeds_give_equal_events_and_other_seeds_others() -> None:
    first = events("bid", 0, 5_000, Nexmark(seed=1))
    assert first.equals(events("bid", 0, 5_000, Nexmark(seed=1)))
    other = events("bid", 0, 5_000, Nexmark(seed=2))
    assert first["date_time"].equals(other["date_time"])
    for name in ("auction", "bidder", "price", "channel", "url", "extra"):
        assert pc.mean(pc.equal(first[name], other[name])).as_py() < 0.8


def test_the_events_of_seed_0_never_change() -> None:
    rows = events("bid", 1_000_000, 1_000_006, columns=["auction", "bidder", "price", "channel"]).to_pylist()
    expected = [(61000, 21001, 14271, "Google"), (61000, 21001, 96208722, "Baidu")]
    assert [tuple(row.values()) for row in rows] == expected


def test_persons_and_auctions_are_numbered_without_gaps_from_1000() -> None:
    assert events("person", 0, 5_000)["id"].to_pylist() == list(range(1000, 1100))
    assert events("auction", 0, 5_000)["id"].to_pylist() == list(range(1000, 1300))


def test_bids_are_on_recent_auctions_by_active_people() -> None:
    start = 500_000
    bids = events("bid", start, start + 50_000, columns=NUMBERS)
    cycle = np.arange(start // 50, start // 50 + 1000).repeat(46)
    behind = cycle * 3 + 2 + 1000 - bids["auction"].to_numpy()
    assert behind.min() == -10
    assert behind.max() == 100
    ago = cycle + 1000 - bids["bidder"].to_numpy()
    assert ago.min() == -10
    assert ago.max() == 999
    sellers = events("auction", start, start + 50_000, columns=["seller"])["seller"].to_numpy()
    assert (np.abs(cycle[::46].repeat(3) + 1000 - sellers) <= 1010).all()


def test_hot_keys_take_their_share() -> None:
    bids = events("bid", 0, 1_000_000, columns=["auction", "bidder"])

    auctions, bidders = bids["auction"].to_numpy(), bids["bidder"].to_numpy()
    assert (auctions % 100 == 0).mean() == pytest.approx(0.5 + 0.5 / 100, abs=0.005)
    assert (bidders % 100 == 1).mean() == pytest.approx(0.75 + 0.25 / 100, abs=0.005)
    sellers = events("auction", 0, 1_000_000, columns=["seller"])["seller"].to_numpy()
    assert (sellers % 100 == 0).mean() == pytest.approx(0.75 + 0.25 / 100, abs=0.01)


def test_a_new_auction_gets_hot_every_hundred_auctions() -> None:
    auctions = events("bid", 0, 10_000, columns=["auction"])["auction"].to_pylist()
    hottest = [auction for auction, bids in Counter(auctions).most_common(6)]
    assert sorted(hottest) == [1000, 1100, 1200, 1300, 1400, 1500]


def test_prices_are_log_uniform() -> None:
    prices = events("bid", 0, 200_000, columns=["price"])["price"].to_numpy()
    assert prices.min() >= 100
    assert prices.max() <= 100_000_000
    by_magnitude = np.histogram(np.log10(prices), bins=6, range=(2, 8))[0] / len(prices)
    assert by_magnitude == pytest.approx(1 / 6, abs=0.005)


def test_auctions_hold_what_the_specification_says() -> None:
    auctions = events("auction", 0, 100_000)
    assert set(auctions["category"].to_pylist()) == {10, 11, 12, 13, 14}
    assert pc.all(pc.greater(auctions["reserve"], auctions["initial_bid"])).as_py()
    life = (auctions["expires"].cast("int64").to_numpy() - auctions["date_time"].cast("int64").to_numpy()) / 1000
    assert life.min() >= 1
    assert life.max() <= 2 * 167
    assert life.mean() == pytest.approx(167, rel=0.02)


def test_channels_and_urls_belong_together() -> None:
    bids = events("bid", 0, 200_000, columns=["channel", "url"])
    pairs = Counter(zip(bids["channel"].to_pylist(), bids["url"].to_pylist(), strict=True))
    channels = Counter(channel for channel, _ in pairs)
    assert max(channels.values()) == 1
    assert {"Google", "Facebook", "Baidu", "Apple"} < channels.keys()
    assert sum(n for (c, _), n in pairs.items() if not c.startswith("channel-")) == pytest.approx(92_000, rel=0.02)
    with_id = [url for channel, url in pairs if channel.startswith("channel-") and "&channel_id=" in url]
    assert len(with_id) / len(pairs) == pytest.approx(0.9, abs=0.01)
    assert next(url for channel, url in pairs if channel == "channel-2").endswith("&channel_id=1073741824")


@pytest.mark.parametrize(("kind", "size"), [("person", 208), ("auction", 500), ("bid", 100)])
def test_events_have_their_average_size(kind: str, size: int) -> None:
    """Channel and url do not count, nor does a person's time: the specification leaves them out."""
    table = events(kind, 0, 100_000).drop_columns(["channel", "url"] if kind == "bid" else [])
    widths = [pc.binary_length(c).to_numpy() if pa.types.is_string(c.type) else 8 for c in table.columns]
    assert np.mean(sum(widths)) == pytest.approx(size, rel=0.02)


def test_text_starts_and_ends_with_a_letter() -> None:
    names = events("auction", 0, 50_000, columns=["item_name"])["item_name"].to_pylist()
    assert all(name == name.strip() and 3 <= len(name) < 20 for name in names)
    assert any(" " in name for name in names)


def test_times_follow_the_rate_and_are_cut_to_milliseconds() -> None:
    config = Nexmark(rate=3_000)
    times = event_time_us(np.arange(10_000), config) - config.base_time_us
    assert (times % 1000 == 0).all()
    assert times.tolist() == [n * 1000 // 3000 * 1000 for n in range(10_000)]
    table = events("person", 0, 10_000, config, columns=["date_time"])
    assert (table["date_time"].cast("int64").to_numpy() == event_time_us(np.arange(0, 10_000, 50), config)).all()


def test_in_order_by_default_and_permuted_in_groups_on_demand() -> None:
    assert (np.diff(event_time_us(np.arange(5_000), Nexmark())) >= 0).all()
    config = Nexmark(out_of_order_group=1_000)
    positions = np.arange(5_000)
    numbers = event_number(positions, config)
    assert (np.diff(numbers) < 0).any()
    assert (numbers // 1000 == positions // 1000).all()
    assert sorted(numbers.tolist()) == positions.tolist()


@pytest.mark.parametrize("kind", KINDS)
def test_disorder_permutes_events_and_changes_none(kind: str) -> None:
    ordered = events(kind, 0, 5_000)
    shuffled = events(kind, 0, 5_000, Nexmark(out_of_order_group=1_000))
    assert not shuffled.equals(ordered)
    assert sorted(map(str, shuffled.to_pylist())) == sorted(map(str, ordered.to_pylist()))


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Nexmark(rate=0),
        lambda: Nexmark(out_of_order_group=953),
        lambda: Nexmark(out_of_order_group=0),
        lambda: events("offer", 0, 1),
        lambda: events("bid", 0, 1, columns=["seller"]),
    ],
)
def test_a_wrong_setting_is_refused(wrong) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(DefinitionError):
        wrong()
