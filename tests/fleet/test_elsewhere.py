"""How fast a workload would be on another board, from what was collected of its own."""

from tests.fleets import FleetRows

from trimtab.catalog import load_catalog
from trimtab.deployment.fitting import speed_on
from trimtab.fleet.build import build_fleet
from trimtab.fleet.settings import Settings

CATALOG = load_catalog()
A100, A10G = CATALOG.gpu("A100-SXM4-40GB"), CATALOG.gpu("A10G")


def speed_on_an_a10g(**readings):
    rows = FleetRows(7).node("n", "p4d.24xlarge").hold("web/api", "n", [0], owner_kind="Deployment")
    rows.use("web/api", "n", 0, range(168), **readings)
    rows.demand("web/api", lambda hour: 40.0, 1)
    settings = Settings()
    return speed_on(build_fleet(rows.bundle(), settings).workload("web/api"), A100, A10G, settings.assumptions)


def test_a_fleet_without_dram_counters_is_promised_no_more_than_the_bandwidth_lets_through():
    counted = {"sm": 0.6, "tensor": 0.02, "util": 0.9}

    unsure, streaming = speed_on_an_a10g(**counted), speed_on_an_a10g(**counted, dram=0.9)

    assert streaming.value < speed_on_an_a10g(**counted, dram=0.1).value
    assert unsure.low <= streaming.low
    assert "not measured: DRAM activity" in unsure.because
    assert "not measured" not in streaming.because
