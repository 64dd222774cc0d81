"""Mends taken back one by one: the generator, or a test that is named, must notice each.

``python -m tests.sql.mutations [name ...]`` copies the sources, takes a mend back in the copy, and runs what must go
red.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
GENERATOR = "tests/sql/test_language.py"
"""Random queries; -x ends it with the first view that is wrong."""
ONCE_WRONG = "tests/sql/test_relations.py -k was_once_wrong"
"""Operators that are in every run of `make test`."""


@dataclass(frozen=True)
class Mutation:
    """A mend that is taken back: in `file` under src/millstream, `mended` becomes `broken`."""

    name: str
    file: str
    mended: str
    broken: str
    test: str = GENERATOR
    """What notices it."""
    also: tuple[tuple[str, str, str], ...] = ()
    """More to replace, where the mend had several parts: file, mended, broken."""

    def taken_back(self, source: Path) -> None:
        """Change a copy of the sources."""
        for file, mended, broken in ((self.file, self.mended, self.broken), *self.also):
            path = source / "millstream" / file
            text = path.read_text(encoding="utf-8")
            assert mended in text, f"{self.name}: {file} has no {mended!r} any more"
            path.write_text(text.replace(mended, broken), encoding="utf-8")


_NO_ASSERTION = (
    "sql/relations/relation.py",
    'assert self.ranked is None, "a ROW_NUMBER() that is still to be computed would not see these rows"',
    "pass",
)

MUTATIONS = (
    Mutation(
        "a WHERE around a ROW_NUMBER() subquery is lost",
        "sql/bind/select.py",
        "        return query.settled(relation, node), parts\n    part, most = bound",
        "        return relation, parts\n    part, most = bound",
        ONCE_WRONG,
        also=(_NO_ASSERTION,),
    ),
    Mutation(
        "an aggregate over no rows has no row",
        "plan/operators/aggregates/changing_aggregation.py",
        "return not self.keys or bool(self.totals)",
        "return False",
    ),
    Mutation(
        "an aggregate over no records has no row",
        "plan/operators/aggregates/aggregation.py",
        "return is_global and (not self.keys or bool(self.totals))",
        "return False",
        "tests/sql/test_no_rows.py",
    ),
    Mutation(
        "the set () of ROLLUP has no row over no rows",
        "sql/bind/grouping/group_by.py",
        "self.totals = tuple(i for i, names in enumerate(sets) if not names)",
        "self.totals = ()",
        "tests/sql/test_no_rows.py",
    ),
    Mutation(
        "EXISTS (SELECT count(*)) goes by the rows that are counted",
        "sql/bind/grouping/group_by.py",
        "if outer is not None and grouping.is_total:",
        "if False:",
        "tests/sql/test_subqueries.py",
    ),
    Mutation(
        "a sum of a product over a table fails",
        "plan/parts.py",
        'return None if quoted is None else quoted[1].replace("``", "`")',
        'return self.sql.strip("`") if self.sql.startswith("`") and self.sql.endswith("`") else None',
    ),
    Mutation(
        "a frame ahead of the last row of its partition is not empty",
        "kernels/relations/window_function.py",
        "pl.min_horizontal((number - int(before)).clip(0), size)",
        "(number - int(before)).clip(0)",
        ONCE_WRONG,
    ),
    Mutation(
        "a condition does not guard the expressions beside it",
        "plan/rules/guards.py",
        "    return replace(plan, scans=tuple(_scan(plan, scan) for scan in plan.scans))",
        "    return plan",
    ),
    Mutation(
        "UNION BY NAME is ignored",
        "sql/parse/checks/completeness.py",
        'exp.Union: "this expression distinct',
        'exp.Union: "this expression by_name distinct',
        'tests/sql/test_golden.py -k "UNION and BY and NAME"',
    ),
    Mutation(
        "LIMIT PERCENT is ignored",
        "sql/bind/offset_and_ties.py",
        'options.args.get("percent")',
        "False",
        "tests/sql/test_golden.py -k PERCENT",
    ),
    Mutation(
        "the format of to_char is ignored",
        "sql/dialects/function_names.py",
        'return _call("to_char", node.this.copy(), node.args["format"].copy())',
        'return exp.cast(node.this.copy(), "string")',
        "tests/sql/test_formats.py",
    ),
    Mutation(
        "CAST('abc' AS INT) is another value than in Spark",
        "sql/query/casts.py",
        "    if to.this in _WHOLE:\n",
        "    if False:\n",
        "tests/unit/live/test_casts.py",
    ),
    Mutation(
        "views over tables alone cannot be listed",
        "runtime/inspect/status.py",
        'min(row.progress["reached"].values(), default=None)',
        'min(row.progress["reached"].values())',
        "tests/unit/live/test_rows.py -k tables_alone",
    ),
    Mutation(
        "nested columns of a table without rows fail in Spark",
        "engine/spark/frames.py",
        "    return spark.createDataFrame(plain_chunks(table), kinds)",
        "    return spark.createDataFrame(table, kinds)",
        "tests/spark/test_set_aside.py -k empty_tables",
    ),
    Mutation(
        "INSERT parses every value of its own",
        "sql/parse/literals.py",
        "    return token.text if kind is _STRING else _WORDS.get(kind, NOT_LITERAL)",
        "    return NOT_LITERAL",
        "tests/unit/sql/test_plain_values.py -k one_by_one",
    ),
    Mutation(
        "a view whose flow has failed answers with old rows",
        "runtime/inspect/status.py",
        'return state.startswith(("failed", "crash loop"))',
        "return False",
        "tests/unit/live/test_failures.py -k about_a_view_that_has_failed",
    ),
)


def goes_red(mutation: Mutation, folder: Path) -> tuple[bool, str]:
    """Whether what must notice a mutation does, and the end of what it says."""
    source = folder / "src"
    shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
    mutation.taken_back(source)
    paths = ["-o", f"pythonpath={source} {ROOT}", "-p", "no:cacheprovider", f"--basetemp={folder / 'tests'}"]
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-m", "not slow", *paths, *shlex.split(mutation.test)]
    environment = {**os.environ, "PYTHONPATH": str(source)}
    ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    return ran.returncode == 1, ran.stdout[-3000:]


def main(names: list[str]) -> int:
    """Take back the mends whose names have one of these words in them, or all."""
    missed = 0
    for mutation in MUTATIONS:
        if names and not any(n.lower() in mutation.name.lower() for n in names):
            continue
        with tempfile.TemporaryDirectory() as folder:
            noticed, said = goes_red(mutation, Path(folder))
        missed += not noticed
        told = next((line for line in said.splitlines() if line.startswith("FAILED")), said[-300:])
        print(f"{'red   ' if noticed else 'MISSED'} {mutation.name}: {told[:200]}", flush=True)  # noqa: T201
    return missed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
