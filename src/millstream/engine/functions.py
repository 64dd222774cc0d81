"""Python functions of expressions, made known to Spark."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from pyspark import cloudpickle
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

from millstream.errors import UserCodeFailed
from millstream.model.function import Function


def register(spark: SparkSession, functions: Sequence[Function]) -> None:
    """Let expressions call these by name; the code of their modules travels to the executors by value."""
    for function in functions:
        module = sys.modules.get(getattr(function.call, "__module__", ""))
        if module is not None and module.__name__ != "__main__":
            cloudpickle.register_pickle_by_value(module)
        spark.udf.register(function.name, udf(_guarded(function), function.returns, useArrow=True))


def _guarded(function: Function) -> Callable[..., Any]:
    name, call = function.name, function.call

    def run(*values: Any) -> Any:
        try:
            return call(*values)
        except Exception as error:
            msg = f"{name} failed: {type(error).__name__}: {error}"
            raise UserCodeFailed(msg) from error

    return run
