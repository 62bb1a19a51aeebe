"""What misses its targets on unseen history gives way to something safer or leaves the plan, and nothing else changes."""

import pytest
from tests.fleets import FleetRows, few_machines

from trimtab.deployment.deployment import AS_IT_IS, Deployment
from trimtab.deployment.effects import SetReplicaPolicy
from trimtab.fleet.settings import Planning, Settings
from trimtab.levers import autoscaling
from trimtab.pipeline import audit
from trimtab.plan.model import Promise
from trimtab.plan.options.composition import Veto
from trimtab.policies.scaling import HpaPolicy
from trimtab.replay.outcomes.outcome import Attained, Outcome

DAYS, FIT_DAYS = 21, 14
SETTINGS = Settings(planning=Planning(engineer_week_usd=0.0, min_saving_usd_mo=1.0, max_term_years=0))


def works(start, end, later=()):
    """Return the activity of a notebook at work in some hours of the day, in the last days in others too."""

    def level(hour):
        at_work = start <= hour % 24 < end or (hour >= FIT_DAYS * 24 and hour % 24 in later)
        return 0.4 if at_work else 0.0

    return level


def fleet(later):
    rows = FleetRows(DAYS)
    for name, hours in (("night", later), ("day", ())):
        rows.node(name, "p4d.24xlarge").hold(f"lab/{name}", name, range(8), owner_kind="Notebook")
        for gpu in range(8):
            rows.use(f"lab/{name}", name, gpu, range(DAYS * 24), sm=works(9, 17, hours))
    return rows.bundle()


@pytest.fixture(scope="module")
def calm():
    return audit(fleet(later=()), SETTINGS)


@pytest.fixture(scope="module")
def changed():
    """The same history to plan on; in the days of the proof one notebook works at night as well."""
    return audit(fleet(later=range(20, 24)), SETTINGS)


def ways(found):
    return {change.subject: change.effect for action in found.plan.actions for change in action.changes}


def test_what_holds_is_not_repaired(calm):
    assert {"lab/night", "lab/day"} <= ways(calm).keys()
    assert calm.proof.repairs == ()
    assert calm.proof.first_saving_micro_usd is None


def test_what_misses_in_the_proof_leaves_the_plan_and_the_saving_is_stated_anew(calm, changed):
    (repair,) = changed.proof.repairs

    assert repair.workload == "lab/night"
    assert repair.was
    assert [one.promise for one in repair.missed] == [Promise.HOURS]
    assert all(one.kept for one in changed.proof.targets)
    assert changed.proof.first_saving_micro_usd == calm.plan.joint_saving_micro_usd
    assert changed.plan.joint_saving_micro_usd < calm.plan.joint_saving_micro_usd
    assert ("lab/night" in ways(changed)) == bool(repair.now)


def test_a_veto_changes_nothing_for_others(calm, changed):
    assert ways(changed)["lab/day"] == ways(calm)["lab/day"]


def test_a_veto_goes_by_the_fit_window_alone(calm):
    target = calm.proof.targets[0].target

    def outcome(safe_frac):
        return Outcome(on_demand=None, spot=None, attained=(Attained(target=target, frac=1.0, safe_frac=safe_frac),))

    veto = Veto(safe_frac={target: 0.96})

    assert veto.refuses(AS_IT_IS, outcome(0.96))
    assert veto.refuses(AS_IT_IS, outcome(0.975))
    assert not veto.refuses(AS_IT_IS, outcome(0.98))
    assert Veto(safe_frac={}, keeps=True).refuses(AS_IT_IS, outcome(1.0))
    assert Veto(safe_frac={target: 1.0}).refuses(AS_IT_IS, outcome(1.0))


def test_a_veto_of_a_short_wait_leaves_the_same_autoscaler_with_a_longer_one(calm):
    target = calm.proof.targets[0].target

    def way(window_s, target_frac=0.7):
        hpa = HpaPolicy(target_frac, 2, 8, down_stabilization_s=window_s)
        return Deployment.of((autoscaling.NAME, SetReplicaPolicy(policy=hpa, metric="demand")))

    def outcome(safe_frac):
        return Outcome(on_demand=None, spot=None, attained=(Attained(target=target, frac=1.0, safe_frac=safe_frac),))

    veto = Veto(safe_frac={target: 0.96}, ways=(way(60),))

    assert not veto.refuses(way(300), outcome(0.97))
    # it must still be safer on the fit window
    assert veto.refuses(way(300), outcome(0.96))
    # another rule, a shorter wait, and none at all leave half of the misses at most
    assert all(veto.refuses(other, outcome(0.97)) for other in (way(300, 0.6), way(15), AS_IT_IS))
    # and so does the longer wait once it failed too, but for one that is longer still
    stricter = veto.stricter(Veto(safe_frac={target: 0.97}, ways=(way(300),)))
    assert stricter.refuses(way(300), outcome(0.975))
    assert not stricter.refuses(way(900), outcome(0.975))


def test_a_service_whose_plan_is_late_gets_a_safer_way_or_stays():
    def rate(hour):
        """A calm fortnight, then every second hour is a rush."""
        return 1_000 if hour < FIT_DAYS * 24 or hour % 2 else 16_000

    rows = FleetRows(DAYS)
    for number in range(4):
        rows.node(f"n{number}", "g5.xlarge")
        rows.hold("prod/api", f"n{number}", [0], pod=f"api-{number}", owner_kind="Deployment")
        rows.use("prod/api", f"n{number}", 0, range(DAYS * 24), sm=lambda hour: 0.05 * rate(hour) / 1_000)
    rows.demand(
        "prod/api",
        rate,
        4,
        (0.5, 1.0, 2.0, float("inf")),
        lambda hour: [rate(hour) * share for share in (0.5, 0.3, 0.18, 0.02)],
        running=lambda hour: rate(hour) * 0.5 / 3600,
    )
    rows.workloads["prod/api"] = {
        "targets": [{"metric": "latency", "quantile": 0.95, "limit_s": 2.0}],
        "min_replicas": 1,
    }

    found = audit(rows.bundle(), SETTINGS, few_machines())

    (repair,) = found.proof.repairs
    assert repair.workload == "prod/api"
    assert Promise.LATENCY in {one.promise for one in repair.missed}
    assert not [one for one in found.proof.targets if one.is_missed_by_plan]


def test_a_service_that_moves_and_would_be_late_on_slow_gpus_gets_a_safer_way():
    """Requests take half as long again in the proof: in time at the middle of a new GPU's speed, not at its low end."""
    late_from = FIT_DAYS * 24
    quick = (0.04, 0.46, 0.35, 0.11, 0.03, 0.01, 0.0, 0.0)
    slow = (0.0, 0.16, 0.35, 0.27, 0.12, 0.09, 0.01, 0.0)

    def rate(hour):
        return 4_000 if 8 <= hour % 24 < 20 else 2_000

    rows = FleetRows(DAYS).node("n", "p4d.24xlarge")
    rows.hold("prod/api", "n", range(8), owner_kind="Deployment")
    for number, allocation in enumerate(rows.rows["allocations"]):
        allocation["pod"] = f"api-{number}"
    for gpu in range(8):
        rows.use("prod/api", "n", gpu, range(DAYS * 24), sm=lambda hour: rate(hour) / 20_000, memory_gib=6.0)
    rows.demand(
        "prod/api",
        rate,
        8,
        (0.5, 1.0, 1.5, 2.0, 2.5, 4.0, 6.0, float("inf")),
        lambda hour: [rate(hour) * share for share in (slow if hour >= late_from else quick)],
        running=lambda hour: rate(hour) * (1.5 if hour >= late_from else 1.0) / 3600,
    )
    rows.workloads["prod/api"] = {
        "targets": [{"metric": "latency", "quantile": 0.9, "limit_s": 6.0}],
        "min_replicas": 1,
    }

    (repair,) = audit(rows.bundle(), SETTINGS, few_machines()).proof.repairs

    assert repair.workload == "prod/api"
    assert repair.when_slow
    assert repair.missed
