"""Who may import whom: the table of DESIGN section 3, held against the syntax trees.

Every import counts, also one inside a function or under TYPE_CHECKING: a layer that is only named is known.
Packages of the table that do not exist yet are simply not met.
"""

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.sources import PACKAGE, modules, nodes_of, tree_of

SRC = PACKAGE.parent

FACADE = frozenset({"__init__", "__main__", "home", "public", "reader", "result"})
"""What users import. May join all layers, but loads neither pyspark nor duckdb at import time."""

EVERYWHERE = frozenset(
    {"errors", "clock", "limits", "budget", "paths", "processes", "display", "deprecation", "settings", "units"}
)
"""Any layer may import these."""

BELOW_RUNTIME = frozenset({"model", "sql", "plan", "kernels", "state", "log", "store", "connect", "engine"})

MAY_IMPORT: dict[str, frozenset[str]] = {
    "errors": frozenset(),
    "display": frozenset(),
    "units": frozenset(),
    "settings": frozenset({"units"}),
    "deprecation": frozenset(),
    "clock": frozenset(),
    "paths": frozenset({"errors"}),
    "processes": frozenset(),
    "limits": frozenset(),
    "budget": frozenset({"limits"}),
    "model": frozenset(),
    "sql": frozenset({"model"}),
    "plan": frozenset({"model"}),
    "kernels": frozenset({"model", "plan.plan", "plan.parts", "plan.operators"}),  # of plan only the operator values
    "state": frozenset({"model"}),
    "log": frozenset({"model"}),
    "store": frozenset({"model"}),
    "connect": frozenset({"model", "log"}),
    # of connect only contracts and forms: the engine has one reader per form, and knows no connector
    "engine": frozenset(
        {"model", "plan", "kernels", "state", "log", *(f"connect.{m}" for m in ("port", "forms", "text_lines"))}
    ),
    "runtime": BELOW_RUNTIME,
    "live": BELOW_RUNTIME | {"runtime", "result"},  # SQL carried out on an open home
    "serve": frozenset({"runtime", "store", "model", "result", "live", "sql.parse.script", "sql.parse.text"}),
    "testing": BELOW_RUNTIME | {"runtime", "live"} | FACADE,
    "cli": BELOW_RUNTIME | {"runtime", "serve", "testing", "live"} | FACADE,
}
"""Layer -> what it may import besides itself, errors and clock. A dotted entry allows that module only."""

SPARK = frozenset({"pyspark", "py4j"})

OUTSIDE_KERNELS = SPARK | {"duckdb", "os", "pathlib", "shutil", "tempfile", "glob", "mmap", "fcntl", "time"}
"""A kernel is a pure function: no Spark, no store, no files, and time only as an argument."""


def name_of(path: Path) -> str:
    """`plan/plan.py` -> `plan.plan`; a package is named without `__init__`, but for the root."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if len(parts) > 1 and parts[-1] == "__init__" else parts)


def layer_of(name: str) -> str:
    return name.split(".", maxsplit=1)[0]


def is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test).split(".")[-1] == "TYPE_CHECKING"


@functools.cache
def imports_of(path: Path, *, at_import_time: bool = False) -> tuple[tuple[str, int], ...]:
    """(Dotted absolute name, line) of everything the module imports."""
    return tuple(_imports_of(path, at_import_time=at_import_time))


def _imports_of(path: Path, *, at_import_time: bool) -> Iterator[tuple[str, int]]:

    def walk(node: ast.AST) -> Iterator[ast.AST]:
        yield node
        for child in ast.iter_child_nodes(node):
            later = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            if at_import_time and (later or is_type_checking(child)):
                continue
            yield from walk(child)

    package = ("millstream", *path.relative_to(PACKAGE).parts[:-1])
    for node in walk(tree_of(path)) if at_import_time else nodes_of(path):
        match node:
            case ast.Import(names=names):
                for alias in names:
                    yield alias.name, node.lineno
            case ast.ImportFrom(module=module, names=names, level=level):
                base = package[: len(package) - level + 1] if level else ()
                origin = ".".join([*base, *([module] if module else [])])
                for alias in names:
                    yield f"{origin}.{alias.name}", node.lineno
            case ast.Call(func=func, args=[ast.Constant(value=str(target)), *_]):
                if getattr(func, "attr", getattr(func, "id", None)) in {"import_module", "__import__"}:
                    yield target, node.lineno


def inside(target: str) -> str | None:
    """The imported module as named in the table (`plan.plan`), or None when it is not ours."""
    if target.split(".", maxsplit=1)[0] != "millstream":
        return None
    rest = target.split(".")[1:]
    known = MAY_IMPORT.keys() | FACADE
    return ".".join(rest) if rest and rest[0] in known else "__init__"


def allowed(layer: str, target: str) -> bool:
    if layer in FACADE or layer_of(target) in {layer, *EVERYWHERE}:
        return True
    return any(target == entry or target.startswith(entry + ".") for entry in MAY_IMPORT[layer])


def report(path: Path, line: int, what: str) -> str:
    return f"{path.relative_to(SRC.parent)}:{line}: {what}"


def test_every_top_level_module_and_package_is_in_the_table() -> None:
    unknown = {layer_of(name_of(path)) for path in modules()} - MAY_IMPORT.keys() - FACADE
    assert not unknown, f"say in MAY_IMPORT what {sorted(unknown)} may import, and in DESIGN section 3 why"


@pytest.mark.parametrize("layer", sorted(MAY_IMPORT))
def test_a_layer_imports_only_what_the_table_allows(layer: str) -> None:
    wrong = [
        report(path, line, f"{layer} may not import {target}")
        for path in modules()
        if layer_of(name_of(path)) == layer
        for full_name, line in imports_of(path)
        if (target := inside(full_name)) and not allowed(layer, target)
    ]
    assert not wrong, "\n" + "\n".join(wrong)


def test_only_the_engine_imports_spark() -> None:
    wrong = [
        report(path, line, f"imports {target}; only engine/ may")
        for path in modules()
        if layer_of(name_of(path)) != "engine"
        for target, line in imports_of(path)
        if target.split(".")[0] in SPARK
    ]
    assert not wrong, "\n" + "\n".join(wrong)


def test_the_facade_imports_duckdb_only_inside_functions() -> None:
    wrong = [
        report(path, line, f"imports {target} at import time")
        for path in modules()
        if layer_of(name_of(path)) in FACADE
        for target, line in imports_of(path, at_import_time=True)
        if target.split(".")[0] == "duckdb"
    ]
    assert not wrong, "\n" + "\n".join(wrong)


def test_kernels_touch_neither_spark_nor_files_nor_the_time() -> None:
    wrong = []
    for path in (p for p in modules() if layer_of(name_of(p)) == "kernels"):
        wrong += [
            report(path, line, f"a kernel may not import {target}")
            for target, line in imports_of(path)
            if target.split(".")[0] in OUTSIDE_KERNELS
        ]
        wrong += [
            report(path, node.lineno, "a kernel may not open a file")
            for node in nodes_of(path)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "open"
        ]
    assert not wrong, "\n" + "\n".join(wrong)


@pytest.mark.parametrize(
    ("layer", "target", "answer"),
    [
        ("model", "errors", True),
        ("model", "plan.plan", False),
        ("kernels", "plan.plan", True),
        ("kernels", "plan.planner", False),
        ("state", "log.topic", False),
        ("connect", "log.topic", True),
        ("engine", "connect.forms", True),
        ("engine", "connect.files.source", False),
        ("serve", "engine.spark.session", False),
        ("testing", "cli.wiring", False),
        ("runtime", "__init__", False),
        ("cli", "__init__", True),
        ("home", "engine.spark.session", True),
        ("live", "runtime.open_home", True),
        ("live", "home", False),
    ],
)
def test_the_table_answers_as_the_design_says(layer: str, target: str, answer: bool) -> None:
    assert allowed(layer, target) is answer


def test_all_ways_to_import_are_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "PACKAGE", tmp_path)
    path = tmp_path / "engine" / "epoch.py"
    path.parent.mkdir()
    path.write_text(
        "import pyspark.sql as s\nfrom . import slices\nfrom ..model.flow import Flow\n"
        "from millstream import errors\ndef f():\n    import duckdb\nimport_module('millstream.state')\n",
        encoding="utf-8",
    )
    assert [name for name, _ in imports_of(path)] == [
        "pyspark.sql",
        "millstream.engine.slices",
        "millstream.model.flow.Flow",
        "millstream.errors",
        "duckdb",
        "millstream.state",
    ]
    assert "duckdb" not in [name for name, _ in imports_of(path, at_import_time=True)]
