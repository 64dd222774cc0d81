"""Settings: one order of places, files that are checked, old variables that warn, secrets that are not shown."""

from pathlib import Path

import pytest

from millstream import settings
from millstream.engine.spark_engines import SparkEngines
from millstream.errors import DefinitionError, UnknownName
from millstream.home import Home
from millstream.limits import Limits
from millstream.runtime.home_dir import make_home
from millstream.settings import (
    DEBUG,
    DRIVER_HOST,
    EXECUTOR_ENVIRONMENT,
    EXECUTOR_MEMORY,
    FLOW_MEMORY,
    HOME,
    MEMORY,
    QUERY_MEMORY,
    QUERY_MEMORY_TOTAL,
    QUERY_TIMEOUT,
    SETTINGS,
    SPARK_MASTER,
    STATE,
    STATE_CACHE,
    Found,
    Setting,
    SettingDeprecated,
    find,
)

GOOD = {
    HOME: ("elsewhere", "elsewhere"),
    MEMORY: ("4g", "4g"),
    SPARK_MASTER: ("local[2]", "local[2]"),
    EXECUTOR_MEMORY: ("2g", "2g"),
    DRIVER_HOST: ("driver.example", "driver.example"),
    EXECUTOR_ENVIRONMENT: ("env.tar.gz", "env.tar.gz"),
    STATE: ("s3://bucket/prefix", "s3://bucket/prefix"),
    STATE_CACHE: ("512MB", 512 << 20),
    QUERY_TIMEOUT: ("2.5", 2.5),
    QUERY_MEMORY: ("512MB", 512 << 20),
    QUERY_MEMORY_TOTAL: ("0", 0),
    FLOW_MEMORY: ("8GB", 8 << 30),
    DEBUG: ("yes", True),
}
"""A value of each setting, as text, and what it means."""

BAD = {
    MEMORY: "4gb",
    EXECUTOR_MEMORY: "2gb",
    DRIVER_HOST: "http://driver",
    EXECUTOR_ENVIRONMENT: "env.zip",
    STATE: "ftp://host/folder",
    STATE_CACHE: "much",
    QUERY_TIMEOUT: "soon",
    QUERY_MEMORY: "much",
    QUERY_MEMORY_TOTAL: "1KB",
    FLOW_MEMORY: "-1",
    DEBUG: "2",
}


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to be in, and an environment without settings."""
    for setting in SETTINGS:
        for variable in (setting.variable, *setting.old_variables):
            monkeypatch.delenv(variable, raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "home").mkdir()
    return tmp_path


def test_every_setting_is_tested_here() -> None:
    assert set(GOOD) == set(SETTINGS) and set(BAD) | {HOME, SPARK_MASTER} == set(SETTINGS)


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda s: s.name)
def test_the_order_is_argument_environment_files_default(
    setting: Setting[object], place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, value = GOOD[setting]
    home = Path("home")
    default = find(setting, home=home)
    assert default.origin == "default" and default.value == setting.default()
    if setting.in_home:
        (home / "millstream.toml").write_text(f'{setting.name} = "{text}"\n')
        assert find(setting, home=home) == Found(setting, value, "home/millstream.toml")
        assert find(setting).origin == "default"  # of no home in particular
        (home / "millstream.toml").write_text("")
    Path("millstream.toml").write_text(f'{setting.name} = "{text}"\n')
    assert find(setting, home=home) == Found(setting, value, "millstream.toml")
    if setting.in_home:
        (home / "millstream.toml").write_text(f'{setting.name} = "broken"\n')  # not looked at
        assert find(setting, home=home).value == value
    monkeypatch.setenv(setting.variable, text)
    assert find(setting, home=home) == Found(setting, value, f"environment, {setting.variable}")
    monkeypatch.setenv(setting.variable, "")  # as if it were not set
    assert find(setting, home=home).origin == "millstream.toml"
    assert find(setting, text, home=home) == Found(setting, value, "argument")


@pytest.mark.parametrize("setting", BAD, ids=lambda s: s.name)
def test_a_bad_value_is_refused_with_its_place(setting: Setting[object], monkeypatch: pytest.MonkeyPatch) -> None:
    Path("millstream.toml").write_text(f'{setting.name} = "{BAD[setting]}"\n')
    with pytest.raises(DefinitionError, match=f"{setting.name} in millstream.toml is '{BAD[setting]}'") as caught:
        find(setting)
    assert caught.value.hint
    monkeypatch.setenv(setting.variable, BAD[setting])
    with pytest.raises(DefinitionError, match=f"{setting.variable} is '{BAD[setting]}'"):
        find(setting)
    with pytest.raises(DefinitionError):
        find(setting, BAD[setting])


def test_values_of_toml_need_no_quotes() -> None:
    Path("millstream.toml").write_text("query_timeout = 5\nquery_memory = 0\ndebug = true\n")
    assert (find(QUERY_TIMEOUT).value, find(QUERY_MEMORY).value, find(DEBUG).value) == (5.0, 0, True)


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("qury_timeout = 5\n", "`qury_timeout` in millstream.toml is not a setting", "did you mean `query_timeout`?"),
        ("[query]\ntimeout = 5\n", "`query` in millstream.toml is not a setting", "query_"),
        ("xyz = 5\n", "`xyz` in millstream.toml is not a setting", "settings are: home, memory,"),
        ("memory = 4g\n", "millstream.toml is not TOML", 'memory = "4g"'),
    ],
)
def test_a_file_is_checked(text: str, message: str, hint: str) -> None:
    Path("millstream.toml").write_text(text)
    with pytest.raises(DefinitionError) as caught:
        find(MEMORY)
    assert caught.value.message == message and hint in (caught.value.hint or "")
    assert isinstance(caught.value, UnknownName) == ("not a setting" in message)


def test_a_file_that_is_no_text_is_refused() -> None:
    Path("millstream.toml").write_bytes(b"memory = '\xff'")
    with pytest.raises(DefinitionError, match="not UTF-8"):
        find(MEMORY)
    Path("millstream.toml").unlink()
    Path("millstream.toml").mkdir()
    with pytest.raises(DefinitionError, match="cannot be read"):
        find(MEMORY)


def test_a_home_cannot_name_itself() -> None:
    Path("home/millstream.toml").write_text('home = "x"\n')
    with pytest.raises(DefinitionError, match=r"`home` in home/millstream\.toml has no effect there"):
        find(MEMORY, home=Path("home"))


def test_a_file_that_changes_is_read_again() -> None:
    Path("millstream.toml").write_text('memory = "4g"\n')
    assert find(MEMORY).value == "4g"
    Path("millstream.toml").write_text('memory = "512m"\n')
    assert find(MEMORY).value == "512m"


def test_an_old_variable_works_and_warns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLSTREAM_MASTER", "local[1]")
    with pytest.warns(SettingDeprecated, match="MILLSTREAM_MASTER is deprecated; use MILLSTREAM_SPARK_MASTER"):
        assert find(SPARK_MASTER).value == "local[1]"
    monkeypatch.setenv("MILLSTREAM_SPARK_MASTER", "local[2]")
    assert find(SPARK_MASTER).value == "local[2]"


def test_secrets_are_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(value: object) -> str:
        raise DefinitionError(f"{value!r} is too short")

    token: Setting[str] = Setting("token", str, str, "a token", "none", secret=True)
    monkeypatch.setenv("MILLSTREAM_TOKEN", "hunter2")
    assert find(token).value == "hunter2" and find(token).shown() == "(set)"
    with pytest.raises(DefinitionError) as caught:
        find(Setting("token", refuse, str, "a token", "none", secret=True))
    assert "hunter2" not in str(caught.value)
    assert Found(SPARK_MASTER, "spark://me:hunter2@host:7077", "x").shown() == "spark://***@host:7077"


def test_a_home_may_have_its_file_before_it_is_a_home(place: Path) -> None:
    Path("home/millstream.toml").write_text('memory = "3g"\nquery_timeout = 9\nquery_memory_total = "48MB"\n')
    make_home(place / "home")
    with Home("home") as home:
        engines = home.open_home.engines
        assert isinstance(engines, SparkEngines) and engines.memory == "3g" and home.limits == Limits(9.0, 1 << 30)
        assert home.store.budget.total == 48 << 20


def test_names_of_settings_follow_one_scheme() -> None:
    for setting in SETTINGS:
        assert setting.variable == "MILLSTREAM_" + setting.name.upper()
        assert setting.meaning and setting.usual and not setting.meaning.endswith(".")
    assert len({s.name for s in SETTINGS}) == len(SETTINGS)


def test_no_other_module_reads_a_setting_from_the_environment() -> None:
    package = Path(settings.__file__).parent
    others = [p for p in package.rglob("*.py") if p.name != "settings.py"]
    wrong = [
        str(p) for p in others if 'environ.get("MILLSTREAM_' in p.read_text() or 'getenv("MILLSTREAM' in p.read_text()
    ]
    assert not wrong and not [p for p in others if "envvar=" in p.read_text()]


def test_a_home_below_a_backslash_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match="a home cannot be in "):
        make_home(tmp_path / "a\\b" / "home")
