import re
from dataclasses import replace

import pytest
from tests.emit.example import example_audit

from trimtab.cli.audit.run import render_audit
from trimtab.cli.output import Format
from trimtab.emit.audit_document import audit_document

STEPS = (("trimtab explain a1", "why, the sums, and how to undo it"),)


def render_report(document, *, width, colour, next_steps=()):
    return render_audit(document, Format.TABLE, width=width, colour=colour, next_steps=next_steps)


@pytest.fixture(scope="module")
def document():
    return audit_document(example_audit())


@pytest.mark.parametrize("width", [80, 120])
def test_the_report_on_a_terminal(document, golden, width):
    golden(f"report-{width}.txt", render_report(document, width=width, colour=False, next_steps=STEPS))


@pytest.mark.parametrize("width", [80, 97, 120, 200])
@pytest.mark.parametrize("colour", [False, True])
def test_no_line_is_longer_than_the_screen(document, width, colour):
    text = render_report(document, width=width, colour=colour, next_steps=STEPS)

    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
    assert max(len(line) for line in plain.splitlines()) <= min(width, 120)


def test_colour_codes_come_only_when_asked_for(document):
    assert "\x1b[" in render_report(document, width=80, colour=True)
    assert "\x1b[" not in render_report(document, width=80, colour=False)


def test_colour_changes_no_word(document):
    plain = render_report(document, width=80, colour=False)
    coloured = re.sub(r"\x1b\[[0-9;]*m", "", render_report(document, width=80, colour=True))

    assert [line.rstrip() for line in coloured.splitlines()] == plain.splitlines()


def test_a_missed_target_is_named(document):
    text = render_report(document, width=120, colour=False)

    assert "5 of 6 targets kept" in text
    assert re.search(r"research/nlp-exp .* ✗ missed", text)


def test_very_long_names_fold_and_lose_nothing(document):
    name = "a-namespace-of-a-very-patient-team/" + "x" * 90
    action = document.plan.actions[0].model_copy(update={"subject": name})
    long = document.model_copy(update={"plan": document.plan.model_copy(update={"actions": (action,)})})

    text = render_report(long, width=80, colour=False)

    assert max(len(line) for line in text.splitlines()) <= 80
    assert text.count("x") >= 90


def test_a_fleet_with_nothing_to_do_is_told_so():
    audit = example_audit()
    bill = audit.bill_micro_usd
    plan = replace(audit.plan, actions=(), not_worth_doing=(), after_micro_usd=bill, bound_micro_usd=bill)

    text = render_report(audit_document(replace(audit, plan=plan)), width=80, colour=False)

    assert "Nothing worth doing was found" in text


def test_square_brackets_in_names_are_not_taken_for_markup(document):
    odd = document.model_copy(update={"fleet": "[red]prod[/red]"})

    assert "[red]prod[/red]" in render_report(odd, width=80, colour=False)
