"""The base of stateful steps that are defined outside of this package (docs/extending.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.errors import Origin
    from millstream.model.steps.step import Step
    from millstream.model.types.schema import Schema


class StatefulStep:
    """A step over one input that keeps state. A frozen dataclass that inherits from it has at least these."""

    if TYPE_CHECKING:
        input: Step

        @property
        def schema(self) -> Schema:
            """The columns of its rows."""
            ...

        origin: Origin | None
