import pytest
from tests.fleets import FleetRows

from trimtab.errors import BundleError
from trimtab.fleet.build import build_fleet
from trimtab.fleet.settings import Settings


def test_contradictory_declarations_of_several_workloads_are_reported_together():
    rows = FleetRows(2).node("n0", "g5.12xlarge")
    for number, name in enumerate(("serve/api", "serve/chat")):
        rows.hold(name, "n0", [number]).use(name, "n0", number, range(48), sm=0.5)
    rows.workloads = {
        "serve/*": {"max_replicas": 2},
        "serve/api": {"min_replicas": 5},
        "serve/chat": {"min_replicas": 7},
    }

    with pytest.raises(BundleError) as caught:
        build_fleet(rows.bundle(), Settings())

    assert "min_replicas 5 is above" in str(caught.value)
    assert "min_replicas 7 is above" in str(caught.value)
