"""What 0.1.0 wrote is read: a bundle, a kept audit with its plan, and what `verify` says of it.

The files were written by that version, from `tests/data/written_by_0_1_0/bundle`: audited, emitted, then verified on `later`.
"""

import json
import shutil
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from trimtab.cli import root

WRITTEN = Path(__file__).parents[1] / "data" / "written_by_0_1_0"


@pytest.fixture
def state(tmp_path, monkeypatch):
    """A state folder as that version left it."""
    folder = tmp_path / "state"
    shutil.copytree(WRITTEN / "state", folder)
    monkeypatch.setenv("TRIMTAB_STATE", str(folder))
    monkeypatch.setenv("TRIMTAB_TRUST_STATE", "1")  # 0.1.0 sealed nothing
    monkeypatch.chdir(tmp_path)
    return folder


def run(*arguments):
    result = CliRunner().invoke(root, list(arguments))
    assert result.exit_code == 0, result.output
    return result.stdout


def test_its_bundle_is_audited_to_the_same_plan(state):
    then = json.loads((WRITTEN / "state" / "history" / "000001" / "audit.json").read_text())
    anyway = ("--set", "planning.commitment_history_days=14")  # 0.1.0 bought on any history
    now = json.loads(run("audit", str(WRITTEN / "bundle"), "-q", "--no-report", "-o", "json", *anyway))

    def actions(document):
        # in which order they are done is this version's
        return sorted((one["lever"], one["subject"], one["saving_usd_mo"]) for one in document["plan"]["actions"])

    assert actions(now) == actions(then)
    assert now["proof"]["after_usd"] == then["proof"]["after_usd"]


def test_its_kept_audit_is_explained(state):
    assert "ask for 1 GPU a run, not 4, on p3.2xlarge" in " ".join(run("explain", "a3").split())


def objects(folder):
    """Return every emitted object by its path, without the words around it."""
    return {
        str(file.relative_to(folder)): list(yaml.safe_load_all(file.read_text())) for file in folder.rglob("*.yaml")
    }


def named(folder):
    """What is applied, by kind and name; how it is written is this version's."""
    return {
        (one["kind"], one["metadata"]["name"])
        for path, texts in objects(folder).items()
        for one in texts
        if not path.startswith(("rollback/", "templates/")) and one["kind"] != "Kustomization"
    }


def test_its_kept_plan_is_emitted_as_it_was(state, tmp_path):
    run("emit", "--out", str(tmp_path / "manifests"))

    assert named(tmp_path / "manifests") == named(WRITTEN / "manifests")
    assert objects(WRITTEN / "manifests")


def test_its_plan_is_verified_to_the_same_figures(state):
    then = json.loads((WRITTEN / "verify.json").read_text())
    now = json.loads(run("verify", str(WRITTEN / "later"), "-q", "-o", "json"))

    assert figures(now) == figures(then)


def figures(document):
    """Return a document of `verify` without the words of its advice, which are this version's."""
    purchases = [{**one, "advice": None} for one in document["purchases"]]
    return {**document, "purchases": purchases}


def test_a_plan_of_no_known_version_is_refused_with_the_command_that_makes_it_anew(state):
    plan = state / "history" / "000001" / "plan.json"
    plan.write_text(json.dumps({**json.loads(plan.read_text()), "format": 99}))

    result = CliRunner().invoke(root, ["emit"])

    assert result.exit_code != 0
    assert "run `trimtab audit` again" in str(result.exception)
