"""Facts that are written in one place: names of the store's files, and what readers of forms and systems there are."""

from __future__ import annotations

import ast
from typing import get_args

from millstream.connect.forms import Form
from millstream.store.files import STORE_FILE
from millstream.testing.slice_rows import _READERS
from tests.architecture.sources import PACKAGE, modules, nodes_of


def test_the_file_of_the_store_is_named_in_one_module() -> None:
    spelled = set()
    for path in modules():
        nodes = nodes_of(path)
        docs = {id(n.value) for n in nodes if isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant)}
        constants = (n for n in nodes if isinstance(n, ast.Constant) and id(n) not in docs)
        if any(isinstance(c.value, str) and STORE_FILE in c.value for c in constants):
            spelled.add(str(path.relative_to(PACKAGE)))
    assert spelled == {"store/files.py"}


def test_every_form_can_be_read_without_spark() -> None:
    assert set(_READERS) == set(get_args(Form))
