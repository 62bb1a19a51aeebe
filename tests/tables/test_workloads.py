from contextlib import suppress

import pytest
import yaml
from hypothesis import given, strategies as st

from trimtab.errors import BundleError
from trimtab.tables.workloads import (
    DeclaredTarget,
    TargetMetric,
    WorkloadKind,
    Workloads,
    WorkloadSpec,
    parse_workloads,
    workloads_text,
)

TEXT = """
version: 1
workloads:
  "prod/*": {team: platform, interruptible: false}
  prod/chat:
    kind: serving
    team: chat
    model: meta-llama/Llama-3.1-8B
    targets:
      - {metric: ttft, quantile: 0.95, limit_s: 0.5}
      - {metric: throughput, limit_frac: 0.9}
    checkpoint: {interval_s: 600, save_s: 20, restore_s: 60}
"""


def test_an_exact_key_overrides_a_pattern_field_by_field():
    spec = parse_workloads(TEXT).spec("prod/chat")

    assert spec.kind is WorkloadKind.SERVING
    assert spec.team == "chat"
    assert spec.interruptible is False
    assert spec.targets is not None
    assert spec.targets[0].metric is TargetMetric.TTFT


def test_what_nobody_declared_is_none():
    assert parse_workloads(TEXT).spec("dev/notebook") == WorkloadSpec()


def test_every_misspelt_key_is_reported_with_its_path_and_near_matches():
    text = (
        "workloads:\n  prod/chat: {modle: x, checkpoint: {intervall_s: 3}, "
        "targets: [{metric: ttft, limit_s: 1, quantil: 0.9}]}\n"
    )

    with pytest.raises(BundleError) as raised:
        parse_workloads(text)

    message = str(raised.value)
    assert "did you mean model" in message
    assert "did you mean interval_s" in message
    assert "did you mean quantile" in message
    assert "workloads.prod/chat.targets.0.quantil" in message


@pytest.mark.parametrize(
    ("body", "part"),
    [
        ("kind: servin", "serving"),
        ("{min_replicas: 5, max_replicas: 2}", "above max_replicas"),
        ("targets: [{metric: ttft}]", "limit_s"),
        ("targets: [{metric: throughput, limit_s: 3}]", "limit_frac"),
        ("cold_start_s: .nan", "finite"),
        ("need_gib: -1", "greater than 0"),
    ],
)
def test_a_value_that_makes_no_sense_is_refused(body, part):
    with pytest.raises(BundleError, match=part):
        parse_workloads(f"workloads:\n  a/b:\n    {body}\n")


specs = st.builds(
    WorkloadSpec,
    kind=st.sampled_from(WorkloadKind),
    team=st.none() | st.text(min_size=1),
    targets=st.lists(
        st.builds(DeclaredTarget, metric=st.just(TargetMetric.TTFT), limit_s=st.floats(0.001, 1e6)), max_size=2
    ).map(tuple),
    interruptible=st.booleans(),
    need_gib=st.none() | st.floats(0.1, 1e4),
)


@given(st.dictionaries(st.text(min_size=1), specs, max_size=4))
def test_the_text_of_any_workloads_reads_back(declared):
    given_file = Workloads(workloads=declared)

    assert parse_workloads(workloads_text(given_file)) == given_file


@given(st.text())
def test_any_text_is_read_or_refused_on_purpose(text):
    with suppress(BundleError):
        parse_workloads(text)


@pytest.mark.parametrize(
    ("wakes_on", "said"),
    [
        ({"query": "sum(vllm:num_requests_waiting)", "hold_s": 60}, "vllm:num_requests_waiting, which replicas export"),
        ({"query": "avg(DCGM_FI_DEV_GPU_UTIL)", "hold_s": 60}, "DCGM_FI_DEV_GPU_UTIL"),
        ({"query": "  ", "hold_s": 60}, "query is empty"),
        ({"query": "sum(gateway)", "hold_s": 0}, "greater than 0"),
        ({"query": "sum(gateway)"}, "hold_s"),
    ],
)
def test_what_wakes_a_service_must_outlive_its_replicas_and_say_how_long_it_holds(wakes_on, said):
    text = yaml.safe_dump({"workloads": {"prod/api": {"min_replicas": 0, "wakes_on": wakes_on}}})

    with pytest.raises(BundleError) as error:
        parse_workloads(text)

    assert said in str(error.value)


def test_a_queue_that_stands_before_the_replicas_may_wake_a_service():
    wakes_on = {"query": 'sum(rabbitmq_queue_messages_ready{queue="jobs"})', "hold_s": 86400}
    text = yaml.safe_dump({"workloads": {"prod/api": {"min_replicas": 0, "wakes_on": wakes_on}}})

    assert parse_workloads(text).spec("prod/api").wakes_on.hold_s == 86400
