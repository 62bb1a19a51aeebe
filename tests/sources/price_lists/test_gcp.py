"""Google's price list: machines as sums of their parts."""

import json
from datetime import date

import pytest
from tests.sources.answering_server import answering
from tests.sources.recorded_prices import gcp_list

from trimtab.catalog import BuyingOption, load_catalog
from trimtab.sources.http import WebServer
from trimtab.sources.price_lists import PriceReading
from trimtab.sources.price_lists.gcp import part_name, part_prices, read_gcp

TODAY = date(2026, 11, 20)


@pytest.fixture
def reading():
    with answering(gcp_list) as (_, url), WebServer(url) as server:
        return read_gcp(server, load_catalog(), (), TODAY)


def rate(reading, name, region="us-central1", option=BuyingOption.ON_DEMAND):
    return next(
        (p.usd_hr for p in reading.prices if (p.instance_type, p.region, p.option) == (name, region, option)), None
    )


def test_a_machine_is_its_cores_memory_and_boards(reading):
    assert rate(reading, "a2-highgpu-1g") == pytest.approx(2.933908 + 12 * 0.031611 + 85 * 0.004237, abs=1e-6)
    assert rate(reading, "a2-highgpu-1g") == pytest.approx(3.673385, abs=1e-6), "what Karpenter's list says of it"
    assert rate(reading, "a2-megagpu-16g") == pytest.approx(55.739504, abs=1e-6)


def test_disks_that_come_with_a_machine_are_in_its_rate(reading):
    expected = 3.928 + 12 * 0.031611 + 170 * 0.004237 + 375 * 0.08 / 730

    assert rate(reading, "a2-ultragpu-1g") == pytest.approx(expected, abs=1e-6)


def test_spot_and_commitments_are_sums_of_their_own_parts(reading):
    spot = rate(reading, "a2-highgpu-1g", option=BuyingOption.SPOT)
    committed = rate(reading, "a2-highgpu-1g", option=BuyingOption.RESERVED_3Y)

    assert spot == pytest.approx(1.4 + 12 * 0.0158 + 85 * 0.00212, abs=1e-6)
    assert committed == pytest.approx(1.0269 + 12 * 0.011064 + 85 * 0.001483, abs=1e-6)


def test_another_currency_is_converted_at_the_lists_own_rate(reading):
    expected = (48000 + 12 * 524 + 85 * 70) / 15000

    assert rate(reading, "a2-highgpu-1g", region="asia-southeast2") == pytest.approx(expected, abs=1e-6)


def test_a_machine_without_a_price_of_its_gpu_has_none(reading):
    assert rate(reading, "a2-highgpu-1g", region="europe-west4") is None, (
        "cores and memory alone are five times too low"
    )
    assert reading.skipped["gcp: machine of which only some parts are sold there that way"] > 0
    assert reading.skipped["gcp: SKU in the unit 'GiBy.mo.wrong'"] == 1
    assert reading.skipped["gcp: SKU with a bad category"] == 1


@pytest.mark.parametrize(
    ("description", "name"),
    [
        ("Nvidia Tesla A100 GPU running in Americas", "Nvidia Tesla A100 GPU"),
        ("Spot Preemptible A3 Instance Core running in Americas", "A3 Instance Core"),
        ("Commitment v1: G2 Ram in Singapore for 1 Year", "G2 Instance Ram"),
        ("Commitment v1: Local SSD In Iowa for 3 Years", "SSD backed Local Storage"),
        ("SSD backed Local Storage attached to Spot Preemptible VMs", "SSD backed Local Storage"),
        ("A3 Instance Core attached to DWS Defined Duration VMs running in Iowa",
         "A3 Instance Core attached to DWS Defined Duration VMs"),
    ],
)  # fmt: skip
def test_names_of_parts_lose_place_term_and_way_of_buying_only(description, name):
    assert part_name(description) == name


def test_the_recorded_sample_is_read(shared_dir):
    path = shared_dir / "data" / "catalog" / "api_samples" / "gcp_cloud_billing_skus.json"
    skus = json.loads(path.read_text(encoding="utf-8"))["skus"]
    reading = PriceReading()
    wanted = frozenset({"Nvidia Tesla A100 GPU", "A2 Instance Ram", "A2 Instance Core", "T2D AMD Instance Ram"})

    parts = part_prices(skus, wanted, (), TODAY, reading)

    by_name = {(part.name, part.region): usd_hr for part, usd_hr in parts.items()}
    assert by_name["Nvidia Tesla A100 GPU", "us-central1"] == pytest.approx(2.933908)
    assert by_name["T2D AMD Instance Ram", "asia-southeast1"] == pytest.approx(68.204999658 / 14999.999925, rel=1e-9)
