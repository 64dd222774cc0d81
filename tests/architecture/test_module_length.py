"""A module stays readable: at most 500 lines, and those above 300 are listed at the end of the test run."""

import ast

from tests.architecture.sources import PACKAGE, modules, text_of, tree_of

LIMIT = 500
EXCUSE = "Longer than 500 lines because"


def test_no_module_is_longer_than_500_lines_without_a_reason() -> None:
    too_long = []
    for path in modules():
        lines = len(text_of(path).splitlines())
        docstring = " ".join((ast.get_docstring(tree_of(path)) or "").split())
        if lines > LIMIT and EXCUSE not in docstring:
            too_long.append(f"{path.relative_to(PACKAGE)}: {lines} lines")
    assert not too_long, f"split these, or let the module docstring say '{EXCUSE} ...':\n" + "\n".join(too_long)
