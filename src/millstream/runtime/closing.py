"""Closes what a flow has opened. One part that cannot be closed must not keep the others open, nor end the flow."""

from __future__ import annotations

import logging
from typing import Protocol


class Closes(Protocol):
    """Something with resources: a source, a sink, a tap."""

    def close(self) -> None:
        """Release the resources."""
        ...


def closed(part: Closes) -> None:
    """Close a part; an error is logged."""
    try:
        part.close()
    except Exception:
        logging.getLogger("millstream").warning("%s could not be closed", type(part).__name__, exc_info=True)
