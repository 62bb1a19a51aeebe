"""`trimtab fit` with prefill and decode apart: shown beside one place, pasted, written as objects."""

import json

import pytest
import yaml
from click.testing import CliRunner

from trimtab.cli.fit import command
from trimtab.errors import UsageError

LONG_PROMPTS = ("llama-3.1-70b", "--serve", "--rate", "50", "--input", "8192", "--output-tokens", "512")
LIMITS = ("--ttft", "2s", "--tpot", "25ms", "--gpu", "B200-SXM-180GB", "--provider", "aws")


def run(*arguments):
    return CliRunner().invoke(command, [*arguments])


@pytest.fixture(scope="module")
def long_prompts():
    return json.loads(run(*LONG_PROMPTS, *LIMITS, "-o", "json").output)


def test_pools_that_cost_less_are_said_and_pasted(long_prompts):
    pools = long_prompts["disaggregated"]

    assert pools["wins"]
    assert pools["usd_per_mtok"] < pools["together_usd_per_mtok"]
    assert pools["usd_per_mtok_low"] < pools["usd_per_mtok"] < pools["usd_per_mtok_high"]
    assert "kv_producer" in long_prompts["paste"]
    assert "kv_consumer" in long_prompts["paste"]


def test_pools_keep_the_limits_in_their_replay(long_prompts):
    pools = long_prompts["disaggregated"]

    assert pools["ttft_p95_ms"] <= 2000
    assert pools["tpot_ms"] <= 25
    assert pools["prefill"]["busy_frac"] <= 1
    assert pools["transfer_source"].startswith("aws/karpenter")


def test_the_answer_says_why_one_place_is_cheaper():
    told = json.loads(run("llama-3.1-8b", "--serve", "--rate", "20", "--provider", "aws", "-o", "json").output)

    assert not told["disaggregated"]["wins"]
    assert "more expensive than together" in told["disaggregated"]["why"]
    assert "kv_producer" not in told["paste"]


def test_objects_have_both_roles(tmp_path):
    found = run(*LONG_PROMPTS, *LIMITS, "--emit-pools", str(tmp_path / "pools"), "-o", "json")
    pools = json.loads(found.output)["disaggregated"]
    sets = list(yaml.safe_load_all((tmp_path / "pools" / "leader-worker-sets.yaml").read_text()))
    graph = yaml.safe_load((tmp_path / "pools" / "dynamo-graph.yaml").read_text())

    scalers = {
        one["metadata"]["labels"]["llm-d.ai/role"]: one["spec"]
        for one in yaml.safe_load_all((tmp_path / "pools" / "scaled-objects.yaml").read_text())
    }
    by_role = {one["metadata"]["labels"]["llm-d.ai/role"]: one["spec"]["replicas"] for one in sets}
    services = graph["spec"]["services"]
    assert by_role == {role: pools[role]["replicas"] for role in ("prefill", "decode")}
    for role, scaler in scalers.items():
        assert scaler["maxReplicaCount"] == pools[role]["replicas"]
        assert scaler["scaleTargetRef"]["name"] in {one["metadata"]["name"] for one in sets}
    # Little's law: 50 requests/s over the pool, each for 511 steps of at most 25 ms
    running = float(scalers["decode"]["triggers"][0]["metadata"]["threshold"])
    assert running <= 50 / pools["decode"]["replicas"] * 511 * 0.025
    assert services["VllmPrefillWorker"]["replicas"] == pools["prefill"]["replicas"]
    assert services["VllmDecodeWorker"]["subComponentType"] == "decode"
    assert "Frontend" in services


def test_pools_without_a_rate_are_refused(tmp_path):
    found = run("llama-3.1-8b", "--serve", "--concurrency", "8", "--emit-pools", str(tmp_path / "pools"))

    assert isinstance(found.exception, UsageError)
    assert "a rate and --serve are needed" in str(found.exception)


def test_without_a_published_network_the_cure_is_named():
    asked = ("llama-3.1-8b", "--serve", "--rate", "20", "--gpu", "RTX-4090", "--provider", "runpod")
    told = json.loads(run(*asked, "-o", "json").output)

    assert not told["disaggregated"]["found"]
    assert "--kv-gb-s" in " ".join(told["disaggregated"]["because"])


def test_a_quantile_is_kept_by_the_pools_too():
    told = json.loads(run(*LONG_PROMPTS, *LIMITS, "--percentile", "99", "-o", "json").output)["disaggregated"]

    assert told["found"]
    assert told["tail_percentile"] == 99
    assert told["ttft_p95_ms"] < told["ttft_tail_ms"] <= 2000
    assert told["tpot_tail_ms"] <= 25
