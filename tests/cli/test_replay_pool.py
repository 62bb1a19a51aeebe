"""`trimtab replay --pool`: what it says of services whose owners let their models take turns."""

from __future__ import annotations

from dataclasses import replace

import pytest
from click.testing import CliRunner

from trimtab.cli.replay import command
from trimtab.cli.replay.pool import pool_report
from trimtab.errors import InputError
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
    return "\n".join(pool_report(small_models(declared), Settings(), lambda text, share: None))


def test_services_with_loose_limits_share_a_gpu_and_keep_them():
    said = report(
        {"pool": True, "need_gib": 8, "wake_s": 2, "targets": [{"metric": "latency", "quantile": 0.95, "limit_s": 120}]}
    )

    assert "3 services could hold 1.0 GPUs instead of 3.0" in said
    assert said.count(": kept; woke") == 3
    assert "MISSED" not in said


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


def test_nobody_is_pooled_without_the_owners_permission():
    with pytest.raises(InputError, match="pool: true"):
        report({})


def test_a_trace_has_no_models_that_could_take_turns(tmp_path):
    (tmp_path / "trace.parquet").write_bytes(b"")

    answer = CliRunner().invoke(command, ["--demo-trace", str(tmp_path / "trace.parquet"), "--pool"])

    assert "--pool needs services with a model each" in str(answer.exception)
