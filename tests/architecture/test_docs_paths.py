"""Paths named in the documents and docstrings exist: words in backticks that look like a path of the repository, links.

A path of a layer may be named short (`engine/spark/errors.py`); it is held only once that layer exists.
Patterns (`<slug>`, `*`, `NNNN`) and code blocks are not looked at.
"""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "millstream"
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "changes").glob("*.md")])

FOLDERS = ("src", "tests", "docs", "bench", "examples", "scripts", "changes", ".ci")
LAYERS = (
    *("model", "sql", "plan", "connect", "log", "engine", "kernels", "state", "store"),
    *("runtime", "live", "serve", "cli", "testing"),
)
ROOT_FILE = re.compile(r"^(Makefile|LICENSE|\.gitignore|[\w-]+\.(md|toml))$")

CODE_BLOCK = re.compile(r"^(```|~~~).*?^\1", re.DOTALL | re.MULTILINE)
BACKTICKS = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\(([^)\s#]+)(?:#[^)]*)?\)")
PATTERN = re.compile(r"[*<>{}$ ]|NNNN|\.\.\.")


def places(word: str, document: Path) -> list[Path]:
    """Where a word in backticks may be found; no places when it is not a path of ours."""
    word = word.split("::", maxsplit=1)[0].removeprefix("./")
    first = word.split("/")[0]
    if PATTERN.search(word):
        return []
    if "/" in word and first in FOLDERS:
        return [ROOT / word]
    if "/" in word and first in LAYERS and (PACKAGE / first).is_dir():
        return [PACKAGE / word, ROOT / word]
    if ROOT_FILE.match(word):
        return [ROOT / word, document.parent / word]
    return []


def is_generated(path: Path) -> bool:
    """Whether a path is made by a command, or written by users (their settings)."""
    return any(part in {".data", ".envs", "CHANGELOG.md", "millstream.toml"} for part in path.parts)


MODULES = sorted(PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("module", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_the_paths_that_docstrings_and_comments_name_exist(module: Path) -> None:
    words = BACKTICKS.findall(module.read_text(encoding="utf-8"))
    files = [w for w in words if w.endswith((".py", ".md")) and "/" in w]
    missing = [
        w for w in files if (found := places(w, module)) and not any(p.exists() or is_generated(p) for p in found)
    ]
    assert not missing, f"{module.relative_to(ROOT)} names {missing}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda p: str(p.relative_to(ROOT)))
def test_the_paths_a_document_names_exist(document: Path) -> None:
    text = CODE_BLOCK.sub("", document.read_text(encoding="utf-8"))
    missing = [
        word
        for word in BACKTICKS.findall(text)
        if (found := places(word, document)) and not any(p.exists() or is_generated(p) for p in found)
    ]
    missing += [
        link
        for link in LINK.findall(text)
        if "://" not in link and not link.startswith("mailto:") and not (document.parent / link).exists()
    ]
    assert not missing, f"{document.relative_to(ROOT)} names {missing}"
