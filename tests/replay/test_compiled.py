"""Machine code kept between runs: under a hash of the sources, and not at all where nothing can be written."""

import subprocess
import sys
from enum import Enum

import numpy as np
import pytest

from trimtab import _machine_code
from trimtab.policies.keda import KedaPolicy
from trimtab.policies.rules import RuleKind
from trimtab.policies.scaling import HpaPolicy, Metric, StaticReplicas
from trimtab.replay.code_folder import code_folder, keep_code_in
from trimtab.replay.compiled import compiled
from trimtab.replay.services import rule_of

RUN_ONE = """
import numpy as np
from trimtab.replay.nodes import CountRuns
print(CountRuns.of(np.array([2, 2, 3], dtype=np.int32)).levels.tolist())
"""

HPA = HpaPolicy(0.7, 2, 20, metric=Metric.DUTY_CYCLE)


@pytest.fixture
def fresh():
    _machine_code.machine_code_folder.cache_clear()
    yield
    _machine_code.machine_code_folder.cache_clear()


def test_the_folder_changes_with_the_sources(tmp_path, monkeypatch, fresh):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    sources = tmp_path / "policies"
    sources.mkdir()
    (sources / "rule.py").write_text("LIMIT = 1\n", encoding="utf-8")
    monkeypatch.setattr(_machine_code, "SOURCES", (sources,))
    before = _machine_code.machine_code_folder()

    (sources / "rule.py").write_text("LIMIT = 2\n", encoding="utf-8")
    _machine_code.machine_code_folder.cache_clear()

    assert _machine_code.machine_code_folder() != before


def test_constants_and_modules_in_folders_below_count_among_the_sources():
    names = {path.name for path in _machine_code.SOURCES}

    assert {"policies", "replay", "units.py"} <= names
    assert any(path.parent.name == "outcomes" for place in _machine_code.SOURCES for path in place.rglob("*.py"))


def test_a_module_below_a_folder_changes_the_folder_of_its_code(tmp_path, monkeypatch, fresh):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    below = tmp_path / "replay" / "outcomes"
    below.mkdir(parents=True)
    (below / "loop.py").write_text("LIMIT = 1\n", encoding="utf-8")
    monkeypatch.setattr(_machine_code, "SOURCES", (tmp_path / "replay",))
    before = _machine_code.machine_code_folder()

    (below / "loop.py").write_text("LIMIT = 2\n", encoding="utf-8")
    _machine_code.machine_code_folder.cache_clear()

    assert _machine_code.machine_code_folder() != before


def test_loops_of_others_are_kept_apart_and_anew_when_their_own_sources_change(tmp_path, monkeypatch, fresh):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    others = tmp_path / "reference"
    others.mkdir()
    (others / "loop.py").write_text("STEPS = 1\n", encoding="utf-8")
    before = _machine_code.machine_code_folder(others)

    (others / "loop.py").write_text("STEPS = 2\n", encoding="utf-8")
    _machine_code.machine_code_folder.cache_clear()

    assert len({before, _machine_code.machine_code_folder(others), _machine_code.machine_code_folder()}) == 3


def test_each_package_names_the_folder_of_its_own_loops(tmp_path):
    keep_code_in("measuring", lambda: str(tmp_path))

    assert code_folder("measuring.loops") == str(tmp_path)
    assert code_folder("elsewhere.loops") is None


def test_nowhere_to_write_is_a_warning_and_no_failure(tmp_path, monkeypatch, caplog, fresh):
    occupied = tmp_path / "cache"
    occupied.write_text("a file where the folder should be", encoding="utf-8")
    monkeypatch.setenv("XDG_CACHE_HOME", str(occupied))

    assert _machine_code.machine_code_folder() is None
    assert "compiled again" in caplog.text
    assert compiled(lambda x: x + 1)(1) == 2


def test_a_replay_keeps_its_code_in_the_users_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    done = subprocess.run([sys.executable, "-c", RUN_ONE], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[2, 3]"
    assert list((tmp_path / "trimtab" / "compiled").rglob("*.nbc"))


def test_code_that_is_not_kept_divides_as_kept_code_does():
    divide = compiled(lambda over, under: over / under)

    assert divide(1.0, 0.0) == np.inf


@pytest.mark.parametrize("policy", [HPA, KedaPolicy(HPA), StaticReplicas(3)], ids=lambda policy: type(policy).__name__)
def test_rules_reach_compiled_code_without_enums_whose_types_numba_looks_up_at_every_call(policy):
    def enums(value):
        return (
            [found for part in value for found in enums(part)]
            if isinstance(value, tuple)
            else [isinstance(value, Enum)]
        )

    rule, _, _ = rule_of(policy)

    assert not any(enums(rule))
    assert (
        rule.kind == {HpaPolicy: RuleKind.HPA, KedaPolicy: RuleKind.KEDA, StaticReplicas: RuleKind.STATIC}[type(policy)]
    )
    assert rule.hpa.metric == (policy.metric if isinstance(policy, HpaPolicy) else Metric.DEMAND)


def test_a_loop_says_when_it_is_compiled_and_not_when_it_runs_again(caplog):
    @compiled
    def _sum_of_squares(numbers):
        total = 0.0
        for number in numbers:
            total += number * number
        return total

    with caplog.at_level("INFO", logger="trimtab.replay.compiled"):
        assert _sum_of_squares(np.array([1.0, 2.0])) == 5.0
        said = [record.getMessage() for record in caplog.records]
        assert _sum_of_squares(np.array([3.0])) == 9.0

    assert said == ["compiling a loop of replays (sum of squares), once on this machine"]
    assert len(caplog.records) == 1
