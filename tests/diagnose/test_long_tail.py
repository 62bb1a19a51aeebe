"""Costs beside the GPUs: what is tied to their nodes, what only to their region, and what has no price."""

import csv
import re
from datetime import timedelta

import pyarrow as pa
import pytest
from tests.fleets import FleetRows, at

from trimtab.diagnose.long_tail import TAIL_COLUMNS, VOLUME_COLUMNS, TailKind, long_tail
from trimtab.fleet.build import build_fleet
from trimtab.fleet.settings import Settings
from trimtab.fleet.starts import MeasuredStarts, OwnStart
from trimtab.tables.arrow import table_from_rows

NODE, WORKLOAD, DAYS = "gpu-1", "prod/api", 10


def _fleet():
    rows = FleetRows(DAYS).node(NODE, "g5.xlarge")
    rows.hold(WORKLOAD, NODE, [0], owner_kind="Deployment").use(WORKLOAD, NODE, 0, range(24 * DAYS), sm=0.5)
    return build_fleet(rows.bundle(), Settings())


FLEET = _fleet()


def line(usd, *, meter="", said="", resource="i-1", region="us-east-1", quantity=None, unit=None, **more):
    return {
        "ChargePeriodStart": at(0), "ChargePeriodEnd": at(1), "BilledCost": usd, "BillingCurrency": "USD",
        "ChargeCategory": "Usage", "ResourceId": resource, "RegionId": region,
        "ServiceName": "Amazon Elastic Compute Cloud", "SkuMeter": meter, "ChargeDescription": said,
        "PricingQuantity": quantity, "PricingUnit": unit,
    } | more  # fmt: skip


def volume(name, workload=None, namespace="prod", phase="Bound", gib=100.0, created=None, storage_class=None):
    stated = {"namespace": namespace, "name": name, "workload": workload, "capacity_gib": gib, "phase": phase}
    return stated | {"created": created, "storage_class": storage_class}


def found(lines=(), volumes=(), starts=None, usd_gpu_hr=None, read=("prod", "else")):
    costs = table_from_rows("costs", list(lines)).select(TAIL_COLUMNS)
    claims = table_from_rows("volumes", list(volumes)).select(VOLUME_COLUMNS)
    pods = pa.table({"namespace": pa.array(list(read), pa.string())})
    return long_tail(costs, claims, pods, {"i-1": NODE}, FLEET, starts or MeasuredStarts(), usd_gpu_hr or {})


def test_traffic_of_a_gpu_node_is_told_from_that_of_its_region_and_of_other_regions():
    rows = found(
        [
            line(3.0, meter="USE1-DataTransfer-Regional-Bytes", resource="arn:aws:ec2:us-east-1:1:instance/i-1"),
            line(2.0, meter="USE1-DataTransfer-Regional-Bytes", resource="arn:aws:ec2:us-east-1:1:instance/i-9"),
            line(7.0, meter="EUW1-DataTransfer-Regional-Bytes", resource="i-8", region="eu-west-1"),
        ]
    )

    assert [(row.kind, row.tied, row.micro_usd) for row in rows] == [
        (TailKind.CROSS_ZONE, True, 3_000_000),
        (TailKind.CROSS_ZONE, False, 2_000_000),
    ]
    assert "gpu-1 $3.00" in rows[0].evidence


@pytest.mark.parametrize(
    ("meter", "said", "kind"),
    [
        ("USE1-NatGateway-Bytes", "", TailKind.NAT),
        ("", "$0.045 per GB Data Processed by NAT Gateways", TailKind.NAT),
        ("", "Networking Cloud NAT Data Processing", TailKind.NAT),
        ("USE1-USW2-AWS-Out-Bytes", "", TailKind.INTER_REGION),
        ("", "$0.02 per GB - US West (Oregon) data transfer to US East (Northern Virginia)", TailKind.INTER_REGION),
        ("", "Bandwidth Inter-Region - Intra Continent Data Transfer Out - North America", TailKind.INTER_REGION),
        ("", "Network Inter Zone Data Transfer Out", TailKind.CROSS_ZONE),
        ("USE1-DataTransfer-Out-Bytes", "", TailKind.EGRESS),
        ("", "$0.085 per GB - next 40 TB / month data transfer out", TailKind.EGRESS),
        ("", "Network Internet Data Transfer Out from Americas to Americas", TailKind.EGRESS),
        ("USE1-BoxUsage:p4d.24xlarge", "$32.77 per On Demand Linux p4d.24xlarge Instance Hour", None),
    ],
)
def test_lines_are_known_as_the_clouds_name_them(meter, said, kind):
    assert [row.kind for row in found([line(1.0, meter=meter, said=said)])] == ([] if kind is None else [kind])


def test_every_line_of_traffic_in_the_official_sample_is_known_and_no_other_is(shared_dir):
    with (shared_dir / "data/focus/focus_1.0_official_sample_1000rows.csv").open(encoding="utf-8") as file:
        said = sorted({row["ChargeDescription"] for row in csv.DictReader(file)})

    known = {text for text in said if found([line(1.0, said=text)])}

    # traffic into a cloud is free
    moves = re.compile(r"data ?transfer(?! in\b)|-aws-(in|out)-bytes|NAT Gateway", re.IGNORECASE)
    assert known == {text for text in said if moves.search(text)}
    assert len(known) > 10


def test_credits_other_currencies_and_other_hours_do_not_count():
    nat = line(1.0, meter="NatGateway-Bytes")
    late = {"ChargePeriodStart": at(24 * DAYS), "ChargePeriodEnd": at(24 * DAYS) + timedelta(hours=1)}

    assert found([nat | {"ChargeCategory": "Credit"}, nat | {"BillingCurrency": "EUR"}, nat | late]) == ()


def test_volumes_that_no_pod_mounts_cost_what_the_bill_says_a_gib_month_costs():
    storage = line(16.0, meter="EBS:VolumeUsage.gp3", quantity=200.0, unit="GB-Months")
    claims = [volume("old"), volume("used", WORKLOAD), volume("lost", phase="Lost"), volume("other", namespace="else")]

    (row,) = found([storage], claims)

    assert (row.kind, row.subject) == (TailKind.IDLE_VOLUMES, "prod")
    assert row.micro_usd == pytest.approx(100 * 0.08 * 24 * DAYS / 730 * 1e6, abs=1)
    assert "1 claim of 100 GiB (old)" in row.evidence


def test_a_volume_costs_from_its_creation_on_and_nothing_before_it():
    storage = line(16.0, meter="EBS:VolumeUsage.gp3", quantity=200.0, unit="GB-Months")
    claims = [
        volume("older", created=at(-99)),
        volume("late", created=at(24 * (DAYS - 1))),
        volume("after", created=at(24 * DAYS)),
    ]

    (row,) = found([storage], claims)

    # 8 cents a GiB-month; 100 GiB for ten days and 100 GiB for one
    assert row.micro_usd == pytest.approx(0.08 * 100 * 24 * (DAYS + 1) / 730 * 1e6, rel=1e-6)
    assert (
        "2 claims of 200 GiB (older, late), mounted by no pod when the cluster was read, 1 claim from creation on"
        in (row.evidence)
    )


def test_nothing_is_said_of_volumes_where_no_pod_was_read():
    assert found(volumes=[volume("old")], read=()) == ()
    assert found(volumes=[volume("old")], read=("else",)) == ()


def test_volumes_without_a_price_come_last_and_without_dollars():
    rows = found([line(1.0, meter="NatGateway-Bytes")], [volume("old")])

    assert [row.micro_usd for row in rows] == [1_000_000, None]


def test_gpus_that_wait_for_images_cost_their_time():
    pull = OwnStart(all_s=900.0, setup_s=700.0, pull_s=600.0, pulled_gib=20.0)
    starts = MeasuredStarts(own={WORKLOAD: (OwnStart(all_s=60.0), pull, pull)})

    (row,) = found(starts=starts, usd_gpu_hr={WORKLOAD: 3.0})

    assert row.micro_usd == pytest.approx(2 * 600 / 3600 * 3.0 * 1e6, abs=1)
    assert "2 pulls" in row.evidence


@pytest.mark.parametrize(
    ("mounted", "expected"),
    [
        ([volume("weights", f"prod/else,{WORKLOAD}", storage_class="efs"), volume("logs", WORKLOAD)], "efs, no class"),
        ([volume("weights", "prod/else", storage_class="efs")], None),  # it loads from elsewhere
    ],
)
def test_gpus_that_load_from_volumes_cost_their_time_and_name_the_storage_class(mounted, expected):
    again = OwnStart(all_s=3300.0, setup_s=100.0)  # became ready once more, an hour later
    usual = OwnStart(all_s=400.0, setup_s=100.0)
    starts = MeasuredStarts(own={WORKLOAD: (usual, usual, again)})

    rows = found(volumes=mounted, starts=starts, usd_gpu_hr={WORKLOAD: 3.0}, read=())

    assert [row.kind for row in rows] == [TailKind.LOADS] * (expected is not None)
    if expected is not None:
        assert rows[0].micro_usd == pytest.approx(3 * 300 / 3600 * 3.0 * 1e6, abs=1)
        assert f"volumes of {expected}" in rows[0].evidence
