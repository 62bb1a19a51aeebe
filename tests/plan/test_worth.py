"""What some of a plan's actions are worth: no target broken, no action worth less than nothing, none more than it touches."""

from dataclasses import replace
from itertools import combinations

import pytest
from tests.fleets import FleetRows, few_machines
from tests.plan.fleets import make_plan
from tests.plan.test_batching import SECONDS, quad

from trimtab.catalog import load_catalog
from trimtab.catalog.registry import changed, price_change
from trimtab.diagnose.verdicts import verdict_of
from trimtab.fleet.build import build_fleet
from trimtab.fleet.market import Market
from trimtab.fleet.settings import Planning, Settings
from trimtab.ledger.arrays import charge
from trimtab.levers.lever import Risk
from trimtab.pipeline import open_demo
from trimtab.plan.actions.attribution import attribute
from trimtab.plan.actions.draft_actions import Hazard, risk_of
from trimtab.plan.actions.draft_plan import DraftPlan
from trimtab.plan.program.fleet_problem import FleetBill

SETTINGS = Settings(planning=Planning(engineer_week_usd=0.0, min_saving_usd_mo=1.0))


@pytest.fixture(scope="module")
def planned():
    """A service whose batches need another GPU, which pays only with them."""
    fleet = build_fleet(quad(batching={"seconds": SECONDS, "item_gib": 0.15}), SETTINGS)
    market = Market.of(few_machines(), fleet.window.end.date(), SETTINGS)
    return make_plan(fleet, market, SETTINGS, seed=7, progress=lambda *_: None)


def subsets(drafted):
    numbers = sorted(drafted.everything)
    return [frozenset(some) for size in range(len(numbers) + 1) for some in combinations(numbers, size)]


def test_no_set_of_actions_breaks_a_target(planned):
    drafted = planned.drafted
    for some in subsets(drafted):
        for index, deployment in drafted.in_force(some).items():
            assert drafted.enacted.evaluators[index].keeps_targets(deployment)


def test_more_actions_are_never_worth_less(planned):
    drafted = planned.drafted
    worth = {some: drafted.worth(some) for some in subsets(drafted)}

    assert all(worth[some - {number}] <= worth[some] + 1 for some in worth for number in some)
    assert worth[frozenset()] == 0
    assert worth[drafted.everything] == planned.plan.joint_saving_micro_usd


def test_a_set_of_actions_is_billed_as_if_no_other_had_been(planned):
    drafted = planned.drafted
    for some in subsets(drafted):
        drafted.bill(some)
    for some in subsets(drafted):
        gone = drafted.gone(some)
        anew = FleetBill(fleet=drafted.fleet, evaluators=drafted.enacted.evaluators, market=drafted.enacted.market)
        in_force = {index: planned.deployments[drafted.fleet.workloads[index].name] for index in drafted.in_force(some)}
        parts = {index: in_force[index].restricted(kept.levers) for index, kept in drafted.in_force(some).items()}

        before, after = drafted.usage(some), anew.usage(parts, gone)

        assert before.keys() == after.keys()
        assert all((before[pool] == after[pool]).all() for pool in after)
        assert drafted.moving(some) == anew.moving(parts)
        assert drafted.cost(some) == anew.bill(parts, gone, drafted.bought(some)).total + anew.moving(parts)


class CountedBill(FleetBill):
    """A bill that counts the workloads whose use it adds up."""

    added = 0

    def moved(self, in_force):
        self.added += len(in_force)
        return super().moved(in_force)


def test_sets_of_actions_add_up_each_workload_once_for_every_set_of_its_own_actions():
    rows = FleetRows(days=14).node("idle", "g5.xlarge")
    for number in range(4):
        name, node = f"lab-{number % 2}/notebook-{number}", f"node-{number}"
        rows.node(node, "g5.12xlarge").hold(name, node, [0], owner_kind="StatefulSet")
        rows.use(name, node, 0, range(14 * 24), sm=0.1)
    fleet = build_fleet(rows.bundle(), SETTINGS)
    market = Market.of(load_catalog(), fleet.window.end.date(), SETTINGS)
    made = make_plan(fleet, market, SETTINGS, seed=7, progress=lambda *_: None).drafted
    enacted = CountedBill(fleet=fleet, evaluators=made.enacted.evaluators, market=market)
    drafted = DraftPlan(
        fleet=fleet,
        enacted=enacted,
        deployments=made.deployments,
        released=made.released,
        discounts=made.discounts,
    )
    enacted.added = 0

    costs = {some: drafted.cost(some) for some in subsets(drafted)}

    touching = [sum(index in draft.workloads for draft in drafted.actions) for index in drafted.deployments]
    assert len(drafted.actions) >= 2
    assert enacted.added <= sum(2**actions - 1 for actions in touching) < len(costs) * len(touching)


def test_options_are_made_and_charged_once_for_all_problems_of_a_plan(planned):
    prospects = planned.prospects
    judged = len(prospects.options)
    # as choices without headroom, and those among what was replayed alone, put the same ways into rows of their own
    anew = [row and replace(row, candidates=row.candidates[::-1], waiting=()) for row in prospects.options]

    one, other = prospects.problem(prospects.options), prospects.problem(anew)

    assert any(len(row.candidates) > 1 for row in prospects.options if row)
    for judged_row, before, after in zip(prospects.options, one.options[:judged], other.options[:judged], strict=True):
        made = before[: len(judged_row.candidates) if judged_row else 0]
        assert all(first is again for first, again in zip(made, after[::-1], strict=True))
    for option in one.options[0]:
        assert option.charged_micro_usd == {
            pool: int(charge(one.rates_micro_usd_hr[pool], seconds).sum()) for pool, seconds in option.usage.items()
        }


def test_an_option_made_in_one_market_is_charged_at_the_prices_of_another_there(planned):
    prospects = planned.prospects
    before = prospects.problem(prospects.options)
    elsewhere = replace(prospects.market, catalog=changed(prospects.market.catalog, [price_change("aws+100%")]))

    after = replace(prospects, market=elsewhere).problem(prospects.options)

    assert after.rates_micro_usd_hr != before.rates_micro_usd_hr
    for option in after.options[0]:
        assert option.charged_micro_usd == {
            pool: int(charge(after.rates_micro_usd_hr[pool], seconds).sum()) for pool, seconds in option.usage.items()
        }


def test_no_figure_of_an_action_is_below_nothing_or_above_what_it_touches(planned):
    for action in planned.plan.actions:
        assert action.saving_micro_usd >= 0
        assert action.standalone_usd_mo >= 0
        assert action.last_in_usd_mo >= 0
        assert action.spend_usd_mo is None or action.standalone_usd_mo <= action.spend_usd_mo + 0.01


def test_a_sampled_player_that_waits_is_counted_with_the_one_that_makes_up_for_it():
    def value(some):
        """The first costs 5 until the second is there, which saves 20 with it."""
        return (0 if 0 not in some else -5 if 1 not in some else 20) + 3 * len(some - {0, 1})

    players = 14
    plain = attribute(value, [list(range(players))], players, seed=1)
    waits = attribute(value, [list(range(players))], players, seed=1, waits=True)

    assert sum(plain.shapley) == sum(waits.shapley) == value(frozenset(range(players)))
    assert min(waits.shapley) >= 0


def test_spend_counts_the_idle_time_of_the_nodes_that_a_workload_held():
    rows = FleetRows(14).node("n", "g5.12xlarge")
    for day in range(14):
        start = day * 24 + 9
        rows.hold("lab/run", "n", range(4), start, start + 2, pod=f"p{day}", owner_kind="Job")
        rows.job("lab/run", start, start, start + 2, 4, name=f"j{day}")
        for gpu in range(4):
            rows.use("lab/run", "n", gpu, range(start, start + 2), sm=0.9)
    fleet = build_fleet(rows.bundle(), SETTINGS)
    market = Market.of(load_catalog(), fleet.window.end.date(), SETTINGS)

    plan = make_plan(fleet, market, SETTINGS, seed=7, progress=lambda *_: None).plan

    touching = [action for action in plan.actions if action.spend_usd_mo is not None]
    assert touching
    for action in touching:
        assert action.spend_usd_mo == pytest.approx(plan.usd_mo(plan.before_micro_usd), rel=1e-6)


def test_risk_is_what_can_happen():
    assert risk_of(Risk.LOW, ()) is Risk.LOW
    assert risk_of(Risk.MEDIUM, ()) is risk_of(Risk.LOW, (Hazard.CAPACITY, Hazard.NOTICED)) is Risk.MEDIUM
    assert risk_of(Risk.MEDIUM, (Hazard.BINDS,)) is risk_of(Risk.LOW, (Hazard.ONE_REPLICA,)) is Risk.HIGH


def test_no_cause_is_undetermined_where_the_plan_ends_one(planned):
    workload = build_fleet(open_demo("two-hundred-k"), SETTINGS).workload("research/nlp-exp")

    untold = verdict_of(workload, "w", SETTINGS.bands).headline
    told = verdict_of(workload, "w", SETTINGS.bands, ("runs hold more GPUs than do anything",)).headline

    assert "undetermined" in untold
    assert "undetermined" not in told
    assert "cause: runs hold more GPUs than do anything" in told
