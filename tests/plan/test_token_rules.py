"""A plan scales a language model's service by tokens where that is cheaper, and its files do what was proved."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from benchmarks.enact import ProvedFleet, row_of
from pydantic import TypeAdapter
from tests.fleets import FleetRows, few_machines

from trimtab.deployment.effects import SetReplicaPolicy
from trimtab.emit.manifests.emission import Withheld
from trimtab.emit.manifests.facts import SERVERS, NodeMaker
from trimtab.emit.manifests.plan_files import emit_plan
from trimtab.fleet.token_work import TokenWork
from trimtab.levers import autoscaling
from trimtab.pipeline import PlanningInput, plan_and_prove
from trimtab.pipeline.afterwards import emit_facts
from trimtab.pipeline.auditing import SEED
from trimtab.plan.proof.proof_window import prove
from trimtab.policies.scaling import HpaPolicy

NAME = "chat/api"
LE_S = (1.0, 2.0, 4.0, 8.0, float("inf"))
DAYS = 9
REQUESTS = 3_000


def times_as_long(hour):
    """How long requests of an hour are beside the mean: as many come at all hours, and those of the day are longer."""
    return 1 + 0.85 * math.sin(2 * math.pi * (hour % 24) / 24)


def bundle(counters=True):
    """Twenty GPUs, busiest where requests are longest; without counters, where most come."""
    rows = FleetRows(DAYS)
    for number in range(20):
        rows.node(f"n{number}", "g5.xlarge").hold(NAME, f"n{number}", [0], owner_kind="Deployment")
        rows.use(NAME, f"n{number}", 0, range(DAYS * 24), sm=lambda hour: 0.3 * times_as_long(hour))

    def requests(hour):
        return REQUESTS if counters else REQUESTS * times_as_long(hour)

    rows.demand(
        NAME, requests, 20, LE_S, lambda hour: [requests(hour), 0, 0, 0, 0],
        running=lambda hour: 100.0 * times_as_long(hour),
    )  # fmt: skip
    for hour, row in enumerate(rows.rows["demand"]):
        mean = times_as_long(hour) if counters else 1.0
        row |= {"completed": row["arrivals"], "waiting_mean": 0.0}
        row |= {"input_tokens_mean": 500.0 * mean, "output_tokens_mean": 100.0 * mean}
        prompts, answers = row["arrivals"] * 500.0 * mean, row["arrivals"] * 100.0 * mean
        row |= {"prefill_s": prompts * 1e-4, "decode_s": answers * 1.5e-3}
        if counters:
            row |= {"input_tokens": prompts, "output_tokens": answers}
    latency = {"metric": "latency", "quantile": 0.95, "limit_s": 8}
    rows.workloads = {NAME: {"cold_start_s": 60, "targets": [latency], "min_replicas": 1}}
    return rows.bundle()


def proved(history):
    made = plan_and_prove(PlanningInput(bundle=history, catalog=few_machines()))
    planned, opened = made.planned, made.opened
    facts = emit_facts(planned.plan, history, planned.fleet, opened.market, opened.settings)
    proven = prove(planned, opened.proof, opened.market, opened.settings, seed=SEED)
    return ProvedFleet(name="chat", bundle=history, planned=planned, proven=proven, facts=facts)


@pytest.fixture(scope="module")
def counted():
    return proved(bundle())


@pytest.fixture(scope="module")
def uncounted():
    return proved(bundle(counters=False))


def scaling(fleet):
    (effect,) = [one for _, one in fleet.planned.deployments[NAME].changes if isinstance(one, SetReplicaPolicy)]
    return effect


def evidence(fleet):
    return {
        row.what.removeprefix(f"{NAME}: "): row.value
        for action in fleet.planned.plan.actions
        for row in action.evidence
    }


def test_a_service_whose_requests_differ_in_length_is_scaled_by_their_tokens(counted):
    effect = scaling(counted)

    assert effect.tokens == counted.planned.cases[NAME].law.counted
    assert "token work per replica" in effect.describe()
    assert all(row.kept for row in counted.proven.proof.targets)


def test_its_record_says_what_counting_requests_would_have_taken(counted):
    said = evidence(counted)["cheapest rule that counts requests and keeps the targets"]
    other, own = (float(part.split()[0].replace(",", "")) for part in said.split(", this one "))

    assert own < other


def test_each_rule_is_offered_told_of_tokens_and_told_of_requests(counted, uncounted):
    by_tokens = autoscaling.propose(counted.planned.cases[NAME])
    by_requests = autoscaling.propose(uncounted.planned.cases[NAME])

    assert [rule.policy for rule in by_tokens] == 2 * [rule.policy for rule in by_requests]
    assert {rule.tokens for rule in by_requests} == {None}


def test_the_record_of_a_server_that_counts_no_tokens_says_why_its_rule_counts_requests(uncounted):
    assert scaling(uncounted).tokens is None
    assert "no counter of tokens was read" in evidence(uncounted)["its rule counts requests and not tokens"]


def test_the_files_are_read_back_as_what_was_proved(counted, tmp_path):
    row = row_of(counted, NodeMaker.KARPENTER, tmp_path)

    assert row.off_frac == pytest.approx(0.0, abs=1e-3)
    assert row.targets_equal == row.targets > 0
    assert row.faults == ()
    rules = next(Path(tmp_path).glob("monitoring/**/*.rules.yaml")).read_text(encoding="utf-8")
    assert "vllm:prompt_tokens_total" in rules
    assert "vllm:generation_tokens_total" in rules
    (scaler,) = [yaml.safe_load(path.read_text()) for path in Path(tmp_path).glob("scaling/**/*.scaledobject.yaml")]
    assert scaler["spec"]["triggers"][0]["metadata"]["query"].startswith("trimtab:")


def test_no_rule_on_tokens_is_written_for_a_server_that_exports_none(counted):
    (known,) = counted.facts.workloads
    served = replace(known, service=replace(known.service, signals=SERVERS["triton"], server_is_known=True))

    emission = emit_plan(counted.planned.plan, replace(counted.facts, workloads=(served,)))

    assert not [file for file in emission.files if file.kind == "ScaledObject"]
    withheld = [one.reason for one in emission.withheld if isinstance(one, Withheld)]
    assert any("triton exports no counters of them" in reason for reason in withheld)


def test_a_kept_plan_keeps_what_each_token_takes():
    effect = SetReplicaPolicy(
        policy=HpaPolicy(0.7, 1, 8), metric="tokens", tokens=TokenWork(input_req=1e-4, output_req=2e-3, cached_req=0.0)
    )
    kept = TypeAdapter(SetReplicaPolicy)

    assert kept.validate_json(kept.dump_json(effect)) == effect
    assert kept.validate_python({"policy": effect.policy._asdict(), "metric": "tokens"}).tokens is None
