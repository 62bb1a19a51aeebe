"""A service is closed out of hours where its owner says when it must answer, and nowhere else."""

import numpy as np
import pytest
from tests.fleets import FleetRows
from tests.plan.fleets import make_plan

from trimtab.catalog import load_catalog
from trimtab.deployment.deployment import Deployment
from trimtab.fleet.build import build_fleet
from trimtab.fleet.market import Market
from trimtab.fleet.settings import Settings
from trimtab.levers import closed_hours
from trimtab.levers.closed_hours import held_hours
from trimtab.levers.lever import LeverRequest
from trimtab.plan.proof.clairvoyant import clairvoyant_bound
from trimtab.plan.proof.proof_window import prove
from trimtab.replay.outcomes.evaluate import Evaluator, cases_of
from trimtab.tables.workloads import DeclaredOpenHours, Workloads, contradictions

SETTINGS = Settings()
NAME = "office/assistant"
OPEN = {"from_hour": 9, "to_hour": 17}
LE_S = (0.5, 1.0, 2.0, float("inf"))


def fleet(asked_at_night=0, **declared):
    """Two A100 nodes that serve an office by day, for two weeks from a Monday on."""
    rows = FleetRows(14)

    def requests(hour):
        return 40_000 if hour // 24 % 7 < 5 and 9 <= hour % 24 < 17 else asked_at_night

    for number in range(2):
        rows.node(f"n{number}", "p4d.24xlarge").hold(NAME, f"n{number}", range(8), owner_kind="Deployment")
        for gpu in range(8):
            rows.use(NAME, f"n{number}", gpu, range(14 * 24), sm=lambda hour: requests(hour) / 100_000, dram=0.3)
    rows.demand(NAME, requests, 2, LE_S, lambda hour: [requests(hour) * share for share in (0.6, 0.3, 0.1, 0.0)])
    targets = [{"metric": "latency", "quantile": 0.9, "limit_s": 2.0}]
    rows.workloads = {NAME: {"min_replicas": 2, "targets": targets, **declared}}
    return build_fleet(rows.bundle(), SETTINGS)


def ask_of(history):
    (case,) = cases_of(history, SETTINGS, seed=7).values()
    market = Market(catalog=load_catalog(), at=None, max_term_years=1, assumptions=SETTINGS.assumptions)
    return LeverRequest(evaluator=Evaluator(case=case), market=market)


def ways(ask):
    return list(closed_hours.LEVER.ways(Deployment(), ask))


def test_it_is_held_in_its_open_hours_and_one_ahead_to_start_in():
    (way,) = ways(ask_of(fleet(open_hours=OPEN)))

    assert way.levers == {"closed-hours"}
    assert way.holding.hours_of_week == tuple(24 * day + hour for day in range(5) for hour in range(8, 17))


def test_monday_at_midnight_opens_on_sunday():
    assert held_hours((0,), cold_start_s=3601.0) == (0, 166, 167)


def test_nobody_is_closed_without_a_word_of_its_owner_nor_where_it_is_always_open():
    always = {"days": ["mon", "tue", "wed", "thu", "fri", "sat", "sun"], "from_hour": 0, "to_hour": 24}

    assert ways(ask_of(fleet())) == []
    assert ways(ask_of(fleet(open_hours=always))) == []


def test_nodes_are_billed_in_the_held_hours_and_given_back_outside_them():
    ask = ask_of(fleet(open_hours=OPEN))
    (way,) = ways(ask)

    nodes = ask.evaluator.outcome(way).on_demand.reshape(14, 24) / 3600
    weekdays = nodes[[0, 1, 2, 3, 4, 7, 8, 9, 10, 11]]
    assert (weekdays[:, 8:17] == 2).all()
    assert (weekdays[1:5, :8] == 0).all()  # the window begins with the replicas that history had
    assert (weekdays[:, 18:] == 0).all()
    assert weekdays[:, 17] == pytest.approx(np.full(10, 2 * 600 / 3600), rel=0.1)  # an empty node stays ten minutes
    assert (nodes[[5, 6, 12, 13]] == 0).all()
    assert ask.evaluator.keeps_targets(way)


def test_requests_outside_the_open_hours_are_no_misses_but_are_told():
    ask = ask_of(fleet(asked_at_night=400, open_hours=OPEN))
    (way,) = ways(ask)
    planned = ask.evaluator.outcome(way)

    assert all(one.frac >= one.target.required_frac for one in planned.attained)
    assert ask.evaluator.keeps_targets(way)


def test_the_plan_closes_it_and_says_what_it_refuses():
    history = fleet(asked_at_night=400, open_hours=OPEN, max_replicas=2)
    market = Market(catalog=load_catalog(), at=None, max_term_years=1, assumptions=SETTINGS.assumptions)
    planned = make_plan(history, market, SETTINGS, seed=7, progress=lambda _stage, _share: None)

    (action,) = [one for one in planned.plan.actions if one.lever == "closed-hours"]
    refused = next(line for line in action.evidence if "refused then" in line.what)
    closed = 14 * 24 - 10 * 8
    assert refused.value == f"{400 * closed:,} ({400 * closed / (400 * closed + 40_000 * 80):.1%})"
    assert planned.plan.joint_saving_micro_usd > 0

    (note,) = prove(planned, history, market, SETTINGS, seed=7).proof.notes
    assert refused.value in note


@pytest.mark.parametrize("hours", [{"from_hour": 17, "to_hour": 9}, {"from_hour": 9, "to_hour": 9}])
def test_hours_that_end_before_they_begin_are_refused(hours):
    with pytest.raises(ValueError, match="to_hour after its from_hour"):
        DeclaredOpenHours(**hours)


def test_a_kind_that_answers_nobody_has_no_open_hours():
    spec = {"version": 1, "workloads": {NAME: {"kind": "batch", "open_hours": OPEN}}}

    (fault,) = contradictions(Workloads.model_validate(spec), "workloads.yaml")
    assert fault.what == "open_hours does not apply to kind batch"


def test_what_is_refused_out_of_hours_is_no_work_that_a_plan_must_pay_for():
    """As much is asked by night as by day: closing does not pay for all that work, and is no error."""
    history, declared = fleet(asked_at_night=40_000), fleet(asked_at_night=40_000, open_hours=OPEN)
    bounds = []
    for one in (history, declared):
        ask = ask_of(one)
        bounds.append(clairvoyant_bound(one, {0: ask.evaluator}, ask.market, strict=True))

    assert bounds[1] < bounds[0] * 0.3  # 40 of 168 hours
