from pathlib import Path

from tests.tables.bundles import META, node, tables

from trimtab.sources.collected import bundle_with_bills
from trimtab.tables.bundle import write_bundle

BILL = Path(__file__).parent.parent / "data" / "bills" / "focus_1_2.csv"


def test_a_bill_laid_over_a_bundle_on_disk_adds_its_costs_and_types(tmp_path):
    unknown = node(instance_type="unknown", labels={"provider_id": "aws:///us-east-1a/i-1"})
    bundle = write_bundle(tmp_path / "fleet", tables(nodes=[unknown]), META)

    billed = bundle_with_bills(bundle, [BILL])

    assert billed.table("costs").num_rows == 3
    assert billed.table("nodes")["instance_type"].to_pylist() == ["p4d.24xlarge"]
    assert "instance types of 1 node(s) taken from the bill" in billed.meta.notes
    assert billed.table("devices").equals(bundle.table("devices"))


def test_without_bills_a_bundle_stays_as_it_is(tmp_path):
    bundle = write_bundle(tmp_path / "fleet", tables(), META)

    assert bundle_with_bills(bundle, []) is bundle
