"""The README's table of results is what `make bench-table` writes from the result files."""

import pytest

from bench import table
from bench.cases import COMPARISONS, OWN
from bench.contests import CONTESTS


def test_the_readme_shows_the_kept_results() -> None:
    text = table.README.read_text(encoding="utf-8")
    assert table.inserted(text, table.table(table.results(table.RESULTS))) == text, "run `make bench-table`"


def test_a_row_names_a_case_and_its_command() -> None:
    known = {*COMPARISONS, *OWN, *CONTESTS, "nexmark"}
    assert {row.case for row in table.ROWS} <= known


def test_a_peer_that_is_faster_is_named_and_a_shorter_run_shows_its_size() -> None:
    ours = {"system": "millstream", "events": 2_000_000, "seconds": [2.0] * 3, "events_per_second": 1e6, "fault": None}
    peer = {"system": "flink", "events": 500_000, "ours_over_it": 0.5}
    line = table.table({"pattern": {"date": "2026-11-18T09:00:00+00:00", "systems": [ours, peer]}}).splitlines()[-1]
    assert line == (
        f"| `MATCH_RECOGNIZE`, three variables | 2 M events, 3 rounds | 1 M events/s: 0.5 {table.TIMES} Flink "
        "(on 500 k) (**Flink is faster**) | 2026-11-18 | `ARGS=pattern` |"
    )


def test_a_result_without_right_rows_has_no_figure() -> None:
    ours = {"system": "millstream", "events": 10, "seconds": [None], "events_per_second": None, "fault": "wrong rows"}
    line = table.table({"pattern": {"date": "2026-11-18", "systems": [ours]}}).splitlines()[-1]
    assert "no result: wrong rows" in line


def test_a_document_without_a_place_for_the_table_is_refused() -> None:
    with pytest.raises(SystemExit, match="no place for the table"):
        table.inserted("# Title\n", "| a |")
