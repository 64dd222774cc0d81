"""The examples in docstrings run."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

SRC = Path(__file__).parents[2] / "src"
MODULES = [
    ".".join(path.relative_to(SRC).with_suffix("").parts)
    for path in sorted((SRC / "millstream").rglob("*.py"))
    if ">>> " in path.read_text(encoding="utf-8")
]


@pytest.mark.parametrize("module", MODULES)
def test_the_examples_in_the_docstrings_of_a_module_run(module: str) -> None:
    failed, tried = doctest.testmod(importlib.import_module(module))
    assert tried
    assert not failed


def test_the_model_the_clock_and_the_results_have_examples() -> None:
    assert {"millstream.model.flow", "millstream.clock", "millstream.result"} <= set(MODULES)
