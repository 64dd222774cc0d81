"""Results: what they become, how they print, what a notebook shows, and the old names."""

import builtins
import sys
import warnings
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest

from millstream.errors import Unsupported
from millstream.result import HTML_CHARACTERS, HTML_COLUMNS, HTML_ROWS, SHOWN_ROWS, Result

TABLE = pa.table({"auction": [1007, 1008], "name": ["a", None]})


def test_a_result_becomes_what_the_ecosystem_uses() -> None:
    result = Result(TABLE)
    assert result.to_arrow() is TABLE
    assert result.to_dicts() == list(result) == TABLE.to_pylist()
    assert result.to_polars().equals(pl.DataFrame(TABLE.to_pydict()))
    assert result.to_pandas()["auction"].tolist() == [1007, 1008]
    assert len(result) == 2 and result.columns == ["auction", "name"] and result.types == ["BIGINT", "STRING"]


def test_a_result_is_arrow_data_for_other_libraries() -> None:
    result = Result(TABLE)
    assert pa.table(result).equals(TABLE)
    assert pl.DataFrame(result).equals(pl.DataFrame(TABLE.to_pydict()))
    assert duckdb.sql("SELECT max(auction) FROM result").fetchall() == [(1008,)]


@pytest.mark.parametrize(
    ("old", "new"), [("arrow", "to_arrow"), ("pandas", "to_pandas"), ("polars", "to_polars"), ("rows", "to_dicts")]
)
def test_an_old_name_works_and_names_the_new_one(old: str, new: str) -> None:
    result = Result(TABLE)
    with pytest.warns(DeprecationWarning, match=rf"Result\.{old}\(\) is deprecated; use Result\.{new}\(\)") as caught:
        found = getattr(result, old)()
    assert str(found) == str(getattr(result, new)())
    assert [w.filename for w in caught] == [__file__]  # it points to the caller


def test_the_new_names_do_not_warn() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Result(TABLE).to_arrow(), Result(TABLE).to_pandas(), Result(TABLE).to_polars(), Result(TABLE).to_dicts()


def test_without_pandas_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without_pandas(name: str, *args: Any, **named: Any) -> Any:
        if name.partition(".")[0] == "pandas":
            raise ModuleNotFoundError("No module named 'pandas'", name="pandas")
        return real(name, *args, **named)

    monkeypatch.setattr(builtins, "__import__", without_pandas)
    for module in [m for m in sys.modules if m.partition(".")[0] == "pandas"]:
        monkeypatch.delitem(sys.modules, module)
    with pytest.raises(Unsupported, match="needs pandas") as caught:
        Result(TABLE).to_pandas()
    assert 'pip install "millstream[pandas]"' in (caught.value.hint or "")
    assert len(Result(TABLE).to_polars()) == len(Result(TABLE).to_dicts()) == 2


def test_print_shows_all_rows_and_repr_the_first_with_types_and_epochs() -> None:
    many = Result(pa.table({"n": list(range(1_000))}), epochs={"b": 12, "a": 3_456})
    assert len(str(many).splitlines()) == 1_003
    lines = repr(many).splitlines()
    assert [line.strip() for line in lines[:3]] == ["n", "BIGINT", "------"]
    assert len(lines) == SHOWN_ROWS + 4
    assert lines[-1] == "(1000 rows, the first 20 shown, as of epoch 3,456 of a, epoch 12 of b)"


def test_repr_of_a_small_result() -> None:
    assert repr(Result(TABLE)) == ("auction  name\n BIGINT  STRING\n-------  ------\n   1007  a\n   1008\n(2 rows)")


def test_repr_of_nothing() -> None:
    assert repr(Result(pa.table({"n": pa.array([], pa.int64())}))) == "n\nBIGINT\n------\n(0 rows)"


def test_two_columns_of_one_name_are_both_shown() -> None:
    table = pa.table([pa.array([1]), pa.array([2])], names=["x", "x"])
    assert repr(Result(table)).splitlines()[3] == "     1       2"
    assert Result(table)._repr_html_().count("<th") == 2 + 1  # and the one of <thead>


def test_a_notebook_shows_types_epochs_and_warnings() -> None:
    shown = Result(TABLE, ("the view `v` has failed",), {"auctions": 7})._repr_html_()
    assert '<th class="number">auction<br><span class="type">BIGINT</span></th>' in shown
    assert '<td class="number">1007</td><td>a</td>' in shown
    assert '<span class="null">NULL</span>' in shown
    for note in ("2 rows", "as of epoch 7 of auctions", "warning: the view `v` has failed"):
        assert f'<div class="note">{note}</div>' in shown


def test_data_cannot_write_html() -> None:
    evil = "<script>alert('x')</script>&"
    shown = Result(pa.table({evil: [evil], "b": ["a\x1b[31m\nb"]}), (evil,), {evil: 1})._repr_html_()
    assert "<script" not in shown and shown.count("&lt;script&gt;") == 4
    assert "\x1b" not in shown and "a\\x1b[31m\\nb" in shown


def test_what_a_notebook_shows_is_bounded() -> None:
    wide = pa.table({f"c{i}": ["x" * 10_000] * 1_000 for i in range(100)})
    shown = Result(wide)._repr_html_()
    assert shown.count("<tr>") == HTML_ROWS + 1
    assert shown.count("<th>") == HTML_COLUMNS
    assert len(shown) < HTML_ROWS * HTML_COLUMNS * (HTML_CHARACTERS + 20) + 10_000
    assert "1000 rows, the first 50 shown; the first 50 of 100 columns shown" in shown


def test_a_type_without_an_sql_name_is_shown_as_arrow_names_it() -> None:
    assert Result(pa.table({"u": pa.array([1], pa.uint64())})).types == ["uint64"]
