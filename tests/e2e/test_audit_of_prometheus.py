"""From a real Prometheus server to a proved plan, as a user types it."""

import json

import pytest

from trimtab.cli import main

pytestmark = pytest.mark.prometheus


def run(*arguments):
    with pytest.raises(SystemExit) as stopped:
        main([str(argument) for argument in arguments])
    return stopped.value.code


@pytest.fixture(scope="module")
def folder(collected_bundle, tmp_path_factory):
    """The folder in which the fleet was audited once, for every test."""
    folder = tmp_path_factory.mktemp("audit")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert run("audit", collected_bundle.path, "-o", "json", "--out", "audit.json") == 0
    return folder


@pytest.fixture
def audited(folder):
    return json.loads((folder / "audit.json").read_text(encoding="utf-8"))


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


def test_an_action_of_the_audit_can_be_explained(audited, folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)

    code = run("explain", audited["plan"]["actions"][0]["id"])

    assert code == 0
    assert audited["plan"]["actions"][0]["subject"].split(",")[0] in capsys.readouterr().out
