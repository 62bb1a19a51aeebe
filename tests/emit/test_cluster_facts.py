"""The facts that a fleet's own history tells are those that its plan was made on."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from tests.emit.cluster_example import P4D

from trimtab.catalog import load_catalog
from trimtab.deployment.deployment import AS_IT_IS
from trimtab.deployment.placement import HomeNodes, resolve
from trimtab.emit.manifests.cluster_facts import facts_of_fleet, with_cluster
from trimtab.emit.manifests.facts import ContainerStart, EmitFacts, GpuContainer, KueueFlavor, WorkloadFacts
from trimtab.emit.manifests.pool_specs import PlacedWorkload
from trimtab.errors import InputError
from trimtab.fleet.build import build_fleet
from trimtab.fleet.market import Market
from trimtab.fleet.model import JobsObservation
from trimtab.fleet.settings import Settings
from trimtab.pipeline import open_demo
from trimtab.provenance import Basis, Estimate
from trimtab.replay.outcomes.evaluate import law_of
from trimtab.sources.kubernetes.pods import gpu_containers_of

SETTINGS = Settings()
END = datetime(2026, 11, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def fleet():
    return build_fleet(open_demo("quad-a100"), SETTINGS)


@pytest.fixture(scope="module")
def facts(fleet):
    market = Market(
        catalog=load_catalog(), at=fleet.window.end.date(), max_term_years=1, assumptions=SETTINGS.assumptions
    )
    return facts_of_fleet(fleet, SETTINGS, market, owner_kinds={}, pools=[*fleet.usage.pools, P4D])


def test_a_service_scales_on_the_capacity_that_was_replayed(fleet, facts):
    served = [one for one in facts.workloads if one.service is not None]

    assert served
    for one in served:
        assert one.service.capacity_req_s == law_of(fleet.workload(one.name), SETTINGS).capacity_req_s


def test_every_workload_has_an_owner_and_at_least_one_replica(fleet, facts):
    assert [one.name for one in facts.workloads] == [one.name for one in fleet.workloads]
    assert all(one.replicas >= 1 and one.owner_kind for one in facts.workloads)


def test_pools_carry_the_rates_of_the_market(facts):
    assert facts.priced(P4D).rate_micro_usd_hr > 0
    assert facts.priced(P4D).gpus_per_node == 8


@pytest.mark.parametrize(
    ("labels", "series"),
    [
        (["pod", None, "pod"], ("pod", "namespace")),
        (["exported_pod", "exported_pod", "pod", None], ("exported_pod", "exported_namespace")),
        ([None], ("pod", "namespace")),
    ],
)
def test_gpu_series_are_asked_for_by_the_labels_that_they_were_read_with(labels, series):
    """The GPU operator's ServiceMonitor has `honorLabels: false`: the workload's pod is then `exported_pod`."""
    told = with_cluster(
        EmitFacts(), END, nodes=(), held=(), pods=(), scalers=(), devices=[{"pod_label": label} for label in labels]
    )

    assert (told.pod_label, told.namespace_label) == series


def test_a_kueue_flavor_has_the_levels_that_all_of_its_nodes_tell():
    block, rack = "cloud.provider.com/topology-block", "cloud.provider.com/topology-rack"
    node = {
        "gpu_count": 8, "end": None, "provider": "aws", "instance_type": "p4d.24xlarge", "region": "us-east-1",
        "capacity_type": "on-demand",
    }  # fmt: skip
    nodes = [
        {**node, "node": "a", "labels": {"pool": "p4d", block: "1", rack: "1"}},
        {**node, "node": "b", "labels": {"pool": "p4d", block: "1"}},
        {**node, "node": "gone", "labels": {"pool": "p4d"}, "end": END - timedelta(days=1)},
        {**node, "node": "cpu", "labels": {"pool": "cpu"}, "gpu_count": 0},
    ]
    queue = {"kind": "ClusterQueue", "name": "research"}
    queues = [
        {**queue, "flavor": "p4d", "flavor_labels": {"pool": "p4d"}},
        {**queue, "flavor": "anywhere", "flavor_labels": {}},
        {**queue, "flavor": "cpu", "flavor_labels": {"pool": "cpu"}},
        {**queue, "flavor": None, "flavor_labels": None},
    ]

    told = with_cluster(EmitFacts(), END, nodes=nodes, held=(), pods=(), scalers=(), queues=queues)

    assert told.kueue_flavors == (KueueFlavor(name="p4d", levels=(block,), nodes=("a", "b")),)


def with_pod(spec):
    """What is known of a service whose newest pod has this spec."""
    row = dict.fromkeys(["tolerations", "node_selector", "affinity", "selector"]) | {
        "workload": "prod/chat",
        "pod": "chat-1",
        "created": END,
        "gpu_containers": gpu_containers_of(spec),
    }
    told = with_cluster(
        EmitFacts(workloads=(WorkloadFacts(name="prod/chat"),)), END, nodes=(), held=(), pods=[row], scalers=()
    )
    return told.workloads[0]


def test_the_containers_that_ask_for_gpus_are_told_by_the_newest_pod():
    spec = {
        "containers": [
            {"name": "sidecar", "resources": {"limits": {"cpu": "1"}}},
            {
                "name": "model",
                "resources": {"limits": {"nvidia.com/gpu": "2"}, "requests": {"nvidia.com/gpu": "2", "cpu": "4"}},
            },
        ]
    }
    found = with_pod(spec).gpu_containers

    assert found == (GpuContainer(place=1, in_requests=True, started_by=ContainerStart.IMAGE),)


@pytest.mark.parametrize(
    ("words", "started_by"),
    [
        ({"args": ["--model", "m"]}, ContainerStart.ARGS),
        ({"command": ["vllm", "serve", "m"]}, ContainerStart.COMMAND),
        (
            {"command": ["python3", "-m", "vllm.entrypoints.openai.api_server"], "args": ["--model", "m"]},
            ContainerStart.ARGS,
        ),
        ({"command": ["/bin/bash", "-c"], "args": ["exec vllm serve m"]}, ContainerStart.SHELL),
        ({"args": ["sh", "-c", "vllm serve m"]}, ContainerStart.SHELL),
        ({"command": ["/app/start"], "args": ["m"]}, ContainerStart.PROGRAM),
        ({}, ContainerStart.IMAGE),
    ],
)
def test_where_a_container_says_how_its_program_starts_is_known(words, started_by):
    spec = {"containers": [{"name": "model", "resources": {"limits": {"nvidia.com/gpu": "2"}}, **words}]}

    (container,) = with_pod(spec).gpu_containers

    assert container.started_by is started_by


def test_a_bundle_of_before_says_nothing_of_how_programs_start():
    row = dict.fromkeys(["tolerations", "node_selector", "affinity", "selector"]) | {
        "workload": "prod/chat", "pod": "chat-1", "created": END, "gpu_containers": "0:limits",
    }  # fmt: skip
    facts = EmitFacts(workloads=(WorkloadFacts(name="prod/chat"),))

    told = with_cluster(facts, END, nodes=(), held=(), pods=[row], scalers=())

    assert told.workloads[0].gpu_containers == (GpuContainer(place=0),)


@pytest.mark.parametrize(
    "cells",
    [
        {"gpu_containers": "=HYPERLINK(1):limits"},
        {"gpu_containers": "0:limits:sudo"},
        {"gpu_claims": '"'},
        {"gpu_claims": "[5]"},
        {"gpu_claims": '[{"place": 1}]'},
        {"gpu_claims": '[{"place": 1e400, "name": "a", "api_version": "v1"}]'},
        {"gpu_claims": "[" * 20_000},
    ],
)
def test_cells_of_pods_that_no_collect_writes_are_refused_by_name(cells):
    columns = ("tolerations", "node_selector", "affinity", "selector", "gpu_containers", "gpu_claims")
    row = {**dict.fromkeys(columns), "workload": "prod/chat", "pod": "chat-0", "created": END, **cells}

    with pytest.raises(InputError, match=next(iter(cells))):
        with_cluster(
            EmitFacts(workloads=(WorkloadFacts(name="prod/chat"),)), END, nodes=(), held=(), pods=[row], scalers=()
        )


def runs(*each):
    """Runs of (submitted, started, ended, pods of 8 GPUs)."""
    submit_s, start_s, end_s, pods = (np.array(column) for column in zip(*each, strict=True))
    return JobsObservation(
        submit_s=submit_s.astype(float),
        start_s=start_s.astype(float),
        end_s=end_s.astype(float),
        gpus=8.0 * pods,
        pods=pods,
        cut=np.zeros(len(pods), dtype=bool),
    )


def test_runs_that_queued_count_as_if_each_had_started_when_it_came():
    queued = runs((0, 0, 1_000, 4), (10, 1_000, 2_000, 4), (20, 2_000, 3_000, 4), (5_000, 5_000, 5_100, 1))

    assert queued.most_pods() == 12
    assert queued.part(np.array([], dtype=int)).most_pods() == 0


def test_runs_that_last_longer_or_start_first_meet_more_of_those_that_follow():
    in_turn = runs((0, 0, 1_000, 4), (1_000, 1_000, 2_000, 4), (2_000, 2_000, 3_000, 4))

    assert in_turn.most_pods() == 4
    assert in_turn.most_pods(startup_s=60.0) == 8
    assert in_turn.most_pods(times=2.5) == 12


def test_runs_that_meet_after_the_plans_window_count_too(fleet):
    market = Market(catalog=load_catalog(), at=END.date(), max_term_years=1, assumptions=SETTINGS.assumptions)
    one = replace(fleet.workloads[0], jobs=runs((0, 0, 1_000, 4)))
    later = replace(one, jobs=runs((0, 0, 1_000, 4), (10, 10, 1_000, 4), (20, 20, 1_000, 4)))
    fleets = [replace(fleet, workloads=(workload,)) for workload in (one, later)]

    known = [
        facts_of_fleet(fleets[0], SETTINGS, market, owner_kinds={}, pools=(), later=after).workloads[0]
        for after in (None, fleets[1])
    ]

    assert [facts.pods_if_none_waited for facts in known] == [4, 12]


def test_replicas_of_the_whole_history_are_those_that_an_autoscaler_falls_back_to(fleet):
    market = Market(catalog=load_catalog(), at=END.date(), max_term_years=1, assumptions=SETTINGS.assumptions)
    one = next(workload for workload in fleet.workloads if workload.service is not None)
    grown = replace(one, service=replace(one.service, replicas=one.service.replicas * 3))
    fleets = [replace(fleet, workloads=(workload,)) for workload in (one, grown)]

    known = [
        facts_of_fleet(fleets[0], SETTINGS, market, owner_kinds={}, pools=(), later=after).workloads[0].replicas
        for after in (None, fleets[1])
    ]

    assert known[1] == 3 * known[0] > 0


def test_a_pool_for_runs_holds_all_that_may_start_at_once():
    home = HomeNodes(pool=P4D, gpu="A100-SXM4-40GB", gpus_per_node=8, gpus_per_pod=8.0)
    known = WorkloadFacts(name="ml/train", owner_kind="Job", pool=P4D, gpus_per_node=8, gpus_per_pod=8.0, replicas=4)
    here = PlacedWorkload(known=known, deployment=AS_IT_IS, place=resolve(home, AS_IT_IS), actions=(), waits={})

    queued = replace(here, known=replace(known, pods_if_none_waited=15))
    slower = replace(
        queued, place=replace(queued.place, speed=Estimate(value=0.6, low=0.5, high=0.7, basis=Basis.MODELLED))
    )

    assert here.burst_nodes == 8
    assert queued.burst_nodes == 30
    assert slower.burst_nodes == 60
