"""Python operators on Spark: every placement gives the same, table functions, steps before and behind a process."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import millstream as ms
from millstream.errors import UserCodeFailed
from millstream.testing import Script

pytestmark = pytest.mark.spark

SCHEMA = "user BIGINT, page STRING, ts TIMESTAMP"
BASE = 1_767_225_600


def hits(count: int) -> list[dict[str, Any]]:
    return [
        {"user": i * 7 % 5, "page": f"shop/{i % 3} cart" if i % 4 else "pay", "ts": BASE + i // 2} for i in range(count)
    ]


@dataclass
class Seen:
    count: int = 0


class Numbered(ms.Process):
    """Numbers the words of each user, and tells of payments."""

    state = Seen

    def on_row(self, row: Any, state: Seen, ctx: ms.Context) -> Any:
        state.count += 1
        if row.word == "pay":
            ctx.emit((ctx.key, state.count), to="paid")
        return {"user": row.user, "word": row.word, "n": state.count, "length": row.length}


def words(page: str) -> Iterator[Any]:
    for word in page.replace("/", " ").split():
        if word.isalpha():
            yield {"word": word, "length": len(word)}


def flow_of() -> ms.Flow:
    flow = ms.Flow("site")
    given = flow.source("hits", ms.memory(partitions=2), schema=SCHEMA, event_time="ts", lateness="1 hour")
    each = given.flat_map_rows(words, on="page", schema="word STRING, length BIGINT").where("length > 2")
    found = each.key_by("user").process(
        Numbered(), schema="user BIGINT, word STRING, n BIGINT, length BIGINT", side={"paid": "user BIGINT, n BIGINT"}
    )
    found.with_columns(word="upper(word)").view("numbered")
    found.side("paid").key_by("user").aggregate(payments=ms.count(), last=ms.max("n")).view("payments")
    return flow


def expected(sent: list[dict[str, Any]]) -> tuple[list[Any], dict[int, tuple[int, int]]]:
    """The same in plain Python, over rows in the order they are taken."""
    counts: dict[int, int] = {}
    numbered, paid = [], {}
    for row in sent:
        for word in words(row["page"]):
            user = row["user"]
            counts[user] = counts.get(user, 0) + 1
            numbered.append((user, word["word"].upper(), counts[user], word["length"]))
            if word["word"] == "pay":
                before = paid.get(user, (0, 0))
                paid[user] = (before[0] + 1, counts[user])
    return numbered, paid


@pytest.mark.parametrize("placement", ["inline", "spread"])
def test_a_process_gives_the_same_wherever_rows_are_taken_in(tmp_path: Path, placement: str) -> None:
    sent = hits(60)
    taken: list[dict[str, Any]] = []
    with Script(flow_of(), tmp_path, placement=placement) as script:
        for start in (0, 30):
            parts = [sent[start : start + 20], sent[start + 20 : start + 30]]
            for partition, rows in enumerate(parts):
                script.send("hits", *rows, partition=partition)
            taken += [*parts[0], *parts[1]]
            script.tick()
        numbered, paid = expected(taken)
        rows = [tuple(r.values()) for r in script.rows("numbered")]
        if placement == "spread":  # rows of different keys come from different shards
            rows, numbered = (sorted(each, key=lambda r: r[0]) for each in (rows, numbered))
        assert rows == numbered
        assert {r["user"]: (r["payments"], r["last"]) for r in script.rows("payments")} == paid


def test_a_table_function_that_fails_is_named(tmp_path: Path) -> None:
    def broken(page: str) -> list[Any]:
        msg = "no such page"
        raise LookupError(msg)

    flow = ms.Flow("site")
    flow.source("hits", ms.memory(), schema=SCHEMA).flat_map_rows(broken, on="page", schema="x BIGINT").view("seen")
    with Script(flow, tmp_path) as script:
        script.send("hits", *hits(1))
        with pytest.raises(UserCodeFailed, match=r"broken.*failed: LookupError: no such page"):
            script.tick()


def words_of(text: str | None) -> list[Any]:
    return [(word, len(word)) for word in (text or "").split()]


def test_sql_has_table_functions_as_lateral(tmp_path: Path) -> None:
    with ms.open(tmp_path / "home") as home:
        topic = home.topic("notes", schema="id BIGINT, text STRING")
        home.sql(
            "CREATE SOURCE notes (id BIGINT, text STRING) FROM LOG('notes');"
            f"CREATE FUNCTION words_of AS '{__name__}:words_of' RETURNS ARRAY<STRUCT<word: STRING, length: INT>>;"
            "CREATE VIEW plain AS SELECT id, word, length FROM notes, LATERAL words_of(text);"
            "CREATE VIEW counted AS SELECT t.w, count(*) AS n FROM notes LATERAL VIEW words_of(text) t AS w, l"
            " WHERE l > 1 GROUP BY t.w;"
            "CREATE VIEW padded AS SELECT id, t.w FROM notes LEFT JOIN LATERAL TABLE(words_of(text)) AS t(w, l) ON TRUE"
        )
        topic.append([{"id": 1, "text": "to be or"}, {"id": 2, "text": ""}, {"id": 3, "text": "not to b"}])
        session = home.session()
        session.written.add("notes")
        session.settings["wait"] = 300
        session.settle()

        def told(sql: str) -> list[tuple[Any, ...]]:
            return [tuple(row.values()) for row in home.query(sql).to_dicts()]

        assert told("SELECT * FROM plain ORDER BY id, word") == [
            *[(1, "be", 2), (1, "or", 2), (1, "to", 2), (3, "b", 1), (3, "not", 3), (3, "to", 2)]
        ]
        assert told("SELECT * FROM counted ORDER BY 1") == [("be", 1), ("not", 1), ("or", 1), ("to", 2)]
        assert told("SELECT id, w FROM padded WHERE id = 2") == [(2, None)]
