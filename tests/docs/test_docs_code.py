"""The Python and SQL blocks of README and docs run, and give the output that the page shows.

The blocks of a page run in order, in one namespace and one empty directory; SQL in one session on a home of its own. A
```text block that follows such a block is what it prints. One of two comments may stand before a block; readers do not
see them:

    <!-- setup: Python that runs first -->
    <!-- not run: the reason -->
"""

from __future__ import annotations

import contextlib
import io
import re
import sys
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

import pytest

import millstream as ms
from millstream.live.session import Session

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
LONG = {"docs/guide/corrections.md", "docs/guide/event-time.md", "docs/guide/joins.md"}
"""Pages that take more than a few seconds: slow tests."""
FENCE = re.compile(r"^```(?P<language>\w*)\n(?P<code>.*?)^```$", re.DOTALL | re.MULTILINE)
COMMENT = re.compile(r"<!--\s*(?P<kind>setup|not run):(?P<content>(?:(?!-->).)*)-->\s*\Z", re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A Python or SQL block of a page, what has to run before it, and what it has to print."""

    line: int
    code: str
    setup: str = ""
    output: str | None = None
    skipped: bool = False
    language: str = "python"


def blocks(text: str) -> list[Block]:
    """The Python and SQL blocks of a page, in order."""
    fences = list(FENCE.finditer(text))
    found = []
    for fence, following in zip_longest(fences, fences[1:]):
        if fence["language"] not in ("python", "sql"):
            continue
        comment = COMMENT.search(text[: fence.start()])
        kind, content = (comment["kind"], comment["content"]) if comment else ("", "")
        output = following["code"] if following is not None and following["language"] == "text" else None
        found.append(
            Block(
                line=text.count("\n", 0, fence.start()) + 2,
                code=fence["code"],
                setup=content.strip() if kind == "setup" else "",
                output=output,
                skipped=kind == "not run",
                language=fence["language"],
            )
        )
    return found


def run(page: str, block: Block, namespace: dict[str, object]) -> None:
    """Run a block as if it stood at its line of the page, and compare what it prints."""
    exec(compile(block.setup, f"{page} (setup)", "exec"), namespace)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        if block.language == "sql":
            speak(block.code, page, namespace)
        else:
            exec(compile("\n" * (block.line - 1) + block.code, page, "exec"), namespace)
    if block.output is not None:
        assert printed.getvalue() == block.output, f"{page}:{block.line} prints\n{printed.getvalue()}"


def speak(sql: str, page: str, namespace: dict[str, object]) -> None:
    """Carry out the statements of a block, and print the answers as a shell would."""
    if "$home" not in namespace:
        namespace["$home"] = home = ms.open("sql-home")
        namespace["$session"] = home.session()
    session = namespace["$session"]
    assert isinstance(session, Session)
    for answer in session.execute(sql, name=page):
        for part in (answer.message, answer.text, answer.result):
            if part is not None and str(part):
                sys.stdout.write(f"{part}\n")


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def runnable(page: Path) -> list[Block]:
    return [b for b in blocks(page.read_text(encoding="utf-8")) if not b.skipped]


@pytest.mark.spark
@pytest.mark.parametrize(
    "page",
    [pytest.param(p, id=name(p), marks=[pytest.mark.slow] if name(p) in LONG else []) for p in PAGES if runnable(p)],
)
def test_the_code_of_a_page_runs_and_prints_what_the_page_says(
    spark: object, page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": "__main__"}
    try:
        for block in runnable(page):
            run(name(page), block, namespace)
    finally:
        home = namespace.get("$home")
        if isinstance(home, ms.Home):
            home.close()


def test_blocks_are_found_with_their_setup_and_output() -> None:
    text = (
        "# Page\n\n<!-- setup:\nx = 1\n-->\n```python\nprint(x)\n```\n\n```text\n1\n```\n"
        "<!-- not run: no broker -->\n```python\nboom()\n```\n```bash\nls\n```\n"
    )
    first, second = blocks(text)
    assert (first.line, first.code, first.setup, first.output) == (7, "print(x)\n", "x = 1", "1\n")
    assert second.skipped
    assert second.output is None


def test_output_that_differs_is_told() -> None:
    with pytest.raises(AssertionError, match="page:3 prints"):
        run("page", Block(line=3, code="print(2)", output="1\n"), {})
