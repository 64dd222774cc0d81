"""Parsing and formatting of amounts: seconds and bytes of memory."""

from __future__ import annotations

import os
import re

from millstream.errors import DefinitionError

LEAST_MEMORY = 16 << 20
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def checked_seconds(value: float) -> float:
    """Validate a time limit. Raises DefinitionError."""
    if not 0 <= value <= 10**9:
        raise DefinitionError(f"a time limit of {value!r} seconds", hint="write a number of seconds; 0: no limit")
    return float(value)


def parsed_bytes(text: str) -> int:
    """Parse an amount of memory: ``512MB``, ``2g``, ``1073741824``; ``0`` means no limit. Raises DefinitionError.

    >>> parsed_bytes("512 MB"), parsed_bytes("2g"), parsed_bytes("0")
    (536870912, 2147483648, 0)
    """
    match = re.fullmatch(r"\s*([0-9]{1,15})\s*([kmgt]?)(i?b)?\s*", text, re.IGNORECASE)
    if match is None:
        raise DefinitionError(f"{text!r} is not an amount of memory", hint="write it like 512MB or 2GB; 0: no limit")
    size = int(match[1]) * _UNITS[match[2].lower()]
    if 0 < size < LEAST_MEMORY:
        raise DefinitionError(f"{text!r} is too little memory for a query", hint="use at least 16MB; 0: no limit")
    return size


def java_memory(text: str) -> str:
    """Validate an amount of memory in Java's syntax: a whole number, then m or g. Raises DefinitionError."""
    if not re.fullmatch(r"[1-9][0-9]{0,5}[mMgG]", text):
        raise DefinitionError(f"{text!r} is not an amount of memory", hint="write it like 512m or 4g")
    return text


def format_bytes(size: int) -> str:
    """Format an amount of memory for display.

    >>> format_bytes(1 << 30), format_bytes(1_500_000)
    ('1.0 GiB', '1.4 MiB')
    """
    for unit, least in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= least:
            return f"{size / least:.1f} {unit}"
    return f"{size} bytes"


def machine_memory() -> int:
    """The memory of this machine in bytes."""
    return int(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
