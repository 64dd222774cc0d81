"""Finds Java, and raises a clear error if none fits."""

from __future__ import annotations

import os
import re
import shutil
import subprocess

from millstream.errors import EngineMissing

NEEDED = 17
_HINT = (
    "install one, e.g. `apt-get install openjdk-17-jre-headless`, or point JAVA_HOME to it; "
    "then run `millstream doctor`"
)


def java_command() -> str | None:
    """The java command that Spark would use."""
    home = os.environ.get("JAVA_HOME")
    if home:
        return os.path.join(home, "bin", "java")
    return shutil.which("java")


def java_version() -> int | None:
    """Its major version, or None if there is no working Java."""
    command = java_command()
    if command is None:
        return None
    try:
        said = subprocess.run([command, "-version"], capture_output=True, text=True, timeout=30, check=True).stderr
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r'version "(\d+)(?:\.(\d+))?', said)
    if match is None:
        return None
    major = int(match[1])
    return int(match[2] or 0) if major == 1 else major


def require_java() -> None:
    """Raise EngineMissing unless Java is installed and recent enough."""
    version = java_version()
    if version is None:
        where = os.environ.get("JAVA_HOME")
        detail = (
            f"JAVA_HOME is {where}, but {where}/bin/java does not run" if where else "there is no `java` on the PATH"
        )
        raise EngineMissing(f"Millstream needs Java {NEEDED} or later", detail=detail, hint=_HINT)
    if version < NEEDED:
        raise EngineMissing(f"Millstream needs Java {NEEDED} or later, and this is Java {version}", hint=_HINT)
