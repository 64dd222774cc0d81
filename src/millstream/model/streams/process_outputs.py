"""The stream after a process: its main output, and its side outputs by name."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.errors import UnknownName
from millstream.model.origin import here
from millstream.model.steps.process import Processed
from millstream.model.streams.python_operators import output_of
from millstream.model.streams.stream import Stream


@dataclass(frozen=True, eq=False, repr=False)
class ProcessedStream(Stream):
    """The main output of a process; `side` returns its side outputs."""

    processed: Processed

    @classmethod
    def of(cls, stream: Stream, step: Processed) -> ProcessedStream:
        """The main output of a process over a stream."""
        return cls(stream.flow, output_of(step, 0), step)

    def side(self, name: str) -> Stream:
        """The rows of a side output."""
        names = [o.name for o in self.processed.outputs]
        if not name or name not in names:
            raise UnknownName(
                f"the process has no side output `{name}`",
                detail="it has: " + (", ".join(names[1:]) or "none"),
                hint=f'process(..., side={{"{name}": "column TYPE"}})',
                origin=here(),
            )
        return Stream(self.flow, output_of(self.processed, names.index(name)))
