"""Column generation over mixes that nobody lists: its bound and its plan agree with the whole problem as one MILP."""

from dataclasses import dataclass

import highspy
import numpy as np
import pytest
from benchmarks.plan import QUOTA_SCALES, referee_case, referees
from benchmarks.referee_fleet import RefereeFleet

from trimtab.plan.program.decompose import mix, relax
from trimtab.plan.program.highs import INFINITY, Program, solve_integral

FIXED_COST = 1.5
KIND_PRICE = np.array([1.0, 0.62, 0.45, 0.33])


@dataclass(frozen=True)
class Purchase:
    """A purchase problem like the referees', small: units of options, steady or on spot, under shared quotas."""

    price: np.ndarray
    feasible: np.ndarray
    throughput: np.ndarray
    demand: np.ndarray
    max_spot_frac: np.ndarray
    quota: np.ndarray

    def unit_costs(self, workload):
        return self.price[:, None] * KIND_PRICE


def purchase(seed, workloads=6, options=5):
    rng = np.random.default_rng(seed)
    price = rng.uniform(0.5, 40, options)
    return Purchase(
        price=price,
        feasible=np.ones((workloads, options), dtype=bool),
        throughput=price * rng.lognormal(0, 0.4, (workloads, options)),
        demand=rng.lognormal(3, 1.0, workloads),
        max_spot_frac=rng.choice([0, 0.3, 0.7, 1.0], workloads),
        quota=rng.integers(2, 9, options).astype(float),
    )


def whole(instance):
    """Solve everything at once: the referee."""
    program = Program()
    quotas = [program.add_row(-INFINITY, quota) for quota in instance.quota]
    for w, (demand, cap) in enumerate(zip(instance.demand, instance.max_spot_frac, strict=True)):
        serves, spot_share = program.add_row(demand, INFINITY), program.add_row(-INFINITY, 0.0)
        for o, capacity in enumerate(instance.throughput[w]):
            most = np.ceil(demand / capacity) + 1
            switch, link = program.add_column(FIXED_COST, 1.0, integer=True), program.add_row(-INFINITY, 0.0)
            program.put(link, switch, -most)
            for kind, cost in enumerate(instance.unit_costs(w)[o]):
                units = program.add_column(float(cost), most, integer=True)
                share = 1 - cap if kind == len(KIND_PRICE) - 1 else -cap
                for row, value in ((quotas[o], 1.0), (link, 1.0), (serves, capacity), (spot_share, capacity * share)):
                    program.put(row, units, value)
    return solve_integral(program, gap_frac=1e-4, max_nodes=100_000)


@pytest.mark.parametrize("seed", range(5))
def test_bound_and_plan_enclose_the_optimum_of_the_whole_problem(seed):
    instance = purchase(seed)
    best = whole(instance)

    fleet = RefereeFleet(instance, FIXED_COST)
    relaxed = relax(fleet, fleet.start(), 1e-6)
    chosen = mix(fleet.program(), relaxed.columns, gap_frac=0.0, max_nodes=10_000)

    assert relaxed.bound <= best.objective * (1 + 1e-6)
    if not chosen.shared.any():
        assert best.bound <= fleet.audit(chosen.keys) * (1 + 1e-6)


def test_one_workload_alone_is_priced_exactly():
    for seed in range(30):
        instance = purchase(seed, workloads=1)
        fleet = RefereeFleet(instance, FIXED_COST)
        unlimited = Purchase(**{**instance.__dict__, "quota": np.full(5, 1e6)})

        assert fleet.start()[0].cost == pytest.approx(whole(unlimited).objective, rel=2e-4), seed


@pytest.mark.shared
@pytest.mark.parametrize("quotas", QUOTA_SCALES)
def test_the_referees_instance_is_certified_within_two_percent(shared_dir, quotas):
    module = referees(shared_dir / "referees")

    figures = referee_case(module, 500, QUOTA_SCALES[quotas])

    assert figures["gap_frac"] <= 0.02


def test_a_solver_is_silent_before_its_first_word(monkeypatch):
    """HiGHS 1.16 prints its banner while the constructor enables callbacks: into what `-o json` writes."""
    silent = []
    enable = highspy.Highs.enableCallbacks

    def enable_and_note(solver):
        silent.append(solver.getOptionValue("output_flag")[1] is False)
        return enable(solver)

    monkeypatch.setattr(highspy.Highs, "enableCallbacks", enable_and_note)
    program = Program()
    program.add_column(1.0, 1.0, integer=True)
    solve_integral(program, gap_frac=0.0, max_nodes=1)

    assert silent == [True]
