"""Every command has a help page of one form, and exit codes and settings are those of the documentation."""

import ast
import inspect
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import click
import pytest

from millstream import errors
from millstream.cli import exit_codes
from millstream.cli.app import cli
from millstream.cli.exit_codes import ExitCode
from millstream.errors import MillstreamError
from millstream.settings import SETTINGS

from .conftest import Cli

PAGE = Path(__file__).parents[3] / "docs" / "guide" / "configuration.md"


def commands(group: click.Group = cli, above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield (*above, name), command
        if isinstance(command, click.Group):
            yield from commands(command, (*above, name))


ALL = dict(commands())


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_a_help_page_has_a_summary_examples_and_help_for_every_option(path: tuple[str, ...], millstream: Cli) -> None:
    done = millstream(*path, "--help")
    assert done.exit_code == 0 and not done.stderr
    command = ALL[path]
    summary = command.get_short_help_str(80)
    assert re.fullmatch(r"[A-Z].{10,58}\.", summary), summary
    first = (command.help or "").split("\n\n")[0].replace("\n", " ")
    assert first.rstrip(":").endswith(".") or "." in first, first
    assert f"millstream {' '.join(path)}" in done.stdout.split("Examples:")[1]
    for option in (p for p in command.params if isinstance(p, click.Option)):
        assert option.help and re.match(r"[A-Z]", option.help) and "." in option.help, f"{path}: {option.opts}"
    assert max(len(line) for line in done.stdout.splitlines()) <= 110


def test_options_of_one_name_mean_the_same_everywhere() -> None:
    seen: dict[str, tuple[str, tuple[str, ...]]] = {}
    for path, command in ALL.items():
        for option in (p for p in command.params if isinstance(p, click.Option)):
            kind = "choice" if isinstance(option.type, click.Choice) else f"{option.metavar} {option.type}"
            for name in option.opts:
                known, where = seen.setdefault(name, (kind, path))
                assert known == kind, f"{name} is {known} in {where}, and {kind} in {path}"


def test_the_option_home_shows_its_default(millstream: Cli) -> None:
    for path, command in ALL.items():
        if path != ("demo",) and any(p.name == "home" for p in command.params):
            assert "[default:./millstream-home]" in "".join(millstream(*path, "--help").stdout.split())


# ---------------------------------------------------------------- exit codes


def rows_of(heading: str) -> list[list[str]]:
    """The cells of the first table under a heading."""
    lines = PAGE.read_text(encoding="utf-8").split(heading, 1)[1].splitlines()
    table = [line for line in lines[: next(i for i, x in enumerate(lines) if i > 4 and not x)] if line.startswith("|")]
    return [[c.strip() for c in line.strip("|").split("|")] for line in table[2:]]


def meanings() -> dict[int, str]:
    """The docstrings under the members of ExitCode."""
    body = next(n for n in ast.parse(inspect.getsource(exit_codes)).body if isinstance(n, ast.ClassDef)).body
    found = {}
    for member, text in pairwise(body):
        if isinstance(member, ast.Assign) and isinstance(text, ast.Expr):
            found[ast.literal_eval(member.value)] = ast.literal_eval(text.value)
    return found


def test_the_documented_exit_codes_are_those_of_the_code() -> None:
    documented = {int(code): meaning for code, meaning in rows_of("## Exit codes\n")}
    assert documented == meanings()
    assert set(documented) == set(ExitCode)
    shown = cli.help or ""
    assert all(re.search(rf"\b{code} \w", shown) for code in ExitCode)


def test_every_error_ends_with_a_documented_exit_code() -> None:
    kinds = [k for k in vars(errors).values() if isinstance(k, type) and issubclass(k, MillstreamError)]
    assert {k.exit_code for k in kinds} <= set(ExitCode)
    roots = {k.__name__: ExitCode(k.exit_code).name for k in MillstreamError.__subclasses__() if k in kinds}
    assert roots == {
        "DefinitionError": "USAGE",
        "PlanError": "USAGE",
        "SourceError": "SOURCE",
        "SinkError": "SOURCE",
        "HomeError": "HOME",
        "RunError": "RUN",
        "QueryError": "QUERY",
        "LogError": "LOG",
    }


# ---------------------------------------------------------------- settings


def test_the_documented_settings_are_those_of_the_code() -> None:
    options = {o for c in (*ALL.values(), cli) for p in c.params for o in p.opts}
    documented = rows_of("# Configuration\n")
    assert [row[0] for row in documented] == [f"`{s.name}`" for s in SETTINGS]
    for setting, (_, variable, option, _, usual, meaning) in zip(SETTINGS, documented, strict=True):
        assert variable == f"`{setting.variable}`"
        assert usual.strip("`") == setting.usual and meaning == setting.meaning
        named = f"--{setting.name.replace('_', '-')}"
        assert option == (f"`{named}`" if named in options else "")


def test_config_shows_every_setting_and_where_it_is_from(millstream: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    for setting in SETTINGS:
        monkeypatch.delenv(setting.variable, raising=False)
    monkeypatch.setenv("MILLSTREAM_QUERY_TIMEOUT", "5")
    monkeypatch.setenv("MILLSTREAM_SPARK_MASTER", "spark://me:hunter2@host:7077")
    monkeypatch.setenv("MILLSTREAM_QUERY_MEMRY", "secret")
    Path("millstream.toml").write_text('memory = "3g"\n', encoding="utf-8")
    done = millstream("config", "--home", "there")
    lines = {line.split()[0]: line.split(maxsplit=2)[1:] for line in done.stdout.splitlines()}
    assert done.exit_code == 0 and {s.name for s in SETTINGS} <= set(lines)
    assert lines["home"] == ["there", "option --home"]
    assert lines["memory"] == ["3g", "millstream.toml"]
    assert lines["query_timeout"] == ["5", "environment, MILLSTREAM_QUERY_TIMEOUT"]
    assert lines["spark_master"] == ["spark://***@host:7077", "environment, MILLSTREAM_SPARK_MASTER"]
    assert done.stdout.endswith("millstream.toml: read\nthere/millstream.toml: not there\n")
    assert "MILLSTREAM_QUERY_MEMRY is not a setting; did you mean MILLSTREAM_QUERY_MEMORY?" in done.stderr
    assert "hunter2" not in done.output and "secret" not in done.output


def test_config_as_json(millstream: Cli) -> None:
    import orjson

    rows = orjson.loads(millstream("config", "--format", "json").stdout)
    assert [r["setting"] for r in rows] == [s.name for s in SETTINGS]
    assert set(rows[0]) == {"setting", "value", "from", "variable", "meaning"}


def test_a_bad_file_is_a_usage_error_of_every_command(millstream: Cli) -> None:
    Path("millstream.toml").write_text("hoem = 1\n", encoding="utf-8")
    for command in (["config"], ["views"], ["init", "x"]):
        done = millstream(*command)
        assert done.exit_code == ExitCode.USAGE
        assert "`hoem` in millstream.toml is not a setting" in done.stderr and "did you mean `home`?" in done.stderr
    assert millstream("--help").exit_code == 0


def test_the_home_of_the_file_is_used(millstream: Cli, home: Path) -> None:
    Path("millstream.toml").write_text(f'home = "{home}"\n', encoding="utf-8")
    assert "hot" in millstream("views").stdout
    assert millstream("views", "--home", "elsewhere").exit_code == ExitCode.HOME


def test_an_old_variable_is_noted_once(millstream: Cli, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLSTREAM_MASTER", "local[1]")
    done = millstream("config")
    assert done.stderr == "warning: MILLSTREAM_MASTER is deprecated; use MILLSTREAM_SPARK_MASTER\n"


def test_memory_on_the_command_line_is_checked(millstream: Cli) -> None:
    done = millstream("run", "flow.py", "--memory", "4gb")
    assert done.exit_code == ExitCode.USAGE and "write it like 512m or 4g" in done.stderr
