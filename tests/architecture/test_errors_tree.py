"""The error tree drawn in the docstring of errors.py is the real one.

A drawn line is branch marks, a class name, then two spaces and its meaning:

    MillstreamError          the root
    |- DefinitionError       the flow as written is wrong
    |  |- SchemaError
    `- ViewError

The column of the name gives its depth. The tree ends at the first line that is not such a line.
"""

import importlib
import re
from pathlib import Path

import pytest

ERRORS = Path(__file__).parents[2] / "src" / "millstream" / "errors.py"
ROOT = "MillstreamError"
LINE = re.compile(r"^(?P<marks>[\s|`+'\\├└│─-]*)(?P<name>[A-Z]\w*)(?:\s{2,}.*|\s*)$")


def drawn_tree(docstring: str) -> dict[str, str | None]:
    """Class name -> name of its parent, as drawn."""
    parents: dict[str, str | None] = {}
    above: list[tuple[int, str]] = []  # (column, name) from the root down to the line before
    for line in docstring.splitlines():
        found = LINE.match(line)
        if not above:
            if found and found["name"] == ROOT:
                parents[ROOT] = None
                above = [(found.start("name"), ROOT)]
            continue
        if not found or found.start("name") <= above[0][0]:
            break
        while above[-1][0] >= found.start("name"):
            above.pop()
        assert found["name"] not in parents, f"{found['name']} is drawn twice"
        parents[found["name"]] = above[-1][1]
        above.append((found.start("name"), found["name"]))
    return parents


def real_tree(root: type) -> dict[str, str | None]:
    """Class name -> name of its parent, for all classes of errors.py under the root."""
    parents: dict[str, str | None] = {root.__name__: None}
    todo = [root]
    while todo:
        parent = todo.pop()
        for child in parent.__subclasses__():
            if child.__module__ == root.__module__:
                parents[child.__name__] = parent.__name__
                todo.append(child)
    return parents


@pytest.mark.skipif(not ERRORS.exists(), reason="errors.py is not written yet")
def test_the_drawn_error_tree_is_the_real_one() -> None:
    errors = importlib.import_module("millstream.errors")
    drawn = drawn_tree(errors.__doc__ or "")
    assert drawn, f"no tree that starts with {ROOT} in the docstring of errors.py"
    assert drawn == real_tree(errors.MillstreamError)


@pytest.mark.skipif(not ERRORS.exists(), reason="errors.py is not written yet")
def test_every_error_says_what_it_means() -> None:
    errors = importlib.import_module("millstream.errors")
    silent = [name for name in real_tree(errors.MillstreamError) if not vars(errors)[name].__dict__.get("__doc__")]
    assert not silent, f"no docstring: {silent}"


@pytest.mark.parametrize("marks", [("|- ", "|  ", "`- "), ("├─ ", "│  ", "└─ "), ("    ", "    ", "    ")])
def test_a_tree_is_read_whatever_its_branches_look_like(marks: tuple[str, str, str]) -> None:
    tee, bar, end = marks
    tree = f"{ROOT}  root\n{tee}PlanError  no plan\n{bar}{end}Unsupported\n{end}ViewError\n"
    text = f"The errors.\n\n{tree}\nMore text."
    assert drawn_tree(text) == {
        ROOT: None,
        "PlanError": ROOT,
        "Unsupported": "PlanError",
        "ViewError": ROOT,
    }
