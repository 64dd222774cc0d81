"""Answers one query in a subprocess. Run as a script by `subprocess_query.py`; its argument is a directory.

The directory holds ``job.json`` (the SQL, its tables as Arrow files, the memory limit); this writes ``answer.arrow`` or
``error.json`` (whether it was for lack of ``memory``, and the ``message``). The system enforces the memory limit: an
allocation beyond it fails, in this process only. It imports nothing of Millstream, to start quickly.
"""

import importlib.util
import json
import os
import resource
import sys
import threading
from pathlib import Path
from typing import Any

_ARROW = Path(__file__).parents[1] / "model" / "types" / "duckdb_values.py"


def main(folder: Path) -> None:
    """Answer the query in a directory."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    job = json.loads((folder / "job.json").read_text(encoding="utf-8"))
    import duckdb
    import pyarrow as pa

    connection = duckdb.connect(
        config={"threads": 2, "autoinstall_known_extensions": "false", "autoload_known_extensions": "false"}
    )
    for line in ("SET TimeZone = 'UTC'", "SET python_enable_replacements = false"):
        connection.execute(line)
    for name, file in job["tables"].items():
        with pa.memory_map(str(folder / file)) as source:
            table = pa.ipc.open_stream(source).read_all()
        connection.register(name, table)
    connection.execute("SELECT 1").fetchall()  # what every query needs is loaded before memory is limited
    batches = _loaded(_ARROW).DuckBatches
    connection.execute("SET enable_external_access = false")
    most = int(job["bytes"])
    if most:
        connection.execute(f"SET memory_limit = '{most}B'")
        limit = _private_bytes() + most
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    try:
        reader = batches(connection.sql(job["sql"]), 2048)
        with pa.OSFile(str(folder / "answer.part"), "wb") as sink, pa.ipc.new_stream(sink, reader.schema) as writer:
            written = 0
            for batch in reader:
                written += batch.nbytes
                if most and written > most:
                    raise MemoryError
                writer.write_batch(batch)
        os.rename(folder / "answer.part", folder / "answer.arrow")
        return
    except MemoryError:
        report: dict[str, Any] = {"memory": True}
    except (duckdb.Error, OSError, pa.ArrowException) as error:
        report = {"memory": is_memory(str(error)), "message": str(error)}
    (folder / "error.json").write_text(json.dumps(report), encoding="utf-8")


def _loaded(path: Path) -> Any:
    """Load a module of Millstream that needs nothing else of it."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def is_memory(message: str) -> bool:
    """Whether the message of an error means that memory is exhausted."""
    signs = ("out of memory", "bad_alloc", "cannot allocate", "failed to allocate", "memoryerror")
    return any(sign in message.lower() for sign in signs)


def _end_with_parent() -> None:
    """End this process when its parent has ended: the parent keeps standard input open and writes nothing to it."""
    os.read(0, 1)
    os._exit(1)


def _private_bytes() -> int:
    """The private memory that this process has mapped, in bytes."""
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmData:"):
            return int(line.split()[1]) * 1024
    return 1 << 30


if __name__ == "__main__":
    main(Path(sys.argv[1]))
    sys.stdout.flush()
    os._exit(0)
