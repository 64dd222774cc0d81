"""Error policies: what a view does with a row on which one of its expressions fails."""

from __future__ import annotations

from millstream.errors import DefinitionError
from millstream.model.origin import here

QUARANTINE, FAIL, NULL = "quarantine", "fail", "null"
ON_ERROR = (QUARANTINE, FAIL, NULL)
"""Quarantine the row in ``<view>$errors``, stop the view, or use NULL as the value of the expression."""


def checked_on_error(policy: str) -> str:
    """Reject an unknown policy."""
    if policy not in ON_ERROR:
        raise DefinitionError(
            f"on_error is {policy!r}",
            detail="'quarantine' moves such rows to `<view>$errors`, 'fail' stops the view, 'null' uses NULL",
            hint="one of: " + ", ".join(ON_ERROR),
            origin=here(),
        )
    return policy
