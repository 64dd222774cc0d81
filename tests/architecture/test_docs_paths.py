"""Paths named in the documents and docstrings exist: words in backticks that look like a path of the repository, links.

A path of a layer may be named short (`engine/spark/errors.py`); it is held only once that layer exists.
Patterns (`<slug>`, `*`, `NNNN`) and code blocks are not looked at.
"""

import re
from pathlib import Path

import pytest

from tests.architecture.sources import PACKAGE, modules, text_of

ROOT = Path(__file__).parents[2]
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


@pytest.mark.parametrize("layer", sorted({p.relative_to(PACKAGE).parts[0] for p in modules()}))
def test_the_paths_that_docstrings_and_comments_name_exist(layer: str) -> None:
    missing: dict[str, list[str]] = {}
    for module in (m for m in modules() if m.relative_to(PACKAGE).parts[0] == layer):
        words = BACKTICKS.findall(text_of(module))
        for word in (w for w in words if w.endswith((".py", ".md")) and "/" in w):
            found = places(word, module)
            if found and not any(p.exists() or is_generated(p) for p in found):
                missing.setdefault(str(module.relative_to(ROOT)), []).append(word)
    assert not missing, f"these name what does not exist: {missing}"


@pytest.mark.parametrize("folder", sorted({str(d.relative_to(ROOT).parent) for d in DOCUMENTS}))
def test_the_paths_a_document_names_exist(folder: str) -> None:
    wrong = {str(d.relative_to(ROOT)): missing_in(d) for d in DOCUMENTS if str(d.relative_to(ROOT).parent) == folder}
    assert not any(wrong.values()), f"these name what does not exist: { {d: m for d, m in wrong.items() if m} }"


def missing_in(document: Path) -> list[str]:
    """The paths and links of a document that lead nowhere."""
    text = CODE_BLOCK.sub("", document.read_text(encoding="utf-8"))
    missing = [
        word
        for word in BACKTICKS.findall(text)
        if (found := places(word, document)) and not any(p.exists() or is_generated(p) for p in found)
    ]
    return missing + [
        link
        for link in LINK.findall(text)
        if "://" not in link and not link.startswith("mailto:") and not (document.parent / link).exists()
    ]
