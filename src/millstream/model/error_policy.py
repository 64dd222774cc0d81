"""What a view does about a row that one of its expressions fails on."""

from __future__ import annotations

from millstream.errors import DefinitionError
from millstream.model.origin import here

QUARANTINE, FAIL, NULL = "quarantine", "fail", "null"
ON_ERROR = (QUARANTINE, FAIL, NULL)
"""Set the row aside in ``<view>$errors``; stop the view; or take NULL as the value of the expression."""


def checked_on_error(policy: str) -> str:
    """Refuse what is no policy."""
    if policy not in ON_ERROR:
        raise DefinitionError(
            f"on_error is {policy!r}",
            detail="'quarantine' sets such rows aside in `<view>$errors`, 'fail' stops the view, 'null' takes NULL",
            hint="one of: " + ", ".join(ON_ERROR),
            origin=here(),
        )
    return policy
