"""Functions of users that tasks call: pickled once, and loaded once in every worker process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from pyspark import cloudpickle

from millstream.errors import Unsupported


@dataclass(frozen=True)
class SentFunction:
    """A function on its way to tasks, as it was when the flow started. What it opens later (a client, a connection)
    stays in its process: all tasks of a worker process call one copy.
    """

    pickled: bytes

    @classmethod
    def of(cls, function: Callable[..., Any]) -> SentFunction:
        """Pickle a function. Raises Unsupported if that is impossible."""
        try:
            return cls(cloudpickle.dumps(function))
        except Exception as error:
            raise Unsupported("the function cannot be pickled", detail=f"{type(error).__name__}: {error}") from error

    def __call__(self, *arguments: Any) -> Any:
        """Call the copy of this process."""
        return self.function(*arguments)

    @property
    def function(self) -> Callable[..., Any]:
        """The copy of this process."""
        return _loaded(self.pickled)


@lru_cache(maxsize=256)
def _loaded(pickled: bytes) -> Callable[..., Any]:
    function: Callable[..., Any] = cloudpickle.loads(pickled)
    return function
