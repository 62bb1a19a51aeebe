"""A plan held against a later month of the same fleet, made by hand: what was enacted is seen, what was not is named."""

from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest
from tests.fleets import MONDAY, FleetRows

from trimtab.catalog import BuyingOption, load_catalog
from trimtab.catalog.pools import Pool
from trimtab.deployment.effects import ReleaseIdle, ReleaseNodes, SetReplicaPolicy, UseOffering
from trimtab.emit.kept_plan import KeptPlan, parse_kept_plan, render_kept_plan
from trimtab.emit.manifests.facts import EmitFacts
from trimtab.errors import InputError
from trimtab.fleet.build import build_fleet
from trimtab.fleet.market import Market
from trimtab.fleet.model import Window
from trimtab.fleet.settings import Settings
from trimtab.levers import autoscaling, idle_release, right_size
from trimtab.pipeline import verify_plan
from trimtab.plan.model import Action, Change, Plan, Risk
from trimtab.plan.verify.baseline import REQUESTS, Baseline, WorkloadUse, baseline_of, fixed_frac
from trimtab.plan.verify.verification import ActionStatus, growth_of
from trimtab.policies.scaling import HpaPolicy
from trimtab.provenance import Basis, Estimate
from trimtab.units import HR_PER_MO, micro_usd, usd

DAYS = 14
SERVICES = ("web/a", "web/b")


def estimate(value, part=0.1):
    return Estimate(value=value, low=value * (1 - part), high=value * (1 + part), basis=Basis.CALIBRATED)


def market():
    settings = Settings()
    return Market(
        catalog=load_catalog(),
        at=MONDAY.date(),
        max_term_years=settings.planning.max_term_years,
        assumptions=settings.assumptions,
    )


def rate(instance_type):
    return usd(market().rate(Pool("aws", instance_type, "us-east-1")))


def before():
    """Two services that hold a g5.12xlarge each, and a node that nobody holds."""
    rows = FleetRows(DAYS).node("spare", "g5.xlarge")
    for place, name in enumerate(SERVICES):
        rows.node(f"n{place}", "g5.12xlarge").hold(name, f"n{place}", [0], owner_kind="Deployment")
        rows.use(name, f"n{place}", 0, range(DAYS * 24), sm=0.3)
    return rows.bundle()


def after(moved, spare=False, sm=0.3):
    """The later weeks: services of `moved` hold a g5.xlarge, the others stay; window from the fit window's end on."""
    first, last = DAYS * 24, 2 * DAYS * 24
    rows = FleetRows(2 * DAYS)
    if spare:
        rows.node("spare", "g5.xlarge")
    for place, name in enumerate(SERVICES):
        node, kind = (f"m{place}", "g5.xlarge") if name in moved else (f"n{place}", "g5.12xlarge")
        rows.node(node, kind).hold(name, node, [0], owner_kind="Deployment")
        rows.use(name, node, 0, range(first, last), sm=sm)
    return rows.bundle()


def action(number, lever, subject, effects, saving_usd_mo):
    return Action(
        id=f"a{number}",
        lever=lever,
        subject=subject,
        changes=tuple(Change(subject=name, effect=effect) for name, effect in effects.items()),
        saving_micro_usd=micro_usd(saving_usd_mo * DAYS * 24 / HR_PER_MO),
        saving_usd_mo=estimate(saving_usd_mo),
        standalone_usd_mo=saving_usd_mo,
        last_in_usd_mo=saving_usd_mo,
        effort_weeks=1.0,
        risk=Risk.LOW,
        quarter=1,
        evidence=(),
        rollback="undo it",
    )


def kept():
    """Move both services to nodes of one GPU, and give the spare node back."""
    smaller = UseOffering(
        pool=Pool("aws", "g5.xlarge", "us-east-1"), gpu="A10G", gpus_per_node=1, speed=estimate(1.0, 0.0)
    )
    each = (rate("g5.12xlarge") - rate("g5.xlarge")) * HR_PER_MO
    actions = (
        action(1, right_size.NAME, "web/*", dict.fromkeys(SERVICES, smaller), 2 * each),
        action(
            2, idle_release.NAME, "1 unheld", {"spare": ReleaseNodes(nodes=("spare",))}, rate("g5.xlarge") * HR_PER_MO
        ),
    )
    fit = Window(start=MONDAY, hours=DAYS * 24)
    baseline = baseline_of(build_fleet(before(), Settings()), market())
    cost = micro_usd(baseline.usd_hr * fit.hours)
    plan = Plan(
        window=fit,
        before_micro_usd=cost,
        after_micro_usd=cost - sum(one.saving_micro_usd for one in actions),
        bound_micro_usd=0,
        actions=actions,
        not_worth_doing=(),
        options=2,
    )
    return KeptPlan(fleet="by hand", plan=plan, facts=EmitFacts(), baseline=baseline)


def verdicts(bundle, catalog=None):
    found = verify_plan(kept(), bundle, catalog=catalog)
    return found, {one.id: one for one in found.actions}


def test_a_plan_that_was_enacted_is_on_track_to_the_dollar():
    found, actions = verdicts(after(SERVICES))

    assert [one.status for one in actions.values()] == [ActionStatus.ON_TRACK, ActionStatus.ON_TRACK]
    assert found.saved_usd_mo == pytest.approx(found.predicted_usd_mo, abs=0.01)
    assert found.outside_usd_mo == pytest.approx(0, abs=0.01)


def test_a_price_file_without_dates_is_of_today_and_changes_no_rate_of_the_plan(tmp_path):
    own = tmp_path / "own.csv"
    own.write_text("provider,instance_type,region,option,usd_hr\naws,g5.12xlarge,us-east-1,on-demand,1.00\n")
    listed, _ = verdicts(after(SERVICES[:1]))

    cheap, _ = verdicts(after(SERVICES[:1]), catalog=load_catalog(own))

    assert cheap.saved_usd_mo == pytest.approx(listed.saved_usd_mo)
    assert cheap.rates_usd_mo == pytest.approx((1.00 - rate("g5.12xlarge")) * HR_PER_MO)


def test_the_action_that_was_half_enacted_is_named_with_the_workload_left():
    found, actions = verdicts(after(SERVICES[:1]))

    assert actions["a1"].status is ActionStatus.SHORT
    assert actions["a1"].enacted_frac == pytest.approx(0.5)
    assert "web/b" in actions["a1"].cause
    assert actions["a1"].realised_usd_mo == pytest.approx(actions["a1"].predicted_usd_mo.value / 2, rel=1e-6)
    assert found.saved_usd_mo == pytest.approx(sum(one.realised_usd_mo for one in actions.values()), abs=0.01)


def test_a_change_that_is_hardly_seen_is_not_enacted_and_says_how_much_is_seen():
    first, last = DAYS * 24, 2 * DAYS * 24
    tried = first + DAYS * 24 // 10
    rows = FleetRows(2 * DAYS)
    for place, name in enumerate(SERVICES):
        start = tried if place == 0 else 0
        rows.node(f"n{place}", "g5.12xlarge", start=start)
        rows.hold(name, f"n{place}", [0], start=start, owner_kind="Deployment")
        rows.use(name, f"n{place}", 0, range(max(first, start), last), sm=0.3)
    rows.node("m0", "g5.xlarge", start=first, end=tried)
    rows.hold(SERVICES[0], "m0", [0], start=first, end=tried, owner_kind="Deployment")
    rows.use(SERVICES[0], "m0", 0, range(first, tried), sm=0.3)

    _, actions = verdicts(rows.bundle())

    assert actions["a1"].status is ActionStatus.NOT_ENACTED
    assert actions["a1"].enacted_frac == pytest.approx(0.05, abs=0.005)
    assert "only 5% of it is seen" in actions["a1"].cause


def test_a_node_that_is_still_there_was_not_given_back():
    _, actions = verdicts(after(SERVICES, spare=True))

    assert actions["a2"].status is ActionStatus.NOT_ENACTED
    assert actions["a2"].realised_usd_mo == pytest.approx(0, abs=0.01)


def test_growth_that_idle_gpus_absorb_costs_the_former_way_nothing():
    found, _ = verdicts(after((), spare=True, sm=0.45))

    assert found.demand_usd_mo == pytest.approx(0)
    assert found.saved_usd_mo == pytest.approx(0)


def test_growth_beyond_the_healthy_band_raises_what_the_former_way_would_cost():
    found, _ = verdicts(after((), spare=True, sm=1.0))

    assert found.demand_usd_mo == pytest.approx(2 * rate("g5.12xlarge") * HR_PER_MO * (1.0 / 0.8 - 1), rel=0.01)


def with_price_cut():
    """The catalog with the rate of a g5.xlarge halved in the later weeks."""
    catalog = load_catalog()
    then = catalog.prices.price("aws", "g5.xlarge", "us-east-1", BuyingOption.ON_DEMAND, at=MONDAY.date())
    cut = replace(then, usd_hr=then.usd_hr / 2, as_of=(MONDAY + timedelta(days=20)).date())
    return replace(catalog, prices=replace(catalog.prices, prices=(*catalog.prices.prices, cut)))


def test_a_price_cut_is_told_apart_from_what_was_saved():
    found, actions = verdicts(after(SERVICES), with_price_cut())

    assert found.rates_usd_mo == pytest.approx(-rate("g5.xlarge") * HR_PER_MO, rel=1e-6)
    assert actions["a1"].status is ActionStatus.ON_TRACK
    bridge = found.then_usd_mo + found.demand_usd_mo - found.saved_usd_mo + found.rates_usd_mo
    assert bridge == pytest.approx(found.now_usd_mo)


def chat(rows, first, last, nodes, growth=1.0):
    """A service with a replica on each node; `nodes(hour)` are up; activity follows the clock."""
    for number in range(4):
        up = [hour for hour in range(first, last) if number < nodes(hour)]
        for run_start, run_end in runs(up):
            name = f"chat{number}-{run_start}"
            rows.node(name, "g5.xlarge", run_start, run_end)
            rows.hold("chat/api", name, [0], run_start, run_end, pod=name, owner_kind="Deployment")
            level = {hour: min(1.0, (0.3 if is_day(hour) else 0.15) * growth * 4 / nodes(hour)) for hour in up}
            rows.use("chat/api", name, 0, range(run_start, run_end), sm=level.get)
    return rows


def is_day(hour):
    return 8 <= hour % 24 < 20


def runs(hours):
    """Consecutive hours as (first, last + 1)."""
    starts = [hour for hour in hours if hour - 1 not in hours]
    ends = [hour + 1 for hour in hours if hour + 1 not in hours]
    return list(zip(starts, ends, strict=True))


def test_a_planted_saving_is_recovered_through_growth_a_mix_shift_and_a_price_cut():
    """A service scaled by the clock, one of two services moved, the spare node gone; demand grew by 40 % on one of them."""
    first, last = DAYS * 24, 2 * DAYS * 24
    then_rows = chat(FleetRows(DAYS), 0, first, lambda hour: 4)
    then = baseline_of(build_fleet(then_rows.bundle(), Settings()), market())
    both = Baseline(workloads=(*kept().baseline.workloads, *then.workloads), unheld=kept().baseline.unheld)
    scale = SetReplicaPolicy(policy=HpaPolicy(target_frac=0.6, min_replicas=2, max_replicas=8), metric="activity")
    planted_usd_mo = {
        "a1": (rate("g5.12xlarge") - rate("g5.xlarge")) * HR_PER_MO,
        "a2": rate("g5.xlarge") * HR_PER_MO,
        "a3": rate("g5.xlarge") * HR_PER_MO * (4 - (3 * 12 + 2 * 12) / 24),
    }
    one = kept()
    scaling = action(3, autoscaling.NAME, "chat/api", {"chat/api": scale}, planted_usd_mo["a3"])
    plan = Plan(
        **{name: getattr(one.plan, name) for name in Plan.__dataclass_fields__ if name != "actions"},
        actions=(*one.plan.actions, scaling),
    )
    later = chat(FleetRows(2 * DAYS), first, last, lambda hour: 3 if is_day(hour) else 2, growth=1.4)
    for place, (name, shape) in enumerate(zip(SERVICES, ("g5.xlarge", "g5.12xlarge"), strict=True)):
        later.node(f"w{place}", shape).hold(name, f"w{place}", [0], owner_kind="Deployment")
        later.use(name, f"w{place}", 0, range(first, last), sm=0.35)

    found = verify_plan(
        KeptPlan(fleet="", plan=plan, facts=EmitFacts(), baseline=both), later.bundle(), catalog=with_price_cut()
    )

    tolerance_usd_mo = 0.02 * found.now_usd_mo
    actions = {verdict.id: verdict for verdict in found.actions}
    assert found.saved_usd_mo == pytest.approx(sum(planted_usd_mo.values()), abs=tolerance_usd_mo)
    for name, usd_mo in planted_usd_mo.items():
        assert actions[name].realised_usd_mo == pytest.approx(usd_mo, abs=tolerance_usd_mo)
    assert [actions[name].status for name in ("a1", "a2", "a3")] == [
        ActionStatus.SHORT,
        ActionStatus.ON_TRACK,
        ActionStatus.ON_TRACK,
    ]
    assert "web/b" in actions["a1"].cause


def test_history_of_the_fit_window_alone_is_refused():
    with pytest.raises(InputError, match="less than a day"):
        verify_plan(kept(), before())


def test_a_kept_plan_comes_back_with_its_baseline():
    assert parse_kept_plan(render_kept_plan(kept()), where="here").baseline == kept().baseline


def test_capacity_that_stands_still_shows_no_release_of_idle_nodes():
    one = kept()
    held = action(3, idle_release.NAME, "web/a", {"web/a": ReleaseIdle(startup_s=300.0)}, 100.0)
    plan = Plan(
        **{name: getattr(one.plan, name) for name in Plan.__dataclass_fields__ if name != "actions"}, actions=(held,)
    )

    found = verify_plan(KeptPlan(fleet="", plan=plan, facts=EmitFacts(), baseline=one.baseline), after((), spare=True))

    assert [verdict.status for verdict in found.actions] == [ActionStatus.NOT_ENACTED]


def use(still, work, capacity, peak_load=0.6, fixed=0.0):
    """A service by its requests an hour (mean and peak alike) and its replicas."""
    return WorkloadUse(
        workload="chat/api",
        uses=(),
        held_still=still,
        mean_capacity=capacity,
        work=REQUESTS,
        mean_work_per_hr=work,
        peak_work_per_hr=work,
        peak_load_frac=peak_load,
        fixed_frac=fixed,
    )


def test_replicas_that_stood_still_grow_by_whole_replicas():
    assert growth_of(use(True, 100.0, 4.0), use(True, 120.0, 2.0)) == 1.0
    assert growth_of(use(True, 100.0, 4.0), use(True, 150.0, 2.0)) == pytest.approx(5 / 4)


def test_what_a_scaled_service_uses_without_work_does_not_grow_with_it():
    assert growth_of(use(False, 100.0, 4.0, fixed=0.25), use(False, 200.0, 4.0)) == pytest.approx(0.25 + 0.75 * 2)


def test_the_part_of_capacity_that_does_not_move_with_work_is_where_the_line_meets_none():
    work = np.arange(48.0)

    assert fixed_frac(work, 1.0 + work / 23.5) == pytest.approx(0.5)
    assert fixed_frac(work, np.full(48, 3.0)) == 1.0
    assert fixed_frac(work[:5], work[:5]) == 0.0


def test_a_scaler_that_was_off_on_half_of_the_days_is_named():
    first, last = DAYS * 24, 2 * DAYS * 24
    then = baseline_of(build_fleet(chat(FleetRows(DAYS), 0, first, lambda hour: 4).bundle(), Settings()), market())
    scale = SetReplicaPolicy(policy=HpaPolicy(target_frac=0.6, min_replicas=2, max_replicas=8), metric="activity")
    one = kept()
    plan = replace(one.plan, actions=(action(1, autoscaling.NAME, "chat/api", {"chat/api": scale}, 1_000.0),))
    off = (first + last) // 2
    later = chat(FleetRows(2 * DAYS), first, last, lambda hour: 4 if hour >= off else 3 if is_day(hour) else 2)

    found = verify_plan(KeptPlan(fleet="", plan=plan, facts=EmitFacts(), baseline=then), later.bundle())

    assert found.actions[0].status is ActionStatus.SHORT
    assert found.actions[0].cause == "enacted by 50%"
