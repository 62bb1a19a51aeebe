"""`trimtab replay` on a small demonstration fleet."""

import json

import pytest
from click.testing import CliRunner

from trimtab.cli import root
from trimtab.errors import UnknownName, UsageError

SMALL = ("--demo", "three-small-models", "-q")


def run(*arguments):
    return CliRunner().invoke(root, ["replay", *arguments], catch_exceptions=True)


@pytest.fixture(scope="module")
def answered(tmp_path_factory):
    picture = tmp_path_factory.mktemp("replay") / "replay.svg"
    shown = run(*SMALL, "--policy", "static", "--sweep", "hpa:40..80:20", "--picture", str(picture), "-o", "json")
    assert shown.exit_code == 0, shown.output
    return json.loads(shown.stdout)["rows"], picture.read_text(encoding="utf-8")


def test_each_service_is_replayed_under_each_policy_and_sweep(answered):
    rows, _ = answered
    services = {row["workload"] for row in rows}
    assert len(services) >= 1
    assert len(rows) == 4 * len(services)
    assert {row["policy"] for row in rows} == {"static", "hpa:40", "hpa:60", "hpa:80"}


def test_a_row_states_cost_regret_and_targets(answered):
    rows, _ = answered
    for row in rows:
        assert row["usd_mo"] > 0
        assert row["over_clairvoyant"] >= 0.9
        assert 0 <= row["attained_frac"] <= 1
        assert isinstance(row["keeps_targets"], bool)


def test_a_picture_names_the_policies(answered):
    _, picture = answered
    assert picture.startswith("<svg xmlns=")
    assert "hpa:60" in picture


def test_a_misspelt_service_gets_near_matches():
    result = run(*SMALL, "--policy", "static", "--workload", "nobody")
    assert isinstance(result.exception, UnknownName)


def test_no_history_is_a_usage_error():
    assert isinstance(run().exception, UsageError)
