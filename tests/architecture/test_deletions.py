"""What deletes, renames, replaces or truncates: `millstream/paths.py` alone, which stays inside the home and follows no
link. Every call in the syntax trees that could do so is found; one that is not listed here fails.
"""

import ast
import functools
from pathlib import Path

import pytest

from tests.architecture.sources import PACKAGE, modules, nodes_of

VERBS = frozenset(
    {"unlink", "rmdir", "rmtree", "remove", "rename", "replace", "truncate", "ftruncate", "move", "removedirs"}
)

ALLOWED: dict[str, frozenset[str]] = {
    "paths": frozenset({"os.unlink", "os.rmdir", "os.rename", "os.ftruncate", "shutil.rmtree"}),
    # the file layer of the log: its deletions are those of `paths`; it writes through descriptors that `paths` opened
    "log.storage.disk": frozenset({"os.ftruncate"}),
    "log.storage.files": frozenset({"disk.rename", "disk.unlink"}),
    "log.log": frozenset({"self._disk.rename", "self._disk.rmdir", "self._disk.unlink"}),
    "log.recovery": frozenset({"disk.truncate", "disk.unlink"}),
    "log.writer": frozenset({"self._disk.truncate", "self._disk.unlink"}),
    # a script in a process of its own, which imports nothing of Millstream; it renames what it wrote itself
    "store.subprocess_child": frozenset({"os.rename"}),
    # not of files: definitions, holds, lists, frames, trees of SQL
    "cli.commands.project.check_files": frozenset({"self.catalog.remove"}),
    "kernels.windows.assign": frozenset(
        {
            "ended.with_columns((pl.col('$end') - window.size.micros).alias('$s')).rename",
            "local.dt.replace_time_zone(None).dt.truncate",
        }
    ),
    "kernels.windows.corrections": frozenset({"arrivals.rename", "rows.drop('$h').rename"}),
    "kernels.windows.count_windows": frozenset({"edge.select(*self.by, '$ts', '$part', '$pos').rename"}),
    "kernels.multiset": frozenset({"results.rename"}),
    "live.inspect": frozenset({"rows.rename"}),
    "live.deployment": frozenset({"catalog.remove", "definitions.remove"}),
    "live.select": frozenset({"table.replace"}),
    "log.holds": frozenset({"self._holds.remove"}),
    "model.expression": frozenset({"old.replace"}),
    "model.types.interval_types": frozenset({"kind.replace"}),
    "model.patterns.navigation": frozenset({"child.replace", "column.replace"}),
    "plan.rules.output_bounds": frozenset({"column.replace", "node.replace"}),
    "sql.subqueries.correlated": frozenset({"column.replace"}),
    "sql.dialects.function_names": frozenset({"call.replace"}),
    "sql.bind.grouping.group_by": frozenset({"column.replace"}),
    "sql.parse.checks.allow_list": frozenset({"node.replace"}),
    "sql.query.divisions": frozenset({"chain.replace", "value.replace"}),
    "sql.query.functions": frozenset({"call.replace"}),
    "sql.query.templates": frozenset({"column.replace"}),
    "sql.query.interval_sums": frozenset({"top.replace", "value.replace"}),
    "sql.query.clauses": frozenset({"item.replace", "part.replace"}),
    "sql.bind.pivot": frozenset({"of.replace"}),
    "sql.bind.window_function": frozenset({"window.replace"}),
    "sql.relations.relation": frozenset({"child.replace", "column.replace"}),
    "sql.bind.rewrites": frozenset({"node.replace", "select.replace"}),
    "sql.bind.select": frozenset({"aggregate.replace"}),
    "sql.subqueries.subqueries": frozenset({"column.replace", "comparison.replace", "inner.replace"}),
    "testing.sql_test_rows": frozenset({"left.remove"}),
}
"""Module -> the calls in it that are known. A new one belongs into `paths`; one that is not about files, here."""


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts)


@functools.cache
def all_in(module: Path) -> list[tuple[int, str]]:
    """The same of a module."""
    return _all_of(nodes_of(module))


def all_of(text: str) -> list[tuple[int, str]]:
    """Line and text of everything that may delete, rename, replace or truncate a file."""
    return _all_of(tuple(ast.walk(ast.parse(text))))


def _all_of(nodes: tuple[ast.AST, ...]) -> list[tuple[int, str]]:
    calls = {id(n.func): n for n in nodes if isinstance(n, ast.Call)}
    found: list[tuple[int, str]] = []
    for node in nodes:
        match node:
            case ast.Attribute(attr=verb, value=owner) if verb in VERBS:
                if ast.unparse(owner) != "paths" and not is_plain(node, calls):
                    found.append((node.lineno, ast.unparse(node)))
            case ast.ImportFrom(module="os" | "shutil" | "posix", names=names):
                found += [(node.lineno, f"import {a.name}") for a in names if a.name in VERBS | {"*"}]
            case ast.Call(func=ast.Name(id="getattr"), args=[_, ast.Constant(value=str(verb)), *_]) if verb in VERBS:
                found.append((node.lineno, ast.unparse(node)))
    return found


def is_plain(node: ast.Attribute, calls: dict[int, ast.Call]) -> bool:
    """Whether this is `replace` of a text (two values) or of a time (values by name); that of a path takes one."""
    call = calls.get(id(node))
    return node.attr == "replace" and call is not None and ast.unparse(node.value) != "os" and len(call.args) != 1


def test_only_paths_deletes_renames_or_truncates() -> None:
    wrong = [
        f"{path.relative_to(PACKAGE.parent)}:{line}: {call}"
        for path in modules()
        for line, call in all_in(path)
        if call not in ALLOWED.get(name_of(path), ())
    ]
    assert not wrong, "use millstream.paths, or say in ALLOWED why not:\n" + "\n".join(wrong)


def test_the_list_names_nothing_that_is_gone() -> None:
    there = {name_of(p): {call for _, call in all_in(p)} for p in modules()}
    assert {m: calls - there.get(m, set()) for m, calls in ALLOWED.items() if calls - there.get(m, set())} == {}


@pytest.mark.parametrize(
    "text",
    [
        "path.unlink()", "os.remove(p)", "os.replace(a, b)", "path.replace(b)", "shutil.rmtree(p)", "p.rmdir()",
        "file.truncate(3)", "os.rename(a, b)", "shutil.move(a, b)", "from os import unlink", "from shutil import *",
        "getattr(path, 'unlink')()", "each = map(os.unlink, files)",
    ],
)  # fmt: skip
def test_ways_to_delete_are_seen(text: str) -> None:
    assert len(all_of(text)) == 1


@pytest.mark.parametrize("text", ["'a'.replace('a', 'b')", "when.replace(tzinfo=UTC)", "paths.rename(a, b)"])
def test_what_deletes_nothing_is_not_seen(text: str) -> None:
    assert all_of(text) == []
