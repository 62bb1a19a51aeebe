import json
from datetime import UTC, date, datetime

import pytest

from trimtab.catalog import load_catalog
from trimtab.catalog.pools import Pool
from trimtab.errors import InputError, PriceFileError
from trimtab.plan.commitments.inventory import OwnedSpend
from trimtab.sources.bills.commitments import read_inventory, types_in_bill
from trimtab.tables.arrow import table_from_rows

RESERVED = {
    "ReservedInstancesId": "ri-1",
    "InstanceType": "p4d.24xlarge",
    "InstanceCount": 2,
    "Start": "2026-03-01T00:00:00+00:00",
    "End": "2027-03-01T00:00:00+00:00",
    "Duration": 31536000,
    "FixedPrice": 87600.0,
    "UsagePrice": 0.0,
    "RecurringCharges": [{"Amount": 3.0, "Frequency": "Hourly"}],
    "State": "active",
    "Scope": "Region",
}
AZURE = {
    "location": "eastus",
    "sku": {"name": "Standard_ND96asr_v4"},
    "properties": {
        "displayName": "nd",
        "quantity": 1,
        "term": "P1Y",
        "provisioningState": "Succeeded",
        "effectiveDateTime": "2026-05-01T00:00:00Z",
        "expiryDate": "2027-05-01",
    },
}


@pytest.fixture
def read(tmp_path):
    def read(document, *, region=None, type_of=None):
        path = tmp_path / "held"
        path.write_text(document if isinstance(document, str) else json.dumps(document))
        return read_inventory(path, load_catalog(), region=region, type_of=type_of or {})

    return read


def test_a_reserved_instance_costs_its_fixed_price_spread_and_its_hours(read):
    (one,) = read({"ReservedInstances": [RESERVED]}, region="us-east-1").owned

    assert (one.scope.offer.pool, one.scope.count) == (Pool("aws", "p4d.24xlarge", "us-east-1"), 2)
    assert one.scope.offer.effective_usd_hr == 13.0
    assert (one.start, one.end) == (date(2026, 3, 1), date(2027, 3, 1))


def test_a_zonal_reservation_names_its_region_and_one_that_ended_does_not_count(read):
    held = read(
        {"ReservedInstances": [{**RESERVED, "AvailabilityZone": "eu-west-1b"}, {**RESERVED, "State": "retired"}]}
    )

    assert [one.scope.offer.pool.region for one in held.owned] == ["eu-west-1"]
    assert "1 that the list itself says do not run" in held.left_out[0]


def test_a_reservation_of_no_known_region_is_left_out_with_the_cure(read):
    held = read({"ReservedInstances": [RESERVED]})

    assert held.owned == ()
    assert "--owned-region" in held.left_out[0]


def test_a_savings_plan_commits_to_spend(read):
    plan = {"savingsPlanId": "sp-1", "savingsPlanType": "Compute", "commitment": "12.5", "state": "active"}
    (one,) = read({"savingsPlans": [{**plan, "start": "2026-01-01T00:00:00Z", "end": "2027-01-01T00:00:00Z"}]}).owned

    assert (one.scope.usd_hr, one.end) == (12.5, date(2027, 1, 1))


def test_an_azure_reservation_is_priced_by_the_list_or_left_out(read):
    held = read([AZURE, {**AZURE, "location": "moon"}])

    assert len(held.owned) + len(held.left_out) == 2
    assert "moon" in " ".join(held.left_out)


def test_a_google_commitment_to_resources_is_left_out_by_name(read):
    commitment = {
        "name": "cud",
        "plan": "TWELVE_MONTH",
        "status": "ACTIVE",
        "resources": [{"type": "VCPU", "amount": "96"}],
    }

    assert "cud: commits to 96 VCPU" in read([commitment]).left_out[0]


FOCUS = (
    "ContractCommitmentId,ContractCommitmentType,ContractCommitmentCategory,ContractCommitmentCost,ContractCommitmentQuantity,"
    "ContractCommitmentUnit,ContractCommitmentDescription,ContractCommitmentPeriodStart,ContractCommitmentPeriodEnd,BillingCurrency\n"
)
FOCUS_USE = (
    "arn:aws:ec2:us-east-1::reservation/9c,Reserved Instance,Usage,175200,17520,Hours,RI-1yr,"
    "2026-05-01T00:00:00Z,2027-05-01T00:00:00Z,USD\n"
)


def test_a_focus_usage_commitment_takes_its_type_from_the_bill(read):
    reservation = "arn:aws:ec2:us-east-1::reservation/9c"
    costs = table_from_rows(
        "costs",
        [
            {
                "ChargePeriodStart": datetime(2026, 5, 1, tzinfo=UTC),
                "ChargePeriodEnd": datetime(2026, 5, 2, tzinfo=UTC),
                "BilledCost": 0.0,
                "CommitmentDiscountId": reservation,
                "instance_type": "p4d.24xlarge",
            }
        ],
    )

    (one,) = read(FOCUS + FOCUS_USE, type_of=types_in_bill(costs)).owned

    assert (one.scope.count, one.scope.offer.usd_hr, one.scope.offer.pool.instance_type) == (2, 10.0, "p4d.24xlarge")


def test_a_focus_usage_commitment_of_no_known_type_is_left_out(read):
    assert "17520 Hours" in read(FOCUS + FOCUS_USE).left_out[0]


def test_the_public_sample_is_read_whole(shared_dir, read):
    path = shared_dir / "data" / "focus" / "synthetic_aws_1_3_contract_commitment_rows100_seed42.csv"

    held = read(path.read_text())

    assert len(held.owned) + len(held.left_out) == len(path.read_text().splitlines()) - 1
    assert sum(isinstance(one.scope, OwnedSpend) for one in held.owned) == 6


def test_what_is_no_list_is_refused_with_those_that_are(read):
    with pytest.raises(InputError, match="describe-reserved-instances"):
        read({"things": []})
    with pytest.raises(InputError, match="not JSON"):
        read("{")


def test_every_entry_at_fault_is_named(read):
    broken = [{**RESERVED, "InstanceCount": "many"}, {key: RESERVED[key] for key in RESERVED if key != "Start"}]

    with pytest.raises(PriceFileError, match=r"(?s)entry 1.*entry 2"):
        read({"ReservedInstances": broken}, region="us-east-1")


@pytest.mark.parametrize("odd", ["inf", "nan", "-1", 1e308])
def test_an_amount_that_no_commitment_has_names_its_entry(read, odd):
    with pytest.raises(PriceFileError, match="entry 1"):
        read({"ReservedInstances": [{**RESERVED, "InstanceCount": odd}]}, region="us-east-1")
