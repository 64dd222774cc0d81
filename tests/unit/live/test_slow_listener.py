"""A SUBSCRIBE whose listener reads more slowly than the flow writes."""

from __future__ import annotations

import itertools
from pathlib import Path

import pyarrow as pa
import pytest

from millstream.errors import QueryError
from millstream.live import feed as feeds
from millstream.live.feed import ChangeFeed
from tests.unit.live.world import BIDS, opened

HOT = "CREATE VIEW hot WITH (flow = 'f') AS SELECT auction, count(*) AS n FROM bids GROUP BY auction"


def test_a_listener_that_missed_changes_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "MOST_EPOCHS", 2)
    with opened(tmp_path) as spoken:
        spoken.say(BIDS, HOT)
        feed = spoken.live.feeds.setdefault("f", ChangeFeed())
        changes = spoken.say("SUBSCRIBE TO hot").changes
        assert changes is not None
        feed.take(1, {"hot": pa.table({"auction": [1], "n": [1]})})
        assert next(changes).epoch == 1
        for epoch in (2, 3, 4):  # while the listener is busy with epoch 1; epoch 2 is not kept any more
            feed.take(epoch, {"hot": pa.table({"auction": [epoch], "n": [1]})})
        with pytest.raises(QueryError, match="the changes after epoch 1 of `f` are no longer kept") as ended:
            next(changes)
        assert "epoch 3" in str(ended.value.detail) and "WITH SNAPSHOT" in str(ended.value.hint)


def test_a_listener_hears_of_epochs_that_change_other_views_only(tmp_path: Path) -> None:
    """Else nobody would notice that it has gone, for as long as the flow is busy."""
    with opened(tmp_path) as spoken:
        spoken.say(BIDS, HOT)
        feed = spoken.live.feeds.setdefault("f", ChangeFeed())
        changes = spoken.say("SUBSCRIBE TO hot").changes
        assert changes is not None
        for epoch in (1, 2):
            feed.take(epoch, {"other": pa.table({"auction": [epoch], "n": [1]})})
        assert [(c.epoch, c.table) for c in itertools.islice(changes, 2)] == [(1, None), (2, None)]


def test_a_listener_of_a_view_without_rows_yet_begins_at_the_present_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeds, "MOST_EPOCHS", 2)
    with opened(tmp_path) as spoken:
        spoken.say(BIDS, HOT, "INSERT INTO bids VALUES (1, 1, TIMESTAMP '2026-01-01 00:00:00')")
        spoken.perform("f")
        last = spoken.home.store.last("f")
        assert last is not None
        spoken.say("CREATE VIEW more WITH (flow = 'f', start = 'now') AS SELECT auction FROM bids")
        feed = spoken.live.feeds.setdefault("f", ChangeFeed())
        changes = spoken.say("SUBSCRIBE TO more WITH SNAPSHOT").changes
        assert changes is not None
        assert next(changes).epoch == last.number
        feed.take(last.number + 1, {"more": pa.table({"auction": [1]})})
        assert next(changes).epoch == last.number + 1
