from datetime import date, timedelta

import pytest
from tests.kube_cluster import dump
from tests.tables.bundles import END, META, START, allocation, node, tables, usage

from trimtab.catalog import load_catalog
from trimtab.fleet.market import Market
from trimtab.fleet.settings import Settings
from trimtab.sources.bundle_doctor import bundle_findings, refuses
from trimtab.sources.kubernetes.objects import Objects
from trimtab.sources.kubernetes.snapshot import collect_snapshot
from trimtab.sources.prometheus.doctor import FindingStatus
from trimtab.tables.bundle import memory_bundle


@pytest.fixture
def market():
    return Market(catalog=load_catalog(), at=date(2026, 9, 1), max_term_years=3, assumptions=Settings().assumptions)


def judged(market, meta=META, **rows):
    bundle = memory_bundle(tables(**rows), meta)
    found = bundle_findings(bundle, market)
    return {one.what: one for one in found}, refuses(found)


def test_a_bundle_with_readings_and_prices_is_taken(market):
    found, refused = judged(market, nodes=[node(gpu_count=1)], gpu_usage=[usage(hour) for hour in range(48)])

    assert not refused
    assert found["GPU metrics"].status is FindingStatus.OK
    assert found["sm_active"].status is FindingStatus.OK
    assert found["tensor_active"].status is FindingStatus.WEAK
    assert found["prices"].status is FindingStatus.OK


def test_nodes_without_a_type_or_a_rate_are_named_with_the_cure(market):
    owned = {"provider": "owned", "instance_type": "8x-H100", "region": "on-prem", "capacity_type": "owned"}
    found, refused = judged(market, nodes=[node(), node("n1", **owned), node("n2", instance_type="unknown")])

    assert not refused
    assert found["prices"].status is FindingStatus.WEAK
    assert found["instance types"].detail == "2 of 3 node lives"
    assert found["prices"].detail.startswith("2 of 3 kind(s)")
    assert "--prices" in found["prices"].fix


def test_a_bundle_of_which_no_node_has_a_price_is_refused_unless_a_bill_names_one(market):
    nodes = [node(instance_type="mystery.8x")]
    charge = {"ChargePeriodStart": START, "ChargePeriodEnd": END, "BilledCost": 9.0, "ResourceId": nodes[0]["node"]}

    assert judged(market, nodes=nodes)[1]
    assert judged(market, nodes=nodes, costs=[{**charge, "ResourceId": "i-other"}])[1]
    assert not judged(market, nodes=nodes, costs=[charge])[1]


def test_a_short_history_says_how_to_have_a_longer_one(market):
    day = META.model_copy(update={"end": START + (END - START) / 2})
    found, refused = judged(market, day)

    assert refused
    assert "--repeat" in found["history"].fix


def test_a_snapshot_is_taken_and_says_that_nothing_is_judged(market):
    objects = Objects()
    objects.take(dump())
    made = collect_snapshot(objects, START, END, source="a dump")
    found = bundle_findings(memory_bundle(made.tables, made.meta), market)

    assert not refuses(found)
    metrics = found[0]
    assert (metrics.status, metrics.detail) == (FindingStatus.MISSING, "none for 8 GPUs")
    assert "no workload is judged" in metrics.cost


def test_teams_and_waits_that_nobody_tells_are_weak(market):
    found, _ = judged(market, allocations=[allocation(team=None)])

    assert found["teams"].status is FindingStatus.WEAK
    assert found["runs and waits"].detail == "no runs"


def test_a_record_of_spot_is_enough_once_it_decides_more_than_the_stated_odds(market):
    place = {"provider": "aws", "instance_type": "p3.2xlarge", "region": "us-east-1", "zone": None}
    hourly = [
        {**place, "at": START + timedelta(hours=hour), "event": "launched", "notice_s": None, "spot_usd_hr": None}
        for hour in range(12)
    ]

    none, short, long = (judged(market, spot_events=hourly[:hours])[0]["spot record"] for hours in (0, 3, 12))

    assert (none.status, short.status, long.status) == (FindingStatus.WEAK, FindingStatus.WEAK, FindingStatus.OK)
    assert "one NodePool with both" in none.fix
    assert "the record counts 67%" in long.detail


def test_gpu_models_that_no_catalog_has_are_named(market):
    found, _ = judged(market, nodes=[node(), node("n1", gpu="Riva X900")])

    assert found["GPU models"].status is FindingStatus.WEAK
    assert "Riva X900" in found["GPU models"].detail
