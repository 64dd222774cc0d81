"""Windowing: the four independent properties of a windowed step, and the check that rejects invalid combinations."""

from __future__ import annotations

from dataclasses import dataclass, field

from millstream.errors import DefinitionError
from millstream.model.origin import here
from millstream.model.types.duration import Duration
from millstream.model.windows.accumulation import Accumulation
from millstream.model.windows.kinds import AnyWindow, CountWindow, Custom, SessionWindow
from millstream.model.windows.trigger import ON_CHANGE, ON_CLOSE, AfterFraction, Trigger, can_fire, finishes, walk
from millstream.model.windows.window import Window, everything


@dataclass(frozen=True)
class Windowing:
    """Where in event time, when, how, and for how long after the watermark a window emits results
    (docs/decisions/0008-panes.md).
    """

    window: AnyWindow = field(default_factory=everything)
    trigger: Trigger = ON_CHANGE
    accumulation: Accumulation = Accumulation.RETRACTING
    lateness: Duration = field(default=Duration(0))
    panes: Duration | None = None
    """How long the history of panes is kept; None means no history."""

    @property
    def by_slices(self) -> bool:
        """Whether shared slices are sufficient, without one bookkeeping row per window."""
        return (
            isinstance(self.window, Window)
            and self.trigger in (ON_CHANGE, ON_CLOSE)
            and self.accumulation is not Accumulation.DISCARDING
            and self.panes is None
        )

    @property
    def answers_once(self) -> bool:
        """Whether a window can change only once in an epoch."""
        return self.by_slices and not self.lateness.micros

    @property
    def merges(self) -> bool:
        """Whether windows of a key may merge."""
        return isinstance(self.window, SessionWindow) or (
            isinstance(self.window, Custom) and self.window.merge is not None
        )

    @property
    def fractions(self) -> frozenset[float]:
        """The fractions of the data that the trigger needs."""
        return frozenset(t.fraction for t in walk(self.trigger) if isinstance(t, AfterFraction))

    def check(self) -> Windowing:
        """Reject a windowing that could never emit a result, or would emit wrong results."""
        if not can_fire(self.trigger, closes=not self.window.is_global):
            trigger = "on close" if self.trigger == ON_CLOSE else f"with the trigger `{self.trigger}`"
            raise DefinitionError(
                f"a global window never closes, so it would never emit a result {trigger}",
                hint="emit on change, or use a window with an end",
                origin=here(),
            )
        if isinstance(self.window, CountWindow) and self.accumulation is Accumulation.DISCARDING:
            raise DefinitionError(
                "discarding panes of count windows are not defined",
                detail="a record that arrives late moves others from one window to the next",
                hint="use ms.retracting()",
                origin=here(),
            )
        if isinstance(self.window, CountWindow) and finishes(self.trigger):
            raise DefinitionError(
                f"the trigger `{self.trigger}` finishes, which is not defined for count windows",
                detail="a record of a window that is finished may still have to move to the next",
                hint="wrap it in ms.repeatedly(...)",
                origin=here(),
            )
        if self.window.is_global and self.lateness.micros:
            raise DefinitionError(
                "a global window never closes, so nothing is late for it", hint="leave the lateness out", origin=here()
            )
        return self

    def __str__(self) -> str:
        parts = [str(self.window), f"answers {self.trigger}", str(self.accumulation)]
        if self.lateness.micros:
            parts.append(f"open for another {self.lateness}")
        return ", ".join(parts)
