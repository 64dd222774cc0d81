"""The connector of docs/extending.md is two files, and passes its own tests."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def test_the_connector_of_the_page_passes_the_suites_in_a_process_of_its_own(tmp_path: Path) -> None:
    blocks = BLOCK.findall((ROOT / "docs" / "extending.md").read_text(encoding="utf-8"))
    (connector,) = [b for b in blocks if "class SqliteSource(SourceBase)" in b]
    (test,) = [b for b in blocks if "class TestSource(SourceConformance)" in b]
    (tmp_path / "sqlite_connector.py").write_text(connector, encoding="utf-8")
    (tmp_path / "test_sqlite_connector.py").write_text(test, encoding="utf-8")
    path = os.pathsep.join([str(ROOT / "src"), str(tmp_path)])
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_sqlite_connector.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    assert re.search(r"\b3\d passed", done.stdout) and "skipped" not in done.stdout, done.stdout[-500:]
