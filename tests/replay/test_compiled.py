"""Machine code kept between runs: under a hash of the sources, and not at all where nothing can be written."""

import pytest

from trimtab.replay import compiled


@pytest.fixture
def fresh():
    compiled.cache_dir.cache_clear()
    yield
    compiled.cache_dir.cache_clear()


def test_the_folder_changes_with_the_sources(tmp_path, monkeypatch, fresh):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    sources = tmp_path / "policies"
    sources.mkdir()
    (sources / "rule.py").write_text("LIMIT = 1\n", encoding="utf-8")
    monkeypatch.setattr(compiled, "SOURCES", (sources,))
    before = compiled.cache_dir()

    (sources / "rule.py").write_text("LIMIT = 2\n", encoding="utf-8")
    compiled.cache_dir.cache_clear()

    assert compiled.cache_dir() != before


def test_nowhere_to_write_is_a_warning_and_no_failure(tmp_path, monkeypatch, caplog, fresh):
    occupied = tmp_path / "cache"
    occupied.write_text("a file where the folder should be", encoding="utf-8")
    monkeypatch.setenv("XDG_CACHE_HOME", str(occupied))

    assert compiled.cache_dir() is None
    assert "compiles anew" in caplog.text
    assert compiled.compiled(lambda x: x + 1)(1) == 2
