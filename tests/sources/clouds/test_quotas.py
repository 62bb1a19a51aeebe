"""Quotas of the clouds in whole nodes, and what they stop."""

import json
import tomllib
from datetime import timedelta

import pytest
from tests.sources.answering_server import answering
from tests.tables.bundles import END, META, START, allocation, node, tables

from trimtab.catalog import CapacityType, load_catalog
from trimtab.errors import InputError, SourceError
from trimtab.fleet.reach import quotas_of
from trimtab.sources.bundle_doctor import quota_findings
from trimtab.sources.clouds import NodeQuota, quotas_text, read_quotas, settings_text
from trimtab.sources.clouds.aws import aws_quotas
from trimtab.sources.clouds.azure import azure_quotas
from trimtab.sources.clouds.google import google_quotas
from trimtab.sources.prometheus.doctor import FindingStatus
from trimtab.tables.arrow import table_from_rows
from trimtab.tables.bundle import memory_bundle

CATALOG = load_catalog()
AWS_QUOTAS = [
    {"QuotaCode": "L-417A185B", "QuotaName": "Running On-Demand P instances", "Value": 192.0},
    {"QuotaCode": "L-DB2E81BA", "QuotaName": "Running On-Demand G and VT instances", "Value": 10.0},
    {"QuotaCode": "L-7212CCBC", "QuotaName": "All P4, P3 and P2 Spot Instance Requests", "Value": 96.0},
    {"QuotaCode": "L-C4BD4855", "QuotaName": "All P5 Spot Instance Requests", "Value": 0.0},
    {"QuotaCode": "L-1216C47A", "QuotaName": "Running On-Demand Standard (A, C, D) instances", "Value": 5.0},
    {"QuotaName": "no code"},
]


def aws(asked):
    later = json.loads(asked.body).get("NextToken") == "more"
    page = {"Quotas": AWS_QUOTAS[2:]} if later else {"Quotas": AWS_QUOTAS[:2], "NextToken": "more"}
    return 200, {"Content-Type": "application/x-amz-json-1.1"}, json.dumps(page).encode()


def google(asked):
    if asked.path.endswith("/regions"):
        quotas = [
            {"metric": "NVIDIA_L4_GPUS", "limit": 16.0, "usage": 4.0},
            {"metric": "PREEMPTIBLE_NVIDIA_L4_GPUS", "limit": 3.0, "usage": 0.0},
            {"metric": "CPUS", "limit": 1000.0},
        ]
        page = {"items": [{"name": "us-central1", "quotas": quotas}]}
    else:
        page = {"quotas": [{"metric": "GPUS_ALL_REGIONS", "limit": 12.0, "usage": 4.0}]}
    return 200, {}, json.dumps(page).encode()


def azure(asked):
    if asked.path.endswith("/usages"):
        page = {
            "value": [
                {"name": {"value": "StandardNCADSA100v4Family", "localizedValue": "Standard NCADSA100v4 Family vCPUs"},
                 "currentValue": 24, "limit": 96},
                {"name": {"value": "lowPriorityCores"}, "currentValue": 0, "limit": 30},
            ]
        }  # fmt: skip
    else:
        sku = {
            "name": "Standard_NC24ads_A100_v4",
            "family": "standardNCADSA100v4Family",
            "resourceType": "virtualMachines",
        }
        page = {"value": [sku, {"resourceType": "disks", "name": "Premium_LRS"}]}
    return 200, {}, json.dumps(page).encode()


@pytest.fixture
def signed(monkeypatch):
    """Let boto3 sign without asking anybody."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")


def nodes(reading):
    return {(one.instance_type, one.capacity_type.value): one.nodes for one in reading.quotas}


def test_vcpus_of_a_family_become_nodes(signed):
    with answering(aws) as (_, url):
        found = nodes(aws_quotas("us-east-1", url, CATALOG))

    assert found["p4d.24xlarge", "on-demand"] == 2
    assert found["g6.xlarge", "on-demand"] == 2
    assert found["p4d.24xlarge", "spot"] == 1
    assert found["p5.48xlarge", "spot"] == 0, "the generation's own quota, not the letter's"
    assert ("g6.xlarge", "spot") not in found, "a quota that is not listed is not known"


def test_googles_quota_over_all_regions_may_be_the_tighter_one():
    with answering(google) as (_, url):
        reading = google_quotas(url, {}, "p", CATALOG)

    found = nodes(reading)
    assert found["g2-standard-4", "on-demand"] == 12
    assert found["g2-standard-48", "spot"] == 0, "3 GPUs are no node of 4"
    assert {one.quota for one in reading.quotas if one.capacity_type is CapacityType.ON_DEMAND} == {"GPUS_ALL_REGIONS"}
    assert any("Cloud Quotas API" in note for note in reading.notes)


def test_azures_families_are_those_of_the_resource_skus():
    with answering(azure) as (script, url):
        reading = azure_quotas(url, {}, "s", "eastus", CATALOG)

    assert nodes(reading) == {("Standard_NC24ads_A100_v4", "on-demand"): 4, ("Standard_NC24ads_A100_v4", "spot"): 1}
    assert all("api-version" in asked.query for asked in script.seen)


def test_an_answer_that_is_no_quota_is_an_error():
    with answering(lambda asked: (200, {}, b"[]")) as (_, url), pytest.raises(SourceError, match="no quotas"):
        google_quotas(url, {}, "p", CATALOG)


@pytest.mark.parametrize("limit", ["Infinity", "NaN"])
def test_a_limit_that_is_no_number_is_an_error_or_left_out(limit, signed):
    def damaged(answer):
        def said(asked):
            status, headers, body = answer(asked)
            return (
                status,
                headers,
                body.replace(b": 192.0", f": {limit}".encode()).replace(b": 12.0", f": {limit}".encode()),
            )

        return said

    with answering(damaged(aws)) as (_, url):
        assert ("p4d.24xlarge", "on-demand") not in nodes(aws_quotas("us-east-1", url, CATALOG))
    with answering(damaged(google)) as (_, url), pytest.raises(SourceError, match="no quotas"):
        google_quotas(url, {}, "p", CATALOG)


def test_pages_of_azure_that_go_round_in_a_ring_end_in_an_error():
    def ring(asked):
        status, headers, body = azure(asked)
        link = f"https://management.azure.com{asked.path}?page=2"
        return status, headers, json.dumps({**json.loads(body), "nextLink": link}).encode()

    with answering(ring) as (script, url), pytest.raises(SourceError, match="do not end"):
        azure_quotas(url, {}, "s", "eastus", CATALOG)
    assert len(script.seen) <= 3


def quota(nodes=2, **changes):
    given = {"provider": "aws", "instance_type": "p4d.24xlarge", "region": "us-east-1", "capacity_type": "on-demand",
             "limit": nodes * 96.0, "unit": "vCPU", "per_node": 96.0, "quota": "Running On-Demand P instances",
             "code": "L-417A185B"}  # fmt: skip
    return NodeQuota(nodes=nodes, **{**given, **changes})


def test_the_section_for_settings_is_what_settings_read():
    text = settings_text([quota(), quota(1), quota(3, capacity_type="spot")])

    section = tomllib.loads(text)["limits"]["quotas"]
    assert section == {"p4d.24xlarge@us-east-1": 1, "p4d.24xlarge@us-east-1:spot": 3}
    read = quotas_of(", ".join(f"{key}={value}" for key, value in section.items()))
    assert [(one.instance_type, one.region, one.capacity.value, one.nodes) for one in read] == [
        ("p4d.24xlarge", "us-east-1", "on-demand", 1),
        ("p4d.24xlarge", "us-east-1", "spot", 3),
    ]


def test_the_file_is_read_as_it_was_written(tmp_path):
    path = tmp_path / "quotas.csv"
    path.write_text(quotas_text([quota(), quota(3, used=1.5)]), encoding="utf-8")

    assert read_quotas(path) == (quota(), quota(3, used=1.5))


def test_a_file_that_holds_no_quotas_is_refused(tmp_path):
    path = tmp_path / "quotas.csv"
    path.write_text("provider,nodes\naws,many\n", encoding="utf-8")

    with pytest.raises(InputError, match="trimtab quotas"):
        read_quotas(path)


def scaler(**changes):
    row = {"kind": "HorizontalPodAutoscaler", "namespace": "prod", "name": "chat", "target": "prod/chat",
           "min_replicas": 1.0, "max_replicas": 20.0, "current_replicas": 4.0}  # fmt: skip
    return table_from_rows("scalers", [{**row, **changes}])


def bundle(*rows, **more):
    return memory_bundle({**tables(nodes=list(rows)), **more}, META)


def test_a_quota_below_the_scale_up_is_found_with_the_command_that_asks_for_more():
    found = quota_findings(bundle(node(), scalers=scaler()), [quota(2)])

    (finding,) = found
    assert finding.status is FindingStatus.WEAK
    assert (
        "2 node(s) by Running On-Demand P instances (192 vCPU); 1 at once so far, 3 when every scaler" in finding.detail
    )
    assert finding.fix == (
        "aws service-quotas request-service-quota-increase --service-code ec2 --quota-code L-417A185B --desired-value 288 "
        "--region us-east-1"
    )


def test_a_quota_below_what_ran_already_is_worse():
    half = START + (END - START) / 2
    rows = [node("n0"), node("n1"), node("n2", start=half), node("n3", end=half)]

    (finding,) = quota_findings(bundle(*rows), [quota(2)])

    assert finding.status is FindingStatus.MISSING
    assert "3 at once so far" in finding.detail, "n3 had gone when n2 came"


def test_quotas_that_leave_room_are_one_line():
    rows = [node(), node("n1", region="eu-west-1")]

    (finding,) = quota_findings(bundle(*rows, allocations=table_from_rows("allocations", [allocation()])), [quota(2)])

    assert finding.status is FindingStatus.OK
    assert finding.detail == "1 of 2 kind(s) of nodes have one, and it leaves room"


def test_a_node_replaced_in_the_same_moment_counts_once():
    later = START + timedelta(hours=5)

    (finding,) = quota_findings(bundle(node(end=later), node("n1", start=later)), [quota(1)])

    assert finding.status is FindingStatus.OK


@pytest.mark.parametrize(
    ("provider", "start"), [("gcp", "gcloud beta quotas preferences create"), ("azure", "az quota update")]
)
def test_each_cloud_has_its_own_command(provider, start):
    assert quota(provider=provider).more(4).startswith(start)
