"""Stories of windows, triggers, lateness, panes and accumulation, played in every way in which they can be run.

A theme is a TOML file; its stories say what docs/decisions/0008-panes.md means in one small case each.

    [[story]]
    name = "..."                            # short, one of its kind in the file
    about = "..."                           # the trap it shows
    window = 'tumbling("10 seconds")'       # names of millstream, without ms.
    trigger, accumulation                   # likewise; on_change() and retracting() unless said
    lateness, delay = "5 seconds"           # of the windows; of the source
    aggregates = 'n=count(), s=sum("v")'    # this one unless said
    keyed = true                            # false: one window for all, and no key is written
    partitions = 1, idle = "5 seconds"      # of the source; its idle timeout
    functions = '''def ...'''               # for custom windows
    replay, cut = true                      # whether the final view is the same for a bounded replay and for epochs of
                                            # one record; unless said, where the definition alone makes it so
    spark = true                            # on Spark and in the real store in `make test`; others in `make test-all`
    play = '''
    send a 3 1, a 4 2                       -- what happens
      +I a 0..10 n=2 s=3                    -- what is to be seen then
      #0 early a 0..10 n=2 s=3
    '''

What happens, a line each:

    send <record>, ...    records come; epochs follow as long as there is a reason for one
    epoch <record>, ...   records come; exactly one epoch follows, so that what it made due meets the next records
    clock <seconds>       processing time goes on; `clock 5 send ...` and `clock 5 epoch ...` do both at once
    rest                  epochs as long as there is a reason for one
    end                   the source ends, and with it time
    crash <step>          the next epoch dies there, and the flow is down; then what happens, happens while it is down
    resume                the flow goes on

A record is `key time [value] [p<partition>]`; `-` is NULL, the value is 1 unless said. A time is in seconds from
2026-01-01T00:00:00Z on (where processing time begins, too), or ISO 8601 with its offset. The watermark of an epoch
comes from the records of the epochs before it: the newest time less the delay.

What is to be seen, a line each, in any order:

    +I -U +U -D  <row>                      a change
    #<index> early|on-time|late [last] <row>  a pane, from `<view>$panes`
    late <key> <time> behind|finished|nowhere   a row in `<view>$late`, with its reason
    view <row>, view nothing                the whole view
    stops <part of a message>               the flow stops with this error, and nothing has changed

A row is `key [index] start..end name=answer ...`: the index only of count windows, borders where the window has some.
A story that shows one change shows them all, and so with panes; late rows are always all shown. `--` begins a comment.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from tests.transcripts.engines import MemoryScript, SparkScript, StoreScript, short_lived
from tests.transcripts.player import Player
from tests.transcripts.story import SOURCE, VIEW, Record, Step, Story, differences, failure, stories

ALL = stories()
IDS = {s.id: s for s in ALL}
PLACEMENTS = ("inline", "spread")


def each(chosen: list[Story]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("story", chosen, ids=[s.id for s in chosen])


def one_of_each_theme_first() -> list[object]:
    """All stories; but for those that are marked in their file, only in `make test-all`."""
    return [pytest.param(s, id=s.id, marks=() if s.options.get("spark") else pytest.mark.slow) for s in ALL]


def sharded_nowhere_else_first() -> list[object]:
    """All stories; those that crash in every epoch go on with other shards there, so but for one of each theme only in
    `make test-all`.
    """
    slow = pytest.mark.slow
    return [pytest.param(s, id=s.id, marks=() if s.crashes or s.options.get("spark") else slow) for s in ALL]


@functools.cache
def live(name: str) -> list[str]:
    """Play a story as it is written; its final view at the end of time."""
    __tracebackhide__ = True
    story = IDS[name]
    with short_lived() as folder, MemoryScript(story.flow(), folder) as script:
        player = Player(story, script, "inline")
        player.play()
        return player.end() if story.replays or story.cuts else []


@each(ALL)
def test_as_it_is_written(story: Story) -> None:
    live(story.id)


@pytest.mark.parametrize("story", one_of_each_theme_first())
def test_in_the_real_store(story: Story) -> None:
    with short_lived() as folder, StoreScript(story.flow(), folder) as script:
        Player(story, script, "real store").play()


@pytest.mark.parametrize("story", sharded_nowhere_else_first())
@pytest.mark.parametrize("shards", [2, pytest.param(5, marks=pytest.mark.slow)])
def test_sharded(story: Story, shards: int) -> None:
    with short_lived() as folder, MemoryScript(story.flow(), folder, shards=shards) as script:
        Player(story, script, f"{shards} shards").play()


@pytest.mark.sampled(20)
@each([s for s in ALL if s.by_slices])
def test_by_slices_without_panes(story: Story) -> None:
    with short_lived() as folder, MemoryScript(story.flow(panes=False), folder, shards=2) as script:
        Player(story, script, "by slices", keeps_panes=False).play()


@pytest.mark.sampled(14)
@each([s for s in ALL if not s.crashes])
def test_crashed_in_every_epoch_and_resumed_with_other_shards(story: Story) -> None:
    with short_lived() as folder, MemoryScript(story.flow(), folder) as script:
        Player(story, script, "crashing", crashing=True).play()


@pytest.mark.sampled(30)
@each([s for s in ALL if s.replays])
def test_replayed_at_once(story: Story) -> None:
    with short_lived() as folder, MemoryScript(story.flow(), folder) as script:
        player = Player(story, script, "replay")
        player.send(story.records)
        script.end(SOURCE)
        player.epochs(None)
        same_in_the_end(story, "all at once, then the end", player)


@pytest.mark.sampled(14)
@each([s for s in ALL if s.cuts])
def test_cut_into_epochs_of_one_record(story: Story) -> None:
    with short_lived() as folder, MemoryScript(story.flow(), folder, shards=2) as script:
        player = Player(story, script, "cut")
        for step in story.steps:
            for part in cut(step):
                player.perform(part)
        same_in_the_end(story, "one record an epoch, then the end", player)


def cut(step: Step) -> Iterator[Step]:
    """A step with one record at a time, in the order of their time: none makes another late."""

    def order(record: Record) -> datetime:
        return record.time

    if not step.records:
        yield step
    for record in sorted(step.records, key=order):
        yield Step(step.line, step.text, step.clock, (record,), step.epochs)
        step = Step(step.line, step.text, epochs=step.epochs)


def same_in_the_end(story: Story, run: str, player: Player) -> None:
    __tracebackhide__ = True
    wrong = differences("final view, expected as live", live(story.id), player.end())
    if wrong:
        raise failure(story, run, None, wrong)


# ---------------------------------------------------------------- on Spark


@pytest.mark.sampled(9)
@pytest.mark.spark
@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("story", one_of_each_theme_first())
def test_on_spark(spark: object, tmp_path: Path, story: Story, placement: str) -> None:
    with SparkScript(story.flow(), tmp_path, placement=placement) as script:
        Player(story, script, f"on Spark, {placement}").play()


# ---------------------------------------------------------------- what `$panes` and `$late` keep


def test_panes_and_late_rows_can_be_read_before_there_is_a_watermark() -> None:
    story = IDS["custom: no window at night"]
    with short_lived() as folder, StoreScript(story.flow(), folder) as script:
        player = Player(story, script, "real store")
        player.perform(story.steps[0])
        assert [r["pane"] for r in script.rows(f"{VIEW}$panes")] == [0]
        assert [r["reason"] for r in script.rows(f"{VIEW}$late")] == ["it belongs to no window"]


def test_panes_given_before_there_was_a_watermark_stay() -> None:
    story = IDS["tumbling: two records of one epoch"]
    with short_lived() as folder, StoreScript(story.flow(), folder) as script:
        Player(story, script, "real store").play()
        assert sorted(r["pane"] for r in script.panes()) == [0, 1]


def test_panes_given_at_the_end_of_time_stay() -> None:
    story = IDS["clocks: the end of time"]
    with short_lived() as folder, StoreScript(story.flow(), folder) as script:
        player = Player(story, script, "real store")
        for step in story.steps:
            player.perform(step)
        assert [(r["k"], r["pane"]) for r in script.panes() if r["is_last"]] == [("a", 1), ("b", 0)]


# ---------------------------------------------------------------- the stories themselves


def test_there_is_a_story_on_spark_for_every_theme() -> None:
    themes = {s.theme for s in ALL}
    assert themes == {s.theme for s in ALL if s.options.get("spark")}


def test_a_story_says_something() -> None:
    shown = {s.id for s in ALL if s.shows_panes or s.shows_changes or s.steps[-1].stops}
    silent = [s.id for s in ALL if s.id not in shown and all(x.view is None for x in s.steps)]
    assert not silent
