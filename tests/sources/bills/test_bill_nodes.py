import pytest
from tests.tables.bundles import END, START, node

from trimtab.catalog.providers import last_part
from trimtab.sources.collected import with_billed_types
from trimtab.tables.arrow import table_from_rows


def charge(resource, **changes):
    row = {
        "ChargePeriodStart": START,
        "ChargePeriodEnd": END,
        "BilledCost": 1.0,
        "ResourceId": resource,
        "instance_type": "g5.xlarge",
        "RegionId": "us-west-2",
        "ChargeCategory": "Usage",
        "PricingCategory": "Standard",
    }
    return {**row, **changes}


def filled(charges, **changes):
    unknown = {"instance_type": "unknown", "labels": {"provider_id": "aws:///us-west-2a/i-0abc"}, **changes}
    nodes = table_from_rows("nodes", [node(**unknown), node("known")])
    table, number = with_billed_types(nodes, table_from_rows("costs", charges))
    return table.to_pylist(maps_as_pydicts="strict"), number


def test_a_node_without_a_type_gets_it_from_its_resource_on_the_bill():
    (row, known), number = filled([charge("arn:aws:ec2:us-west-2:1:instance/i-0ABC", PricingCategory="Dynamic")])

    assert (row["instance_type"], row["region"], row["capacity_type"]) == ("g5.xlarge", "us-west-2", "spot")
    assert known["instance_type"] == "p4d.24xlarge"
    assert number == 1


@pytest.mark.parametrize("charges", [[], [charge("i-0def")], [charge("i-0abc", ChargeCategory="Tax")]])
def test_what_the_bill_does_not_know_stays_unknown(charges):
    (row, _), number = filled(charges)

    assert row["instance_type"] == "unknown"
    assert number == 0


def test_a_node_named_like_its_resource_needs_no_provider_id():
    rows, number = filled([charge("projects/p/zones/z/instances/n0")], labels=None)

    assert number == 1
    assert rows[0]["instance_type"] == "g5.xlarge"


@pytest.mark.parametrize("resource", ["i-0abc", "aws:///z/i-0abc", "arn:aws:ec2:r:1:instance/i-0abc", "a/b/I-0ABC/"])
def test_the_last_part_names_the_node(resource):
    assert last_part(resource) == "i-0abc"
