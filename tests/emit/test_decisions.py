"""Decision records: who owns a decision, what else could be done and its price, when it is looked at again, and their index."""

from dataclasses import replace
from datetime import timedelta

import pytest
from tests.emit.cluster_example import example_facts
from tests.emit.example import example_audit

from trimtab.emit.manifests.facts import EmitFacts
from trimtab.emit.manifests.plan_files import emit_plan
from trimtab.emit.manifests.plan_pages import review_date, saved_by
from trimtab.plan.model import NotWorthDoing, Schedule, ScheduledAction

PLAN = example_audit().plan
SCALING = next(action for action in PLAN.actions if action.id == "a8")


def records(plan=PLAN, facts=None):
    emission = emit_plan(plan, facts or example_facts())
    return {file.path: file.text for file in emission.files if file.path.startswith("decisions/")}


def record_of(action, **more):
    return next(text for text in records(**more).values() if text.startswith(f"# {action.id}: "))


def test_an_alternative_has_its_price_and_the_reason_against_it():
    refused = NotWorthDoing(lever="spot", subject="prod/chat-api", saving_usd_mo=-12.5, reason="no replica may be lost")
    unkept = NotWorthDoing(lever="sharing", subject="prod/chat-api", saving_usd_mo=None, reason="memory does not fit")

    text = record_of(SCALING, plan=replace(PLAN, not_worth_doing=(refused, unkept)))

    part = text.partition("## Alternatives")[2].partition("##")[0]
    assert "Leave it as it is:" in part
    assert "(costs $12.50 a month): no replica may be lost." in part
    assert "(no price): memory does not fit." in part


def test_what_was_refused_for_others_is_no_alternative():
    other = NotWorthDoing(lever="spot", subject="lab/else", saving_usd_mo=1.0, reason="another's")

    assert "another's" not in record_of(SCALING, plan=replace(PLAN, not_worth_doing=(other,)))


def test_a_purchase_says_in_order_and_record_what_is_bought_when_and_that_nothing_undoes_it():
    (order,) = (file.text for file in emit_plan(PLAN, example_facts()).files if "orders/buy-p4d" in file.path)
    record = record_of(next(action for action in PLAN.actions if action.id == "a2"))

    assert "| 2026-12-01 | 1 node |\n| 2026-12-31 | 1 node |" in order
    assert "1 on 2026-12-01, 1 on 2026-12-31" in record
    risk = record.splitlines()[4]
    assert "high: a purchase is paid to the end of its term, used or not, and cannot be undone" in risk
    assert "Cannot be undone before its term ends" in record.partition("## Rollback")[2]


def test_owners_are_the_teams_of_the_workloads():
    facts = example_facts()
    named = tuple(replace(one, team="search" if "search" in one.name else "") for one in facts.workloads)

    assert "| proposed | search |" in record_of(SCALING, facts=replace(facts, workloads=named))
    assert "| proposed | to be named |" in record_of(SCALING, facts=EmitFacts())


@pytest.mark.parametrize(("quarter", "days"), [(1, 91), (3, 273), (0, 365)])
def test_an_action_is_looked_at_again_when_its_quarter_has_ended(quarter, days):
    planned = replace(SCALING, quarter=quarter)

    assert review_date(planned, PLAN) == PLAN.window.end.date() + timedelta(days=days)


def test_the_index_leads_to_every_record():
    found = records()
    index = found.pop("decisions/README.md")
    del found["decisions/year.md"]

    assert {path.removeprefix("decisions/") for path in found} == {
        line.partition("](")[2].partition(")")[0] for line in index.splitlines() if "](" in line
    }
    assert all(f"| {action.id} |" in index for action in PLAN.actions)


def test_the_year_is_a_page_of_four_quarters_that_links_every_record():
    pages = records()
    year = pages["decisions/year.md"]
    names = {path.rpartition("/")[2] for path in pages} - {"README.md", "year.md"}

    assert [line[:11] for line in year.splitlines() if line.startswith("## ")][:4] == [
        f"## Quarter {number}"[:11] for number in range(1, 5)
    ]
    assert {name for name in names if f"]({name})" in year} == names


def test_a_part_of_a_plan_has_no_year():
    emission = emit_plan(PLAN, example_facts(), only=("a8",))

    assert not any(file.path == "decisions/year.md" for file in emission.files)


def test_what_is_saved_by_a_month_is_what_the_bills_until_then_are_short_of_today():
    """By hand: $100 a month today, $70 from month 1, $20 from month 4, worked in another order than they end."""
    steps = (
        ScheduledAction(action="a2", start_mo=0.0, done_mo=4.0, bill_usd_mo=20.0, quick_win=False),
        ScheduledAction(action="a1", start_mo=0.0, done_mo=1.0, bill_usd_mo=70.0, quick_win=True),
    )
    bills = (100.0, 70.0, 70.0, 70.0, *[20.0] * 9)
    course = Schedule(steps=steps, bill_usd_mo=bills, year_usd=100 + 3 * 70 + 8 * 20)

    assert [saved_by(course, month) for month in (0, 1, 3, 4, 6, 12)] == [0, 0, 60, 90, 250, 730]
    assert saved_by(course, 12) == 12 * 100 - course.year_usd
