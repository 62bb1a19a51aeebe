"""A promtool that evaluates the emitted rules over planted series."""

import subprocess

import pytest
import yaml
from tests.monitor.fleet import WATCHED

from trimtab.monitor.folders import rule_object
from trimtab.monitor.watched import Thresholds


@pytest.fixture
def promtool(promtool_bin, tmp_path):
    spec = rule_object(WATCHED, Thresholds())["spec"]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(spec), encoding="utf-8")

    def run(test, evaluated="5m"):
        page = {"rule_files": ["rules.yaml"], "evaluation_interval": evaluated, "tests": [test]}
        (tmp_path / "test.yaml").write_text(yaml.safe_dump(page), encoding="utf-8")
        return subprocess.run(
            [promtool_bin, "test", "rules", str(tmp_path / "test.yaml")], capture_output=True, text=True, check=False
        )

    return run
