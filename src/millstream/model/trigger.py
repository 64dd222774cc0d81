"""Triggers: when a window's answer is given."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class OnChange:
    """Give the answer in every epoch that changes it; the view is always current."""

    def __str__(self) -> str:
        return "on change"


@dataclass(frozen=True)
class OnClose:
    """Give the answer once, when the watermark passes the end of the window."""

    def __str__(self) -> str:
        return "on close"


Trigger = OnChange | OnClose


def on_change() -> OnChange:
    """Answer in every epoch that changes the window (the default)."""
    return OnChange()


def on_close() -> OnClose:
    """Answer once, when the window closes."""
    return OnClose()
