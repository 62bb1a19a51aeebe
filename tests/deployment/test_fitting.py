"""Which boards a workload may be moved to."""

import pytest
from tests.fleets import SHAPES, FleetRows, few_machines

from trimtab.deployment.fitting import NO_LAW, fitting_offerings
from trimtab.fleet.build import build_fleet
from trimtab.fleet.market import Market
from trimtab.fleet.settings import Settings

SETTINGS = Settings()


@pytest.mark.parametrize("home", ["g5.xlarge", "inf2.xlarge"])
def test_nothing_moves_between_gpus_and_accelerators_that_programs_are_compiled_for(home, monkeypatch):
    monkeypatch.setitem(SHAPES, "inf2.xlarge", ("Inferentia2", 1, 32.0))
    rows = FleetRows(2).node("n", home).hold("web/a", "n", [0])
    rows.use("web/a", "n", 0, range(48), sm=0.1, util=0.2, tensor=0.05, dram=0.05)
    workload = build_fleet(rows.bundle(), SETTINGS).workload("web/a")
    market = Market.of(few_machines("inf2.xlarge", "inf2.8xlarge", "trn1.2xlarge"), None, SETTINGS)

    found = fitting_offerings(workload, market.offerings("aws", "us-east-1"), market, SETTINGS.assumptions)

    assert found.refused[NO_LAW]
    there = {market.gpu(offering.gpu).has_speed_law for offering in found.fitting}
    assert there == {home == "g5.xlarge"}
    assert {offering.gpu for offering in found.fitting} == {"Inferentia2"} or home == "g5.xlarge"
