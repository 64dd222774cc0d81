"""The modules of the package as syntax trees, parsed once for all tests of the architecture."""

from __future__ import annotations

import ast
import functools
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "src" / "millstream"


@functools.cache
def modules() -> tuple[Path, ...]:
    """The files of the package, in order."""
    return tuple(sorted(PACKAGE.rglob("*.py")))


@functools.cache
def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@functools.cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(text_of(path), filename=str(path))


@functools.cache
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    """All nodes of a module, as `ast.walk` gives them."""
    return tuple(ast.walk(tree_of(path)))
