"""The public test kit: run a flow epoch by epoch, with time as data. No sleeps, no wall clock."""

from millstream.testing.script import Crash, Script

__all__ = ["Crash", "Script"]
