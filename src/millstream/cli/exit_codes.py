"""The exit codes of the command line. docs/guide/configuration.md has the table; a test compares both."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """How a command ended. The kinds of errors (`millstream.errors`) have the codes from 2 to 7."""

    OK = 0
    """Success; also when Ctrl-C or SIGTERM ended `run`, `demo` or `log tail`."""
    FAILED = 1
    """A test failed, or `doctor` found a problem."""
    USAGE = 2
    """The command, a setting or a flow is wrong, or the flow cannot be planned."""
    SOURCE = 3
    """A source cannot be read, or a sink cannot be written."""
    HOME = 4
    """The home is damaged, in use, or of a newer version."""
    RUN = 5
    """A running flow stopped because it failed."""
    QUERY = 6
    """A query or statement cannot be answered."""
    LOG = 7
    """Records cannot be appended to the log or read from it."""
    UNEXPECTED = 70
    """An internal fault of Millstream; the message names the file with the full report."""
    INTERRUPTED = 130
    """Ctrl-C ended the command before it had finished."""
