"""An error names the user's own file and line, however deep it was found."""

import functools
import inspect
import os
import sysconfig
import threading
from pathlib import Path
from typing import Any

import click
import pytest

import millstream as ms
from millstream.errors import MillstreamError, Origin
from millstream.model.origin import here, is_users

PACKAGE = os.path.dirname(ms.__file__)


def source() -> ms.Stream:
    return ms.Flow("f").source("s", ms.memory(), schema="a BIGINT, ts TIMESTAMP", event_time="ts")


MISTAKES = {
    "where": lambda s: s.where("b > 1"),
    "type": lambda s: s.where("a + 1"),
    "select": lambda s: s.select(x="b"),
    "function": lambda s: s.select(x="rand()"),
    "parse": lambda s: s.where("a >"),
    "window": lambda s: s.window(ms.tumbling("soon")),
    "key": lambda s: s.key_by("b"),
    "aggregate": lambda s: s.aggregate(n=ms.sum("ts")),
    "name": lambda s: s.view("no good"),
    "operator": lambda s: s.where(ms.col("b") > 1),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_reported_at_the_line_that_made_it(mistake: str) -> None:
    code = MISTAKES[mistake].__code__
    with pytest.raises(MillstreamError) as caught:
        MISTAKES[mistake](source())
    origin = caught.value.origin
    assert origin is not None
    assert origin.file == "tests/unit/model/test_origin.py" or origin.file.endswith("/tests/unit/model/test_origin.py")
    assert origin.line == code.co_firstlineno
    assert f"at {origin}" in str(caught.value)


def test_here_is_the_caller() -> None:
    frame = inspect.currentframe()
    origin = here()
    assert frame is not None and origin is not None
    assert origin.line == frame.f_lineno - 2


def test_here_is_never_a_library(tmp_path: Path) -> None:
    """A mistake that comes up under the command line has no line of the user's own."""
    found: list[object] = []

    @click.command()
    def command() -> None:
        found.append(here())

    namespace: dict[str, Any] = {"command": command}
    script = os.path.join(sysconfig.get_path("scripts"), "millstream")
    exec(compile("command.main([], standalone_mode=False)", script, "exec"), namespace)
    assert isinstance(found[0], Origin) and found[0].file.endswith("test_origin.py")  # the command itself is the user's
    code = compile("def command(): found.append(here())", os.path.join(PACKAGE, "cli", "query.py"), "exec")
    exec(code, namespace | (inner := {"found": found, "here": here}), inner)
    called = click.Command("q", callback=inner["command"])
    thread = threading.Thread(target=lambda: None)
    thread.run = functools.partial(called.main, [], standalone_mode=False)  # type: ignore[method-assign]
    thread.start()
    thread.join()
    assert found[-1] is None
    assert not is_users(click.core.__file__) and not is_users(functools.__file__) and not is_users("<frozen runpy>")
    assert not is_users(script) and is_users(str(tmp_path / "flow.py")) and is_users("<string>")


def test_a_command_behind_a_link_is_not_the_users(tmp_path: Path) -> None:
    """Installers link commands into a folder of the user's PATH."""
    script = tmp_path / "venv" / "millstream"
    script.parent.symlink_to(sysconfig.get_path("scripts"))
    assert not is_users(str(script))
