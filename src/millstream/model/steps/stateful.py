"""The base class of stateful steps that are defined outside of this package (docs/extending.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.errors import Origin
    from millstream.model.steps.step import Step
    from millstream.model.types.schema import Schema


class StatefulStep:
    """A stateful step over one input. A frozen dataclass that inherits from it has at least these members."""

    if TYPE_CHECKING:
        input: Step

        @property
        def schema(self) -> Schema:
            """The columns of its rows."""
            ...

        origin: Origin | None
