"""A public class has a name of its own: a reader who meets the name knows which class it is."""

import ast
from collections import defaultdict

from tests.architecture.test_imports import PACKAGE, modules

OPEN = {
    "Batches": {"model/types/duckdb_values.py", "plan/parts.py"},
    "Bounds": {"model/event_times.py", "sql/bind/offset_and_ties.py"},
    "Call": {"plan/operators/chained.py", "plan/operators/pattern.py", "sql/relations/windows.py"},
    "Constant": {"plan/operators/chained.py", "plan/operators/pattern.py"},
    "Files": {"log/storage/files.py", "model/connectors.py"},
    "Found": {"kernels/patterns/search.py", "log/recovery.py"},
    "Function": {"model/python/function.py", "model/steps/relational.py"},
    "Keys": {"kernels/python/keys.py", "kernels/windows/count_windows.py"},
    "Limits": {"limits.py", "log/writer.py"},
    "Once": {"model/windows/trigger.py", "plan/operators/chained.py"},
    "Output": {"model/python/process.py", "plan/operators/pattern.py"},
    "Over": {"plan/operators/chained.py", "plan/operators/pattern.py"},
    "Processed": {"kernels/python/process.py", "model/steps/process.py"},
    "Rows": {"kernels/patterns/search.py", "kernels/python/keys.py", "kernels/stage.py"},
    "Run": {"runtime/supervision/run.py", "state/run.py"},
    "Session": {"live/session.py", "model/windows/kinds.py"},
    "Windowed": {"model/steps/relational.py", "sql/relations/relation.py"},
}
"""Names that several classes still share, and where. The list only becomes shorter: see the second test."""


def shared_names() -> dict[str, set[str]]:
    """Names of public classes that several modules define, and these modules."""
    places: dict[str, set[str]] = defaultdict(set)
    for path in modules():
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].add(str(path.relative_to(PACKAGE)))
    return {name: found for name, found in places.items() if len(found) > 1}


def test_no_two_public_classes_share_a_name() -> None:
    wrong = {name: sorted(places) for name, places in shared_names().items() if not places <= OPEN.get(name, set())}
    assert not wrong, f"rename all but one of each: {wrong}"


def test_names_that_are_no_longer_shared_are_off_the_list() -> None:
    done = sorted(OPEN.keys() - shared_names().keys())
    assert not done, f"take them out of OPEN: {done}"
