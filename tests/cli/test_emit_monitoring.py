"""`trimtab emit --monitoring` as a person types it."""

import json

import pytest
import yaml
from tests.monitor.fleet import VERIFIED


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
        (("--verify", "alerts.yaml"), 2, "go with --monitoring"),
        (("--image", "registry.example/trimtab"), 2, "go with --in-cluster"),
        (("--in-cluster", "--monitoring", "--demo", "two-hundred-k"), 2, "ask for it alone"),
        (("--monitoring", "--demo", "finetune-7b", "--verify", "alerts.yaml"), 1, "alerts.yaml"),
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


def test_the_board_of_money_shows_what_was_verified(program, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "verified.json").write_text(json.dumps(VERIFIED))

    code, _, errors = program(
        "emit", "--monitoring", "--demo", "finetune-7b", "--verify", "verified.json", "--out", "watch"
    )
    board = json.loads((tmp_path / "watch/trimtab-money.dashboard.json").read_text())
    panels = {panel["title"]: panel for panel in board["panels"]}
    shown = panels["Saving a month, verified 2026-10-01 to 2026-10-29"]

    assert code == 0, errors
    assert [target["legendFormat"] for target in shown["targets"]] == ["planned", "realised"]
    assert "min" not in shown["fieldConfig"]["defaults"], "what was realised may be less than nothing"


def test_what_runs_in_the_cluster_is_written_for_an_image_and_a_server(program, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    code, said, _ = program(
        *("emit", "--in-cluster", "--image", "registry.example/trimtab@sha256:0a", "--prometheus", "http://mimir:8080"),
        *("--out", "deploy", "-o", "json"),
    )
    values = yaml.safe_load((tmp_path / "deploy/chart/values.yaml").read_text())

    assert code == 0
    assert (values["image"], values["prometheus"]) == ("registry.example/trimtab@sha256:0a", "http://mimir:8080")
    assert len(json.loads(said)["rows"]) == 6
