"""From a real Prometheus server and a FOCUS bill to an audit, in one command."""

import csv
import json
from datetime import timedelta

import jsonschema
import pytest
from tests.e2e.conftest import END
from tests.e2e.generated_fleet import START

from trimtab.cli import main
from trimtab.emit.document import published_schema

pytestmark = pytest.mark.prometheus

BILLED_USD = 20_000.0


def write_bill(path, instance_type):
    """One row for the whole window."""
    row = {
        "BilledCost": BILLED_USD,
        "EffectiveCost": BILLED_USD,
        "BillingCurrency": "USD",
        "ChargeCategory": "Usage",
        "ChargePeriodStart": f"{START:%Y-%m-%dT%H:%M:%SZ}",
        "ChargePeriodEnd": f"{END:%Y-%m-%dT%H:%M:%SZ}",
        "SkuPriceDetails": json.dumps({"InstanceType": instance_type}),
    }
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(row))
        writer.writeheader()
        writer.writerow(row)


@pytest.fixture(scope="module")
def audited(prometheus_server, collected_bundle, tmp_path_factory):
    """The audit straight from the server, with a bill of the first node's type."""
    folder = tmp_path_factory.mktemp("audit")
    write_bill(folder / "bill.csv", collected_bundle.table("nodes", ["instance_type"])["instance_type"][0].as_py())
    window = ["--from", START.isoformat(), "--to", END.isoformat()]
    patch = pytest.MonkeyPatch()
    patch.chdir(folder)
    try:
        with pytest.raises(SystemExit) as ended:
            main(
                ["audit", "-p", prometheus_server.url, *window, "--focus", "bill.csv", "-o", "json", "--out", "a.json"]
            )
    finally:
        patch.undo()
    assert ended.value.code == 0
    return json.loads((folder / "a.json").read_text(encoding="utf-8"))


def test_the_audit_satisfies_the_published_schema(audited):
    jsonschema.Draft202012Validator(json.loads(published_schema())).validate(audited)


def test_the_whole_window_was_read_and_split(audited):
    assert audited["coverage"]["asked_days"] == (END - START) / timedelta(days=1)
    assert audited["plan"]["window"]["end"] == audited["proof"]["window"]["start"]


def test_money_adds_up_on_real_input(audited):
    def cents(rows, key="usd_mo"):
        return sum(round(row[key] * 100) for row in rows)

    assert audited["bill_usd_mo"] > 0
    assert cents(audited["waste"]) == round(audited["bill_usd_mo"] * 100)
    assert cents(audited["plan"]["actions"], "saving_usd_mo") == round(audited["plan"]["joint_saving_usd_mo"] * 100)


def test_the_bill_is_held_against_the_price_book(audited):
    a_month = BILLED_USD * 730 / ((END - START) / timedelta(hours=1))

    assert any(f"the bills say ${a_month:,.0f} a month" in note for note in audited["coverage"]["notes"])


def test_every_workload_stays_in_the_report(audited):
    spent = {row["name"] for row in audited["spend"]["by_workload"]}

    assert {row["workload"] for row in audited["unjudged"]} <= spent
    assert set(audited["pictures"]["heat_map"]["rows"]) <= spent
