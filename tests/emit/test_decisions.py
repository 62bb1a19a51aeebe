"""Decision records: who owns a decision, what else could be done and its price, when it is looked at again, and their index."""

from dataclasses import replace
from datetime import timedelta

import pytest
from tests.emit.cluster_example import example_facts
from tests.emit.example import example_audit

from trimtab.emit.manifests.decision_record import review_date
from trimtab.emit.manifests.facts import EmitFacts
from trimtab.emit.manifests.plan_files import emit_plan
from trimtab.plan.model import NotWorthDoing

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

    assert {path.removeprefix("decisions/") for path in found} == {
        line.partition("](")[2].partition(")")[0] for line in index.splitlines() if "](" in line
    }
    assert all(f"| {action.id} |" in index for action in PLAN.actions)
