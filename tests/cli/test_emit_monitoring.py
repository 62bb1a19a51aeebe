"""`trimtab emit --monitoring` as a person types it."""

import json

import pytest
import yaml


@pytest.fixture
def folder(program, tmp_path, monkeypatch):
    """What it writes for a demonstration."""
    monkeypatch.chdir(tmp_path)
    code, said, _ = program("emit", "--monitoring", "--demo", "two-hundred-k", "--out", "watch")
    assert code == 0, said
    return tmp_path / "watch"


def test_alerts_and_boards_are_written_without_an_audit(folder):
    rules = yaml.safe_load((folder / "trimtab-fleet.rules.yaml").read_text())
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text())
    boards = [json.loads(path.read_text()) for path in folder.glob("*.dashboard.json")]

    assert rules["metadata"]["labels"]["release"] == "kube-prometheus-stack"
    assert len([rule for rule in rules["spec"]["groups"][1]["rules"] if "alert" in rule]) == 11
    assert {board["uid"] for board in boards} == {
        f"trimtab-{name}" for name in ("fleet", "workloads", "gpus", "serving", "money")
    }
    assert len(kustomization["configMapGenerator"]) == 5


def test_own_thresholds_and_rule_labels_are_taken(program, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "alerts.yaml").write_text("hot_c: 70\nrunbooks: https://wiki.example/gpu\n")
    (tmp_path / "cluster.yaml").write_text("rule_labels: {prometheus: infra}\n")

    program(
        *("emit", "--monitoring", "--demo", "finetune-7b", "--out", "watch"),
        *("--thresholds", "alerts.yaml", "--cluster", "cluster.yaml"),
    )
    rules = yaml.safe_load((tmp_path / "watch/trimtab-fleet.rules.yaml").read_text())
    hot = next(rule for rule in rules["spec"]["groups"][1]["rules"] if rule["alert"] == "TrimtabGpuHot")

    assert rules["metadata"]["labels"]["prometheus"] == "infra"
    assert "release" not in rules["metadata"]["labels"]
    assert hot["expr"].endswith("> 70")
    assert hot["annotations"]["runbook_url"] == "https://wiki.example/gpu#trimtabgpuhot"


@pytest.mark.parametrize(
    ("arguments", "exit_code", "said"),
    [
        (("--monitoring",), 2, "watch which cluster?"),
        (("--demo", "two-hundred-k"), 2, "go with --monitoring"),
        (("--monitoring", "--demo", "finetune-7b", "--thresholds", "alerts.yaml"), 1, "hot_c"),
    ],
)
def test_what_cannot_be_is_refused_with_the_cure(arguments, exit_code, said, program, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "alerts.yaml").write_text("hot_d: 70\n")

    code, _, errors = program("emit", *arguments)

    assert code == exit_code
    assert said in errors


def test_each_alert_has_its_part_in_the_page_that_it_links_to(folder):
    from tests.test_docs import ROOT

    page = (ROOT / "docs/how-to/watch-a-cluster.md").read_text()
    rules = yaml.safe_load((folder / "trimtab-fleet.rules.yaml").read_text())["spec"]["groups"][1]["rules"]

    assert {rule["alert"] for rule in rules} <= {line[4:] for line in page.splitlines() if line.startswith("### ")}
