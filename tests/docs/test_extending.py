"""The connector and the operator of docs/extending.md are two files each, and pass their own tests."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def run_pair(folder: Path, name: str, module_has: str, test_has: str) -> str:
    """Write the two files of a page's example, and give what its tests print."""
    blocks = BLOCK.findall((ROOT / "docs" / "extending.md").read_text(encoding="utf-8"))
    (module,) = [b for b in blocks if module_has in b]
    (test,) = [b for b in blocks if test_has in b]
    (folder / f"{name}.py").write_text(module, encoding="utf-8")
    (folder / f"test_{name}.py").write_text(test, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"test_{name}.py"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(folder)])},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    assert "skipped" not in done.stdout
    return done.stdout


def test_the_connector_of_the_page_passes_the_suites_in_a_process_of_its_own(tmp_path: Path) -> None:
    printed = run_pair(
        tmp_path, "sqlite_connector", "class SqliteSource(SourceBase)", "class TestSource(SourceConformance)"
    )
    assert re.search(r"\b3\d passed", printed), printed[-500:]


def test_the_operator_of_the_page_gives_what_a_plain_loop_gives(tmp_path: Path) -> None:
    assert "1 passed" in run_pair(
        tmp_path, "first_rows", "class FirstRowsOperator(Operator)", "def test_the_kernel_passes"
    )
