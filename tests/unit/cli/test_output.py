"""What is printed holds all that was asked for, and data cannot steer the terminal."""

import pyarrow as pa
import pytest

from millstream.cli.output import csv_text, json_text, print_table
from millstream.cli.shell.output import expanded_text, table_text
from millstream.errors import QueryError
from millstream.result import Result

HOSTILE = "\x1b[31mred\r\n(9 rows)\x9b\u202e\u2028"
SEEN = "\\x1b[31mred\\r\\n(9 rows)\\x9b\\u202e\\u2028"


def test_two_columns_of_one_name_are_never_one() -> None:
    """The last of them would hide the others."""
    with pytest.raises(QueryError, match="two columns are called `a`"):
        json_text(["a", "b", "a"], [[1, 2, 3]])
    answer = Result(pa.table([[1], [2]], names=["a", "a"]))
    with pytest.raises(QueryError, match="two columns are called `a`"):
        answer.to_dicts()
    assert csv_text(["a", "a"], [[1, 2]]) == "a,a\n1,2\n"
    assert "1  2" in str(answer)
    assert json_text(["a", "A"], [[1, 2]]) == '[\n  {"a":1,"A":2}\n]'


def test_characters_that_steer_a_terminal_are_shown_as_escapes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    print_table([HOSTILE], [[HOSTILE]])
    texts = [capsys.readouterr().out, str(Result(pa.table({HOSTILE: [HOSTILE]})))]
    texts += [table_text([HOSTILE], [[HOSTILE]]), expanded_text([HOSTILE], [[HOSTILE]])]
    for text in texts:
        assert text.count(SEEN) == 2
        assert not set(text) & set(HOSTILE.replace("\n", "")) - set("[31mred(9 rows)")


def test_a_column_is_called_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    """Its name is no markup."""
    print_table(["[/x]", "[red]y"], [[1, 2]])
    printed = capsys.readouterr().out
    assert "[/x]" in printed and "[red]y" in printed


def test_letters_of_all_scripts_stay() -> None:
    text = "Grüße 東京 עברית 😀👩‍👧 e\u0301"
    assert text in str(Result(pa.table({"a": [text]})))
