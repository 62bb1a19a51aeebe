"""`trimtab collect` from the monitors of clouds, as a person types it."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from tests.kube_cluster import dump
from tests.sources.answering_server import answering
from tests.sources.recorded_cloudwatch import START_S, cloudwatch

from trimtab.tables.bundle import read_bundle


@pytest.fixture
def run(program, monkeypatch):
    """Run a command; return exit code, standard output and standard error."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.delenv("TRIMTAB_PROMETHEUS", raising=False)

    return program


START = datetime.fromtimestamp(START_S, tz=UTC)
WINDOW = ("--from", START.isoformat(), "--to", (START + timedelta(hours=72)).isoformat())


def test_cloudwatch_becomes_a_bundle_that_audit_takes(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # what an audit keeps lies in the working folder
    fleet = str(tmp_path / "fleet")
    with answering(cloudwatch(hours=72)) as (_, url):
        code, out, err = run(
            "collect", "--cloudwatch", "us-east-1", "--cloud-endpoint", f"aws={url}", *WINDOW, "--out", fleet, "-q"
        )

    assert code == 0, err
    assert "gpu_usage" in out
    assert read_bundle(tmp_path / "fleet").meta.sources == ("CloudWatch us-east-1",)
    code, out, err = run("audit", fleet, "--at", "2026-08-03", "-o", "json")
    assert code == 0, err
    assert "aws/serve" in out


def test_two_regions_keep_apart(run, tmp_path):
    with answering(cloudwatch()) as (_, url):
        code, _, err = run(
            "collect", "--cloudwatch", "us-east-1", "--cloudwatch", "eu-west-1", "--cloud-endpoint", f"aws={url}",
            "--from", START.isoformat(), "--to", (START + timedelta(hours=4)).isoformat(), "--out", str(tmp_path / "both"),
        )  # fmt: skip

    assert code == 0, err
    nodes = read_bundle(tmp_path / "both").table("nodes").to_pylist()
    assert {row["node"] for row in nodes} == {
        f"{one}@{region}" for one in ("i-a", "i-b", "ip-10-0-0-1") for region in ("us-east-1", "eu-west-1")
    }


def test_a_cloud_and_another_place_are_different_fleets(run):
    code, _, err = run("collect", "--cloudwatch", "us-east-1", "--slurm", __file__)

    assert code == 2
    assert "different fleets" in err


def test_an_endpoint_that_is_none_is_refused(run):
    code, _, err = run("collect", "--cloudwatch", "us-east-1", "--cloud-endpoint", "ibm=http://localhost")

    assert code == 2
    assert "gcp-monitoring" in err


def test_a_cluster_completes_what_its_clouds_monitor_does_not_know(run, tmp_path, monkeypatch):
    monkeypatch.setenv("TRIMTAB_AZURE_TOKEN", "t")
    (tmp_path / "dump.json").write_text(json.dumps(dump()), encoding="utf-8")
    named = next(one["metadata"]["name"] for one in dump()["items"] if one["kind"] == "Node")
    at = START.isoformat()
    columns = ("hour", "Name", "Computer", "gpu", "model", "cluster", "mean", "p50", "p95", "most", "samples")
    rows = [[at, "containerGpuDutyCycle", named, "GPU-9", "Tesla T4", "prod", 25.0, 20.0, 80.0, 99.0, 60]]
    answer = {"tables": [{"columns": [{"name": name} for name in columns], "rows": rows}]}

    with answering(lambda asked: (200, {}, json.dumps(answer).encode())) as (_, url):
        code, _, err = run(
            "collect", "--azure", "w", "--cloud-endpoint", f"azure-logs={url}", "--kube-dump", str(tmp_path / "dump.json"),
            "--from", at, "--to", (START + timedelta(hours=2)).isoformat(), "--out", str(tmp_path / "fleet"), "-q",
        )  # fmt: skip

    assert code == 0, err
    (node,) = read_bundle(tmp_path / "fleet").table("nodes").to_pylist()
    assert node["instance_type"] != "unknown"
    assert read_bundle(tmp_path / "fleet").table("pods").num_rows
