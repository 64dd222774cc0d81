"""Delivery guarantees: those of a flow, those that a sink declares, and their wording."""

from __future__ import annotations

from enum import StrEnum

EXACTLY_ONCE, AT_LEAST_ONCE, AT_MOST_ONCE = "exactly_once", "at_least_once", "at_most_once"
FLOW_GUARANTEES = (EXACTLY_ONCE, AT_LEAST_ONCE, AT_MOST_ONCE)
"""The guarantees that a flow may declare."""

VIEW_PROMISES = {
    EXACTLY_ONCE: "exactly once (one store transaction per epoch)",
    AT_LEAST_ONCE: "exactly once (one store transaction per epoch)",
    AT_MOST_ONCE: "at most once (after a failure: empty state, newest records)",
}
"""What the table of a view guarantees under each guarantee of a flow."""

_TWICE = "at least once (the last epoch may be written twice after a failure)"
_MISSING = "at most once (the last epoch may be missing after a failure)"


class SinkGuarantee(StrEnum):
    """What a sink does with an epoch that is delivered again after a crash."""

    TRANSACTIONAL = "transactional"
    """The epoch number is recorded with its rows: an epoch that is already there is not written again."""
    IDEMPOTENT = "idempotent"
    """Writing an epoch again has no effect: files of the same name, rows upserted by key."""
    AT_LEAST_ONCE = "at least once"
    """The rows may be written twice."""

    def promise(self, flow: str, how: str = "") -> str:
        """What readers of the sink may rely on under a guarantee of the flow; `how` names the mechanism.

        >>> SinkGuarantee.IDEMPOTENT.promise("exactly_once", "a file per epoch")
        'exactly once (a file per epoch)'
        >>> SinkGuarantee.AT_LEAST_ONCE.promise("exactly_once")
        'at least once (the last epoch may be written twice after a failure)'
        """
        if flow == AT_MOST_ONCE:
            return _MISSING
        if self is SinkGuarantee.AT_LEAST_ONCE or (self is SinkGuarantee.TRANSACTIONAL and flow == AT_LEAST_ONCE):
            return _TWICE
        return f"exactly once ({how or _MEANS[self]})"


_MEANS = {SinkGuarantee.TRANSACTIONAL: "by epoch", SinkGuarantee.IDEMPOTENT: "writing an epoch again changes nothing"}
