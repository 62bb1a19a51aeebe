"""`trimtab replay --pool`: what it says of services whose owners let their models take turns."""

from __future__ import annotations

from dataclasses import replace

import pytest
import yaml
from click.testing import CliRunner

from trimtab.cli.replay import command
from trimtab.cli.replay.pool import pool_facts, pool_report, write_pool_files
from trimtab.errors import InputError, UsageError
from trimtab.fleet.settings import Settings
from trimtab.pipeline import open_demo
from trimtab.tables.workloads import Workloads, WorkloadSpec


def small_models(declared):
    bundle = open_demo("three-small-models")
    specs = {
        name: WorkloadSpec.model_validate({**spec.model_dump(exclude_unset=True), **declared})
        for name, spec in bundle.workloads.workloads.items()
    }
    return replace(bundle, workloads=Workloads(workloads=specs))


def report(declared):
    return "\n".join(pool_report(small_models(declared), Settings(), lambda text, share: None).lines)


def test_services_with_loose_limits_share_a_gpu_and_keep_them():
    said = report(
        {"pool": True, "need_gib": 8, "wake_s": 2, "targets": [{"metric": "latency", "quantile": 0.95, "limit_s": 120}]}
    )

    assert "3 services would have held 1.0 GPUs instead of 3.0" in said
    assert said.count(": kept; woke") == 3
    assert "MISSED" not in said
    assert "Next, GPU 1: " in said


def test_services_that_must_answer_at_once_keep_their_replicas():
    said = report(
        {
            "pool": True,
            "need_gib": 30,
            "wake_s": 60,
            "targets": [{"metric": "latency", "quantile": 0.95, "limit_s": 20}],
        }
    )

    assert said.count("keeps a warm replica") == 3


SHARING = {
    "pool": True,
    "need_gib": 8,
    "wake_s": 2,
    "targets": [{"metric": "latency", "quantile": 0.95, "limit_s": 120}],
}


def test_the_placement_is_written_as_a_pod_for_each_gpu(tmp_path):
    found = pool_report(small_models({**SHARING, "model": "Qwen/Qwen3-4B"}), Settings(), lambda text, share: None)

    said = write_pool_files(found, tmp_path / "pool")

    names = sorted(file.name for file in (tmp_path / "pool").iterdir())
    assert names[0] == "Dockerfile"
    assert len(names) == 2
    assert "3 models take turns" in (tmp_path / "pool" / names[1]).read_text()
    assert "Build the image first" in said


def test_own_replicas_are_replayed_and_written_with_their_router(tmp_path):
    declared = small_models({**SHARING, "model": "Qwen/Qwen3-4B"})
    found = pool_report(declared, Settings(), lambda text, share: None, own_replicas=True)

    write_pool_files(found, tmp_path)

    assert "Next, GPU 1: " in "\n".join(found.lines)
    text = next(tmp_path.glob("pool-*.yaml")).read_text()
    assert "own replicas, at most 16" in text
    assert "kind: ScaledObject" in text


def test_own_replicas_ask_the_prometheus_of_the_cluster_file(tmp_path):
    # the same file serves `emit`: what it says of workloads is not read here
    said = tmp_path / "cluster.yaml"
    said.write_text(
        "prometheus_url: http://prometheus.observe.svc:9091\nprometheus_auth: cluster/prom\n"
        "rule_labels: {release: observe}\nworkloads: {prod/other: {server: vllm}}\n"
    )
    declared = small_models({**SHARING, "model": "Qwen/Qwen3-4B"})
    found = pool_report(declared, Settings(), lambda text, share: None, own_replicas=True)

    write_pool_files(found, tmp_path / "pool", pool_facts(said))

    objects = [one for one in yaml.safe_load_all(next((tmp_path / "pool").glob("*.yaml")).read_text()) if one]
    triggers = [one["spec"]["triggers"][0] for one in objects if one["kind"] == "ScaledObject"]
    assert {trigger["metadata"]["serverAddress"] for trigger in triggers} == {"http://prometheus.observe.svc:9091"}
    assert {trigger["authenticationRef"]["name"] for trigger in triggers} == {"prom"}
    (monitor,) = (one for one in objects if one["kind"] == "PodMonitor")
    assert monitor["metadata"]["labels"]["release"] == "observe"


def test_a_cluster_file_that_wants_another_autoscaler_is_refused(tmp_path):
    said = tmp_path / "cluster.yaml"
    said.write_text("autoscaler: hpa\n")

    with pytest.raises(UsageError, match=r"cluster\.yaml: autoscaler: hpa"):
        pool_facts(said)


@pytest.mark.parametrize("more", [[], ["--pool"], ["--pool", "--own-replicas"]])
def test_a_cluster_file_goes_with_written_own_replicas(tmp_path, more):
    said = tmp_path / "cluster.yaml"
    said.write_text("prometheus_url: http://prometheus.observe.svc:9091\n")

    answer = CliRunner().invoke(command, ["--demo", "three-small-models", *more, "--cluster", str(said)])

    assert "--emit-pool DIR" in str(answer.exception)


def test_own_replicas_without_a_pool_are_refused():
    answer = CliRunner().invoke(command, ["--demo", "three-small-models", "--own-replicas"])

    assert "--own-replicas is a rule of --pool" in str(answer.exception)


def test_what_no_file_can_carry_is_named_before_anything_is_written(tmp_path):
    declared = {**SHARING, "model": None, "sleep_level": 2}
    found = pool_report(small_models(declared), Settings(), lambda text, share: None)

    with pytest.raises(UsageError, match=r"declare model:.*sends level 1 only"):
        write_pool_files(found, tmp_path / "pool")
    assert not (tmp_path / "pool").exists()


def test_files_are_written_only_of_a_pool():
    answer = CliRunner().invoke(command, ["--demo", "three-small-models", "--emit-pool", "out"])

    assert "add --pool" in str(answer.exception)


def test_nobody_is_pooled_without_the_owners_permission():
    with pytest.raises(InputError, match="pool: true"):
        report({})


def test_a_trace_has_no_models_that_could_take_turns(tmp_path):
    (tmp_path / "trace.parquet").write_bytes(b"")

    answer = CliRunner().invoke(command, ["--demo-trace", str(tmp_path / "trace.parquet"), "--pool"])

    assert "--pool needs services with a model each" in str(answer.exception)
