"""Registers the Python functions of expressions with Spark."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from pyspark import cloudpickle
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

from millstream.errors import UserCodeFailed
from millstream.model.python.function import Function
from millstream.plan.rules.guards import SUFFIX


def register(spark: SparkSession, functions: Sequence[Function]) -> None:
    """Let expressions call these functions by name. The code of their modules is sent to the executors by value."""
    for function in functions:
        module = sys.modules.get(getattr(function.call, "__module__", ""))
        if module is not None and module.__name__ != "__main__":
            cloudpickle.register_pickle_by_value(module)
        named = _named(function)
        spark.udf.register(function.name, udf(named, function.returns, useArrow=True))
        spark.udf.register(function.name + SUFFIX, udf(_where_true(named), function.returns, useArrow=True))


def _named(function: Function) -> Callable[..., Any]:
    """The function, with its name in its errors."""
    name, call = function.name, function.call

    def run(*values: Any) -> Any:
        try:
            return call(*values)
        except Exception as error:
            msg = f"{name} failed: {type(error).__name__}: {error}"
            raise UserCodeFailed(msg) from error

    return run


def _where_true(call: Callable[..., Any]) -> Callable[..., Any]:
    """The function, called only where its first argument is true."""

    def run(condition: bool | None, *values: Any) -> Any:
        return call(*values) if condition else None

    return run
