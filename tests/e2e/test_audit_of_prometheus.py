"""From a real Prometheus server to a proved plan, as a user types it."""

import json

import pytest

from trimtab.cli import main

pytestmark = pytest.mark.prometheus


def run(capsys, *arguments):
    with pytest.raises(SystemExit) as stopped:
        main([str(argument) for argument in arguments])
    return stopped.value.code, capsys.readouterr().out


@pytest.fixture
def audited(collected_bundle, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    code, out = run(capsys, "audit", collected_bundle.path, "-o", "json")
    assert code == 0
    return json.loads(out)


def test_a_collected_fleet_is_audited_and_the_saving_is_proved(audited):
    plan, proof = audited["plan"], audited["proof"]

    assert plan["joint_saving_usd_mo"] > 0
    assert proof["after_usd"] < proof["before_usd"]
    assert all(target["attained_frac"] >= target["required_frac"] for target in proof["targets"])


def test_waste_and_shares_add_up_to_the_cent(audited):
    plan = audited["plan"]

    assert round(sum(100 * waste["usd_mo"] for waste in audited["waste"])) == round(100 * audited["bill_usd_mo"])
    assert round(sum(100 * action["saving_usd_mo"] for action in plan["actions"])) == round(
        100 * plan["joint_saving_usd_mo"]
    )


def test_an_action_of_the_audit_can_be_explained(audited, capsys):
    code, out = run(capsys, "explain", audited["plan"]["actions"][0]["id"])

    assert code == 0
    assert audited["plan"]["actions"][0]["subject"].split(",")[0] in out
