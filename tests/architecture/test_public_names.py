"""The public names are a sorted list, and each can be read about."""

import importlib
import importlib.util
import inspect
from pathlib import Path

import pytest

INIT = Path(__file__).parents[2] / "src" / "millstream" / "__init__.py"

pytestmark = pytest.mark.skipif(not INIT.exists(), reason="millstream is not written yet")


def own_docstring(value: object) -> str:
    """The docstring somebody wrote: not an inherited one, nor the signature a dataclass makes up."""
    if inspect.isclass(value):
        text = str(vars(value).get("__doc__") or "")
        return "" if text.startswith(f"{value.__name__}(") else text
    return inspect.getdoc(value) or ""


def test_the_public_names_are_sorted_and_unique() -> None:
    names = importlib.import_module("millstream").__all__
    assert list(names) == sorted(set(names))


def test_the_names_of_the_package_are_those_of_the_module_that_it_loads() -> None:
    assert importlib.import_module("millstream").__all__ == importlib.import_module("millstream.public").__all__


def test_the_sub_packages_that_share_a_name_with_a_function_are_known() -> None:
    millstream = importlib.import_module("millstream")
    modules = {n for n in millstream.__all__ if importlib.util.find_spec(f"millstream.{n}") is not None}
    assert modules == millstream._HIDDEN


def test_every_public_name_exists_and_has_a_docstring() -> None:
    millstream = importlib.import_module("millstream")
    absent = [name for name in millstream.__all__ if not hasattr(millstream, name)]
    assert not absent, f"in __all__ but not there: {absent}"
    silent = [name for name in millstream.__all__ if not own_docstring(getattr(millstream, name)).strip()]
    assert not silent, f"no docstring: {silent}"


def test_dir_shows_the_public_names() -> None:
    millstream = importlib.import_module("millstream")
    assert set(millstream.__all__) <= set(dir(millstream))
