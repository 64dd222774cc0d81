"""Stories: read from TOML, and what an engine gave in the words of a story. The grammar is in test_transcripts.py."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson

import millstream as ms
from millstream.model.connectors import Memory
from millstream.model.steps.aggregation import Aggregated
from millstream.model.windows.accumulation import Accumulation
from millstream.model.windows.trigger import AfterDelay, Trigger, finishes, walk
from millstream.testing.script import STEPS

FOLDER = Path(__file__).parent
BASE = datetime(2026, 1, 1, tzinfo=UTC)
NEAR = timedelta(days=10)
MICRO = timedelta(microseconds=1)
SOURCE, VIEW = "events", "answers"
TIMINGS = {"early": "early", "on time": "on-time", "late": "late"}
REASONS = {
    "behind the watermark": "behind",
    "the trigger of its window has finished": "finished",
    "it belongs to no window": "nowhere",
}
OPS = ("+I", "-U", "+U", "-D")
WORDS = ("send", "epoch", "clock", "end", "rest", "crash", "resume")
PANES_KEPT = "1000 days"
DEFAULT_AGGREGATES = 'n=count(), s=sum("v")'
KEYS = {
    *("name", "about", "window", "trigger", "accumulation", "lateness", "delay", "idle", "aggregates", "keyed"),
    *("partitions", "functions", "play", "replay", "cut", "spark"),
}

Row = Mapping[str, Any]


# ---------------------------------------------------------------- what is played


@dataclass(frozen=True)
class Record:
    """A record as it is sent."""

    key: str | None
    time: datetime
    value: int | None
    partition: int = 0

    @property
    def row(self) -> dict[str, Any]:
        return {"k": self.key, "v": self.value, "ts": self.time.isoformat()}


@dataclass(frozen=True)
class Step:
    """One line that does something, and what is expected after it, in canonical words."""

    line: int
    text: str
    clock: float = 0
    records: tuple[Record, ...] = ()
    epochs: int | None = None
    """How many epochs follow; None: as many as there is a reason for."""
    end: bool = False
    crash: str = ""
    resume: bool = False
    changes: list[str] = field(default_factory=list)
    panes: list[str] = field(default_factory=list)
    late: list[str] = field(default_factory=list)
    view: list[str] | None = None
    stops: str = ""
    """Part of the error with which the flow stops."""


@dataclass(frozen=True, repr=False)
class Story:
    """A story: a windowed step, what happens, and what is to be seen."""

    theme: str
    name: str
    about: str
    options: Mapping[str, Any]
    steps: tuple[Step, ...]
    _built: dict[bool, ms.Flow] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """Theme and name."""
        return f"{self.theme}: {self.name}"

    def __repr__(self) -> str:
        return f"<{self.id}>"

    @property
    def keyed(self) -> bool:
        return bool(self.options.get("keyed", True))

    @property
    def shows_changes(self) -> bool:
        return any(s.changes for s in self.steps)

    @property
    def shows_panes(self) -> bool:
        return any(s.panes for s in self.steps)

    @property
    def crashes(self) -> bool:
        return any(s.crash for s in self.steps)

    @property
    def records(self) -> list[Record]:
        return [r for s in self.steps for r in s.records]

    def flow(self, *, panes: bool = True) -> ms.Flow:
        """The flow of the story with nothing sent. It is built once: that takes as long as a short story."""
        if panes not in self._built:
            self._built[panes] = self._build(PANES_KEPT if panes else None)
        flow = self._built[panes]
        memory = flow.sources[0].connector
        assert isinstance(memory, Memory)
        memory.rows.clear()
        memory.ended.clear()
        return flow

    def _build(self, panes: str | None) -> ms.Flow:
        names = {n: getattr(ms, n) for n in ms.__all__}
        if functions := self.options.get("functions"):
            exec(functions, {"datetime": datetime, "timedelta": timedelta, "UTC": UTC}, names)
        made = {k: eval(self.options[k], names) for k in ("window", "trigger", "accumulation") if k in self.options}
        aggregates = eval(f"dict({self.options.get('aggregates', DEFAULT_AGGREGATES)})", names)
        flow = ms.Flow("story")
        stream = flow.source(
            SOURCE,
            ms.memory(partitions=self.options.get("partitions", 1)),
            schema="k STRING, v BIGINT, ts TIMESTAMP",
            event_time="ts",
            lateness=self.options.get("delay", "0 seconds"),
            idle_timeout=self.options.get("idle"),
            future_bound="100000 days",
        )
        late = {"lateness": self.options["lateness"]} if "lateness" in self.options else {}
        by_key = stream.key_by("k") if self.keyed else stream
        by_key.window(**made, **late, panes=panes).aggregate(**aggregates).view(VIEW)
        return flow

    @property
    def by_slices(self) -> bool:
        """Whether the other kernel could do it, if it were not for the panes."""
        step = self.flow(panes=False).views[0].input
        return isinstance(step, Aggregated) and step.windowing.by_slices

    @property
    def settles(self) -> bool:
        """Whether, by its definition alone, the final view does not depend on when records came: nothing is late, no
        trigger finishes or looks at the clock, and no pane leaves out what the one before it showed.
        """
        if self.crashes or any(s.late or s.stops for s in self.steps):
            return False
        names = {n: getattr(ms, n) for n in ms.__all__}
        trigger: Trigger = eval(self.options.get("trigger", "on_change()"), names)
        if finishes(trigger) or any(isinstance(t, AfterDelay) for t in walk(trigger)):
            return False
        return eval(self.options.get("accumulation", "retracting()"), names) is not Accumulation.DISCARDING

    @property
    def replays(self) -> bool:
        """Whether it is to be replayed: it settles, and its records do not come all at once already."""
        return bool(self.options.get("replay", self.settles)) and sum(bool(s.records) for s in self.steps) > 1

    @property
    def cuts(self) -> bool:
        """Whether it is to be cut: it settles, and some epoch has more than one record."""
        return bool(self.options.get("cut", self.settles)) and any(len(s.records) > 1 for s in self.steps)


def stories() -> list[Story]:
    """All stories of the folder, by theme and in the order in which they are written."""
    found = [story for path in sorted(FOLDER.glob("*.toml")) for story in _read(path)]
    twice = [i for i, n in Counter(s.id for s in found).items() if n > 1]
    assert not twice, f"stories with one name: {twice}"
    return found


def _read(path: Path) -> list[Story]:
    found = []
    for given in tomllib.loads(path.read_text(encoding="utf-8"))["story"]:
        where = f"{path.name}, story {given.get('name')!r}"
        unknown, missing = given.keys() - KEYS, {"name", "about", "window", "play"} - given.keys()
        assert not unknown and not missing, f"{where}: unknown {unknown or '-'}, missing {missing or '-'}"
        options = {k: v for k, v in given.items() if k not in ("name", "about", "play")}
        steps = _steps(given["play"], bool(given.get("keyed", True)), where)
        found.append(Story(path.stem, given["name"], given["about"], options, tuple(steps)))
    return found


# ---------------------------------------------------------------- reading a play


def _steps(play: str, keyed: bool, where: str) -> list[Step]:
    steps: list[Step] = []
    for number, raw in enumerate(play.splitlines(), start=1):
        line = re.sub(r"(^|\s)--(\s.*)?$", "", raw).strip()
        if not line:
            continue
        try:
            if line.split()[0] in WORDS:
                steps.append(_action(number, line, keyed))
            else:
                _expect(steps[-1], line)
        except (ValueError, IndexError, KeyError) as error:
            raise ValueError(f"{where}, line {number} of its play: {line!r}: {error}") from error
    return steps


def _action(number: int, line: str, keyed: bool) -> Step:
    word, _, rest = line.partition(" ")
    clock = 0.0
    if word == "clock":
        by, _, rest = rest.partition(" ")
        clock = float(by)
        word, _, rest = rest.partition(" ") if rest else ("rest", "", "")
    match word:
        case "send" | "epoch":
            records = tuple(_record(r.split(), keyed) for r in rest.split(",") if r.strip())
            return Step(number, line, clock, records, epochs=1 if word == "epoch" else None)
        case "rest" | "end" | "resume":
            if rest:
                raise ValueError(f"{word} stands alone")
            return Step(number, line, clock, end=word == "end", resume=word == "resume")
        case "crash":
            if rest not in STEPS:
                raise ValueError(f"crash where? one of {STEPS}")
            return Step(number, line, clock, crash=rest)
    raise ValueError(f"unknown action {word!r}")


def _record(words: list[str], keyed: bool) -> Record:
    partition = 0
    if re.fullmatch(r"p\d", words[-1]):
        partition = int(words.pop()[1:])
    key = words.pop(0) if keyed else "-"
    time, *value = words
    if len(value) > 1:
        raise ValueError("a record is: key time [value] [p<partition>]")
    number = None if value == ["-"] else int(value[0]) if value else 1
    return Record(None if key == "-" else key, instant(time), number, partition)


def _expect(step: Step, line: str) -> None:
    words = [_canonical(w) for w in line.split()]
    said = " ".join(words)
    if words[0] in OPS:
        step.changes.append(said)
    elif re.fullmatch(r"#\d+", words[0]):
        if words[1] not in TIMINGS.values():
            raise ValueError(f"a pane is one of {', '.join(TIMINGS.values())}")
        step.panes.append(said)
    elif words[0] == "late":
        *who, time, reason = words
        if reason not in REASONS.values():
            raise ValueError(f"a late row is one of {', '.join(REASONS.values())}")
        step.late.append(" ".join([*who, show(instant(time)), reason]))
    elif words[0] == "stops":
        object.__setattr__(step, "stops", line.removeprefix("stops").strip())
    elif words[0] == "view":
        shown = [] if words[1:] == ["nothing"] else [" ".join(words[1:])]
        object.__setattr__(step, "view", [*(step.view or []), *shown])
    else:
        raise ValueError("neither an action nor something to see")


def _canonical(word: str) -> str:
    if ".." not in word:
        return word
    start, end = word.split("..")
    return f"{show(instant(start))}..{show(instant(end))}"


def instant(text: str) -> datetime:
    """Seconds from 2026 on, or ISO 8601 text with its offset."""
    if re.fullmatch(r"-?\d+(\.\d{1,6})?", text):
        whole, _, part = text.partition(".")
        micros = int(part.ljust(6, "0")) if part else 0
        return BASE + timedelta(seconds=int(whole)) + (-micros if text.startswith("-") else micros) * MICRO
    found = datetime.fromisoformat(text)
    if found.tzinfo is None:
        raise ValueError(f"{text} needs an offset, e.g. Z")
    return found.astimezone(UTC)


# ---------------------------------------------------------------- writing down what was found


def show(time: datetime) -> str:
    """A time as a story writes it: seconds near the beginning of 2026, else ISO 8601 in UTC."""
    time = time.astimezone(UTC)
    if abs(time - BASE) > NEAR:
        return time.isoformat().replace("+00:00", "Z")
    micros = (time - BASE) // MICRO
    seconds, part = divmod(abs(micros), 1_000_000)
    return ("-" if micros < 0 else "") + str(seconds) + (f".{part:06d}".rstrip("0") if part else "")


def show_row(story: Story, row: Row) -> str:
    """Key, window and answers of a row."""
    words = [_show_value(row["k"])] if story.keyed else []
    if "window_index" in row:
        words.append(f"[{row['window_index']}]")
    if "window_start" in row:
        words.append(f"{show(row['window_start'])}..{show(row['window_end'])}")
    marks = ("window_index", "window_start", "window_end", "k", "pane", "timing", "is_first", "is_last")
    words += [f"{n}={_show_value(v)}" for n, v in row.items() if n not in (*marks, "watermark", "epoch")]
    return " ".join(words)


def show_change(story: Story, op: str, row: Row) -> str:
    return f"{op} {show_row(story, row)}"


def show_pane(story: Story, row: Row) -> str:
    last = " last" if row["is_last"] else ""
    return f"#{row['pane']} {TIMINGS[row['timing']]}{last} {show_row(story, row)}"


def show_late(story: Story, row: Row) -> str:
    record = orjson.loads(row["record"])
    key = [_show_value(record.get("k"))] if story.keyed else []  # Spark leaves a NULL out of the record
    return " ".join(["late", *key, show(row["event_time"]), REASONS.get(row["reason"], row["reason"])])


def _show_value(value: Any) -> str:
    match value:
        case None:
            return "-"
        case float():
            return f"{value:.6g}"
        case list():
            return f"[{','.join(map(_show_value, value))}]"
        case _:
            return str(value)


# ---------------------------------------------------------------- comparing


def differences(what: str, expected: Iterable[str], found: Iterable[str]) -> list[str]:
    """What is missing and what should not be there, as lines; in any order."""
    want, got = Counter(expected), Counter(found)
    lines = [f"      missing      {x}" for x in (want - got).elements()]
    lines += [f"      unexpected   {x}" for x in (got - want).elements()]
    same = [f"      as expected  {x}" for x in (want & got).elements()]
    return [f"  {what}:", *lines, *same] if lines else []


def failure(story: Story, run: str, step: Step | None, lines: Sequence[str]) -> AssertionError:
    """A failure that says which story, where, and expected against found."""
    options = ", ".join(f"{k}={v}" for k, v in story.options.items() if k not in ("functions", "replay", "cut"))
    head = [f"{story.id}  ({run})", f"  about: {story.about}", f"  with: {options}"]
    if step is not None:
        head.append(f"  at line {step.line} of its play: {step.text}")
    return AssertionError("\n".join([*head, *lines]))
