"""Real processes: the command as installed, with a home of its own per test."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PATIENCE = 240
"""Seconds that a process may take on a busy machine before a test gives up."""


class Processes:
    """Starts the command in a folder, and ends what a test leaves behind."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started: list[subprocess.Popen[str]] = []

    def start(self, *arguments: str | Path, **environment: str) -> subprocess.Popen[str]:
        known = {k: v for k, v in os.environ.items() if not k.startswith("MILLSTREAM_")}
        process = subprocess.Popen(
            [sys.executable, "-c", "from millstream.cli import main; main()", *map(str, arguments)],
            cwd=self.folder,
            env={**known, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.started.append(process)
        return process

    def run(self, *arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
        return self.ended(self.start(*arguments, **environment))

    def ended(self, process: subprocess.Popen[str]) -> subprocess.CompletedProcess[str]:
        out, err = process.communicate(timeout=PATIENCE)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def close(self) -> None:
        for process in self.started:
            if process.poll() is None:
                process.kill()
                process.communicate()


@pytest.fixture
def millstream(tmp_path: Path) -> Iterator[Processes]:
    processes = Processes(tmp_path)
    yield processes
    processes.close()
