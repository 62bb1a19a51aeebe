"""`trimtab quotas` as a person types it."""

import json

import pytest
from tests.sources.answering_server import answering
from tests.sources.clouds.test_quotas import aws
from tests.tables.bundles import META, node, tables, usage

from trimtab.sources.clouds import read_quotas
from trimtab.tables.bundle import write_bundle


@pytest.fixture
def run(program, monkeypatch):
    """Run a command; return exit code, standard output and standard error."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")

    return program


def test_quotas_go_to_settings_to_a_file_and_from_there_to_doctor(run, tmp_path):
    path = tmp_path / "quotas.csv"
    with answering(aws) as (_, url):
        asked = ("quotas", "--aws", "us-east-1", "--cloud-endpoint", f"aws={url}")
        _, settings, _ = run(*asked, "--toml")
        _, shown, _ = run(*asked, "-o", "json")
        code, _, err = run(*asked, "-o", "csv", "--out", str(path))

    assert '"p4d.24xlarge@us-east-1" = 2  # 192 vCPU: Running On-Demand P instances' in settings
    assert {row["instance_type"] for row in json.loads(shown)["rows"]} >= {"p4d.24xlarge", "g6.xlarge"}
    assert (code, "share it" in err) == (0, True)
    assert read_quotas(path)
    nodes = [node(f"n{number}", gpu_count=1) for number in range(3)]
    write_bundle(tmp_path / "fleet", tables(nodes=nodes, gpu_usage=[usage(hour) for hour in range(48)]), META, None)
    _, page, err = run("doctor", str(tmp_path / "fleet"), "--quotas", str(path), "--at", "2026-09-01")
    assert "--quota-code L-417A185B --desired-value 288 --region us-east-1" in page, err


def test_nothing_named_is_an_error_of_use(run):
    code, _, err = run("quotas")

    assert (code, "--aws REGION" in err) == (2, True)


def test_quotas_without_a_bundle_are_an_error_of_use(run, tmp_path):
    (tmp_path / "q.csv").write_text("", encoding="utf-8")

    code, _, err = run("doctor", "-p", "http://127.0.0.1:9", "--quotas", str(tmp_path / "q.csv"))

    assert (code, "bundle" in err) == (2, True)
