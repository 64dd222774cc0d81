"""The process that Spark forks its Python workers from. It has loaded what they need, so that a new worker, as after
the death of one or an error in user code, is there in milliseconds instead of seconds.
"""

from __future__ import annotations

from contextlib import suppress


def main() -> None:
    """Load, then serve Spark until it ends."""
    with suppress(ImportError):  # an extra
        import pandas  # noqa: F401
    import polars  # noqa: F401
    import pyarrow.compute  # noqa: F401
    from pyspark.daemon import manager

    import millstream.engine.exchange
    import millstream.engine.input.prelude  # noqa: F401

    manager()


if __name__ == "__main__":
    main()
