"""The package itself: old names work and warn, unknown names have a suggestion, a home comes from the settings."""

import pickle
from pathlib import Path

import pytest

import millstream as ms
from millstream.engine.spark_engines import SparkEngines


def memory_of(home: ms.Home) -> str:
    engines = home.open_home.engines
    assert isinstance(engines, SparkEngines)
    return engines.memory


def test_an_old_name_works_and_names_the_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ms._RENAMED, "hop", "hopping")
    with pytest.warns(DeprecationWarning, match=r"millstream\.hop is deprecated; use millstream\.hopping") as caught:
        assert ms.hop is ms.hopping
    assert [w.filename for w in caught] == [__file__]


def test_every_old_name_leads_to_a_public_one() -> None:
    assert set(ms._RENAMED.values()) <= set(ms.__all__) and not set(ms._RENAMED) & set(ms.__all__)


def test_an_unknown_name_has_a_suggestion() -> None:
    with pytest.raises(AttributeError, match=r"no attribute `tumblin`; did you mean `tumbling`\?"):
        ms.tumblin  # noqa: B018
    assert not hasattr(ms, "__wrapped__") and pickle.loads(pickle.dumps(ms.Flow)) is ms.Flow


def test_a_home_without_a_path_is_that_of_the_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MILLSTREAM_HOME", raising=False)
    (tmp_path / "millstream.toml").write_text('home = "from-file"\nmemory = "3g"\nquery_timeout = 7\n')
    with ms.open() as home:
        assert home.path == tmp_path / "from-file" and memory_of(home) == "3g" and home.limits.seconds == 7
        home.store.tables()
    with ms.connect() as reader:
        assert reader.path == tmp_path / "from-file"
    monkeypatch.setenv("MILLSTREAM_HOME", "from-environment")
    with ms.open(memory="1g") as home:
        assert home.path == tmp_path / "from-environment" and memory_of(home) == "1g"
    with ms.open(tmp_path / "given") as home:
        assert home.path == tmp_path / "given"
