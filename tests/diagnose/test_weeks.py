"""A week against the one before: rows sum to the bill, causes to the change, and a planted cause is the one that is named."""

from dataclasses import replace
from datetime import date, timedelta

import pytest
from hypothesis import given, settings, strategies as st
from tests.fleets import MONDAY, FleetRows, at

from trimtab.catalog import load_catalog
from trimtab.diagnose.bill_split import CostSplit, SplitBasis
from trimtab.diagnose.findings import UNALLOCATED
from trimtab.diagnose.weeks import ChangeCause, IsoWeek, WeekUse, covered_weeks
from trimtab.errors import UnknownName, UsageError
from trimtab.fleet.build import bundle_window
from trimtab.pipeline.spending import SpendingTerms, spending, week
from trimtab.units import HR_PER_WEEK, usd

TERMS = SpendingTerms(usd_per={})
NOISE_MICRO_USD = 2 * HR_PER_WEEK
"""Each hour is split in whole micro-dollars, so a part may be off by one in each hour of both weeks."""


def planted(days=14):
    """A node of four GPUs of which a service of team web holds one, always."""
    return FleetRows(days).node("n0", "g5.12xlarge").hold("web/a", "n0", [0], team="web")


def spend_of(rows, *, start=0, catalog=None, asked=None, terms=TERMS):
    bundle = rows.bundle()
    if start:
        bundle = replace(bundle, meta=bundle.meta.model_copy(update={"start": at(start)}))
    return week(bundle, terms, asked, catalog).spend


def moved(spend, name):
    """What each cause moved of a row, those apart that are no more than rounding."""
    (row,) = [row for row in spend.rows if row.name == name]
    return {cause: usd(micro) for cause, micro in row.causes.items() if abs(micro) > NOISE_MICRO_USD}


def rate(instance_type, catalog=None):
    prices = (catalog or load_catalog()).prices.options("aws", instance_type, "us-east-1", at=MONDAY.date())
    return next(price.usd_hr for price in prices if price.option.value == "on-demand")


def test_more_gpu_hours_are_the_cause_where_a_workload_holds_more():
    spend = spend_of(planted().hold("web/a", "n0", [1], start=HR_PER_WEEK, pod="second", team="web"))

    assert moved(spend, "web/a") == {ChangeCause.GPU_HOURS: pytest.approx(rate("g5.12xlarge") / 4 * HR_PER_WEEK)}
    assert moved(spend, UNALLOCATED) == {ChangeCause.IDLE: pytest.approx(-rate("g5.12xlarge") / 4 * HR_PER_WEEK)}


def test_other_nodes_are_the_cause_where_the_same_gpu_hours_ran_on_dearer_ones():
    rows = FleetRows(14).node("old", "g5.xlarge", end=HR_PER_WEEK).node("new", "g5.12xlarge", start=HR_PER_WEEK)
    rows.hold("web/a", "old", [0], end=HR_PER_WEEK, team="web").hold("web/a", "new", [0], start=HR_PER_WEEK, team="web")

    spend = spend_of(rows)

    dearer = rate("g5.12xlarge") / 4 - rate("g5.xlarge")
    assert moved(spend, "web/a") == {ChangeCause.NODES: pytest.approx(dearer * HR_PER_WEEK, rel=1e-6)}


def own_rates(folder, before, after):
    """Own rates of a node that change with the second week."""
    rows = [f"aws,g5.12xlarge,us-east-1,on-demand,{before},{MONDAY.date()},"]
    rows.append(f"aws,g5.12xlarge,us-east-1,on-demand,{after},{at(HR_PER_WEEK).date()},")
    file = folder / "own.csv"
    file.write_text("\n".join(["provider,instance_type,region,option,usd_hr,as_of,note", *rows]) + "\n")
    return load_catalog(file)


def test_the_price_is_the_cause_where_a_rate_changed_between_the_weeks(tmp_path):
    spend = spend_of(planted(), catalog=own_rates(tmp_path, 4.0, 6.0))

    assert moved(spend, "web/a") == {ChangeCause.PRICE: pytest.approx(0.5 * HR_PER_WEEK)}


def test_a_history_is_charged_at_the_price_of_each_day_unless_one_day_is_named(tmp_path):
    catalog = own_rates(tmp_path, 4.0, 6.0)
    bundle = planted().bundle()

    each, later = (
        spending(bundle, replace(TERMS, at=day), catalog).spent(CostSplit(by=SplitBasis.TEAM)).total_micro_usd
        for day in (None, at(HR_PER_WEEK).date())
    )

    assert (usd(each), usd(later)) == ((4.0 + 6.0) * HR_PER_WEEK, 2 * 6.0 * HR_PER_WEEK)


def test_prices_of_one_day_leave_no_change_of_price(tmp_path):
    terms = replace(TERMS, at=at(HR_PER_WEEK).date())

    spend = spend_of(planted(), catalog=own_rates(tmp_path, 4.0, 6.0), terms=terms)

    assert moved(spend, "web/a") == {}
    assert usd(spend.micro_usd) == pytest.approx(6.0 * HR_PER_WEEK)


def test_who_begins_and_who_ends_is_named():
    rows = planted().hold("lab/gone", "n0", [1], end=100, team="lab")
    rows.hold("lab/new", "n0", [2], start=200, end=210, team="lab")

    spend = spend_of(rows)

    quarter = rate("g5.12xlarge") / 4
    assert moved(spend, "lab/gone") == {ChangeCause.GONE: pytest.approx(-100 * quarter)}
    assert moved(spend, "lab/new") == {ChangeCause.NEW: pytest.approx(10 * quarter)}
    assert spend.teams == ("web", "lab")


def test_a_history_of_one_week_has_no_former_one_and_no_change():
    spend = spend_of(planted(days=7))

    assert spend.former is None
    assert "history begins on" in spend.why_no_former
    assert all(row.former is None and not row.causes for row in spend.rows)


def test_the_last_whole_week_is_taken_where_another_has_begun():
    spend = spend_of(planted(days=17))

    assert (spend.chosen.whole, spend.chosen.window.start) == (True, at(HR_PER_WEEK))


def test_a_former_week_that_is_known_in_part_is_compared_by_the_hour():
    spend = spend_of(planted(), start=72)

    assert (spend.former.whole, spend.former.window.hours) == (False, HR_PER_WEEK - 72)
    assert moved(spend, "web/a") == {}
    assert [row.former.micro_usd for row in spend.rows] == [
        pytest.approx(row.now.micro_usd, abs=NOISE_MICRO_USD) for row in spend.rows
    ]


def test_hours_that_are_no_day_are_no_former_week():
    spend = spend_of(planted(), start=HR_PER_WEEK - 5)

    assert spend.former is None
    assert "5 h" in spend.why_no_former


def test_a_week_that_is_asked_for_is_taken_and_an_unknown_one_refused_with_those_there_are():
    now = IsoWeek.of(MONDAY.date())

    assert spend_of(planted(), asked=now).chosen.week == now
    with pytest.raises(UnknownName, match=str(now)):
        spend_of(planted(), asked=now.before)


def test_gpus_that_are_held_and_do_nothing_are_idle():
    rows = planted().use("web/a", "n0", 0, range(HR_PER_WEEK, HR_PER_WEEK + 100), sm=0.6)
    rows.use("web/a", "n0", 0, range(HR_PER_WEEK + 100, HR_PER_WEEK + 140), sm=0.0)

    (row,) = [row for row in spend_of(rows).rows if row.name == "web/a"]

    assert (row.now.gpu_hours, row.now.measured_gpu_hours, row.now.idle_gpu_hours) == (HR_PER_WEEK, 140, 40)


def test_weeks_are_those_of_iso_8601():
    assert IsoWeek.parse("2026-W53").start.date() == date(2026, 12, 28)
    assert IsoWeek.of(date(2027, 1, 3)) == IsoWeek(2026, 53)
    assert IsoWeek(2027, 1).before == IsoWeek(2026, 53)
    assert str(IsoWeek(2027, 1)) == "2027-W01"


@pytest.mark.parametrize("text", ["2027-W53", "2026-W00", "2026-44", "W44", "", "2026-W44 and more"])
def test_what_is_no_week_is_refused_with_the_form(text):
    with pytest.raises(UsageError, match="2026-W44"):
        IsoWeek.parse(text)


HOLDS = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(0, 3), st.integers(0, 400), st.integers(1, 300)),
    min_size=1,
    max_size=6,
)


@settings(max_examples=25)
@given(HOLDS, st.integers(0, 200))
def test_all_weeks_sum_to_the_bill_and_every_change_to_its_causes(holds, start):
    rows = FleetRows(21).node("n0", "g5.12xlarge", end=460).node("n1", "g5.xlarge", start=100)
    for index, (name, device, first, hours) in enumerate(holds):
        rows.hold(f"lab/{name}", "n0", [device], start=first, end=first + hours, pod=f"p{index}", team=f"team-{name}")
    bundle = rows.bundle()
    bundle = replace(bundle, meta=bundle.meta.model_copy(update={"start": MONDAY + timedelta(hours=start)}))

    weeks = [week(bundle, TERMS, part.week).spend for part in covered_weeks(bundle_window(bundle))]

    bill = spending(bundle, TERMS).spent(CostSplit(by=SplitBasis.TEAM)).total_micro_usd
    assert sum(spend.micro_usd for spend in weeks) == bill
    for spend in weeks:
        for row in spend.rows:
            assert sum(row.causes.values()) == (row.now.micro_usd - row.former.micro_usd if row.former else 0)
            assert row.now != WeekUse() or row.former != WeekUse()
        assert sum(use.now.micro_usd for team in spend.teams for use in spend.of_team(team)) <= spend.micro_usd
