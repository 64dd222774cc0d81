"""Hides warnings of other libraries that no user of Millstream can act on. All other warnings are shown.

Each filter names the message, the category and the library. `millstream.engine` installs them when it is imported: in
the process of a flow and in Spark's Python workers, before pyspark is loaded. A session installs them again, because a
program may have replaced the filters in the meantime.
"""

from __future__ import annotations

import warnings

KNOWN: tuple[tuple[str, type[Warning], str], ...] = (
    # Wherever pyspark 4.3 looks for pandas and finds version 3, even on its Arrow paths, which do not use pandas.
    (r"PySpark does not yet fully support pandas", FutureWarning, r"pyspark\."),
)
"""Message, category and module, as `warnings.filterwarnings` expects them."""


def hide_foreign_warnings() -> None:
    """Hide the known warnings of other libraries in this process."""
    for message, category, module in KNOWN:
        warnings.filterwarnings("ignore", message, category, module)
