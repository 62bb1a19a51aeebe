"""A promtool that evaluates the emitted rules over planted series."""

import re
import subprocess

import pytest
import yaml
from tests.monitor.fleet import WATCHED

from trimtab.monitor.folders import rule_object
from trimtab.monitor.watched import Thresholds


def records_below(expression, rules):
    """Return the recording rules that an expression rests on, in their order."""
    named, before = set(re.findall(r"trimtab:\w+", expression)), set()
    while named != before:
        before = named
        named = named | {
            name for rule in rules if rule["record"] in before for name in re.findall(r"trimtab:\w+", rule["expr"])
        }
    return [rule for rule in rules if rule["record"] in named]


@pytest.fixture
def promtool(promtool_bin, tmp_path):
    def run(test, evaluated="5m", of=None):
        """Evaluate all rules, or the records alone that the expression `of` rests on: weeks of them all take long."""
        spec = rule_object(WATCHED, Thresholds())["spec"]
        if of is not None:
            spec = {"groups": [{"name": "records", "rules": records_below(of, spec["groups"][0]["rules"])}]}
        (tmp_path / "rules.yaml").write_text(yaml.safe_dump(spec), encoding="utf-8")
        page = {"rule_files": ["rules.yaml"], "evaluation_interval": evaluated, "tests": [test]}
        (tmp_path / "test.yaml").write_text(yaml.safe_dump(page), encoding="utf-8")
        return subprocess.run(
            [promtool_bin, "test", "rules", str(tmp_path / "test.yaml")], capture_output=True, text=True, check=False
        )

    return run
