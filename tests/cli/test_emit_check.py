"""`trimtab emit --check` and `--diff` as a shell sees them."""

import json

import pytest
import yaml

pytest.importorskip("promql_parser", reason="the extra `check` is not installed whole")

POOL = {
    "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "gpus"},
    "spec": {"template": {"spec": {
        "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
        "requirements": [{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"]}],
    }}, "limits": {"nvidia.com/gpu": "8"}},
}  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    def write(name, *objects):
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / "all.yaml").write_text(yaml.safe_dump_all(objects), encoding="utf-8")
        return str(tmp_path / name)

    return write


def test_a_sound_folder_ends_with_zero(program, folder):
    code, out, _ = program("emit", "--check", folder("mine", POOL))

    assert code == 0
    assert "1 objects and 0 patches checked, 0 errors, 1 warnings" in out


def test_a_fault_ends_with_four_and_is_said_with_object_field_and_cure(program, folder):
    wrong = {**POOL, "spec": {**POOL["spec"], "limts": {}}}

    code, out, _ = program("emit", "--check", folder("mine", wrong), "-o", "json")

    (error,) = [row for row in json.loads(out)["rows"] if row["severity"] == "error"]
    assert code == 4
    assert (error["file"], error["object"], error["field"]) == ("all.yaml", "NodePool gpus", "spec.limts")
    assert error["cure"] == "write limits"


def test_a_comment_says_what_applying_would_change(program, folder):
    there = {**POOL, "spec": {**POOL["spec"], "limits": {"nvidia.com/gpu": "4"}}}
    mine = folder("mine", POOL)

    code, out, _ = program("emit", "--diff", mine, "--against", folder("other", there), "-o", "github-comment")
    _, same, _ = program("emit", "--diff", mine, "--against", folder("also", POOL), "-o", "github-comment")
    refused, _, err = program("emit", "--check", mine, "-o", "github-comment")

    assert code == 1
    assert out.startswith("<!-- trimtab emit diff -->")
    assert "would change 1 object\n" in out
    assert "spec.limits" in out
    assert "would change nothing" in same
    assert (refused, "--diff" in err) == (2, True)


def test_a_difference_ends_with_one_and_none_with_zero(program, folder):
    there = {**POOL, "spec": {**POOL["spec"], "limits": {"nvidia.com/gpu": "4"}}}

    same, _, _ = program("emit", "--diff", folder("mine", POOL), "--against", folder("also", POOL))
    differs, out, _ = program("emit", "--diff", folder("mine", POOL), "--against", folder("other", there), "-o", "json")

    (row,) = json.loads(out)["rows"]
    assert (same, differs) == (0, 1)
    assert (row["change"], row["field"], row["before"], row["after"]) == (
        "changed",
        "spec.limits['nvidia.com/gpu']",
        "4",
        "8",
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--diff", "."], "--diff with what?"),
        (["--against", "."], "go with --check or --diff"),
        (["--check", ".", "--diff", "."], "one at a time"),
    ],
)
def test_questions_that_are_none_are_refused(program, tmp_path, monkeypatch, arguments, said):
    (tmp_path / "a.yaml").write_text(yaml.safe_dump(POOL), encoding="utf-8")
    monkeypatch.chdir(tmp_path)

    code, _, err = program("emit", *arguments)

    assert code == 2
    assert said in err


def test_series_of_the_prometheus_are_asked_of_a_file(program, folder, tmp_path):
    rule = {
        "apiVersion": "monitoring.coreos.com/v1", "kind": "PrometheusRule", "metadata": {"name": "a", "namespace": "b"},
        "spec": {"groups": [{"name": "g", "rules": [{"record": "b:mine", "expr": "sum(our_requests_total)"}]}]},
    }  # fmt: skip
    (tmp_path / "names").write_text("up\n", encoding="utf-8")

    blind, _, _ = program("emit", "--check", folder("mine", rule))
    seen, out, _ = program("emit", "--check", folder("mine", rule), "--metrics", str(tmp_path / "names"))

    assert (blind, seen) == (0, 4)
    assert "our_requests_total, which nothing is known to write" in out
