"""The process from which Spark forks its Python workers. It preloads the modules that they need.

A new worker, for example after a crash or an error in user code, is then ready in milliseconds instead of seconds.
"""

from __future__ import annotations

from contextlib import suppress


def main() -> None:
    """Preload modules, then serve Spark until it ends."""
    with suppress(ImportError):  # an optional extra
        import pandas  # noqa: F401
    import polars  # noqa: F401
    import pyarrow.compute  # noqa: F401
    from pyspark.daemon import manager

    manager()


if __name__ == "__main__":
    main()
