"""A public class has a name of its own: a reader who meets the name knows which class it is."""

import ast
from collections import defaultdict

from tests.architecture.sources import PACKAGE, modules, tree_of


def shared_names() -> dict[str, set[str]]:
    """Names of public classes that several modules define, and these modules."""
    places: dict[str, set[str]] = defaultdict(set)
    for path in modules():
        for node in tree_of(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].add(str(path.relative_to(PACKAGE)))
    return {name: found for name, found in places.items() if len(found) > 1}


def test_no_two_public_classes_share_a_name() -> None:
    wrong = {name: sorted(places) for name, places in shared_names().items()}
    assert not wrong, f"rename all but one of each: {wrong}"
