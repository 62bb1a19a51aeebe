"""A plan that is kept comes back as it was, facts and all; what is damaged or newer is refused with place and cure."""

import json
from dataclasses import replace

import pytest
from tests.emit.cluster_example import example_facts
from tests.emit.example import example_audit

from trimtab.emit.kept_plan import FORMAT, KeptPlan, parse_kept_plan, render_kept_plan
from trimtab.emit.manifests.plan_files import emit_plan
from trimtab.errors import InputError

KEPT = KeptPlan(fleet="demo", plan=example_audit().plan, facts=example_facts())


def test_a_kept_plan_comes_back_as_it_was():
    back = parse_kept_plan(render_kept_plan(KEPT), where="x")

    assert back.facts == KEPT.facts
    assert back.plan.actions == KEPT.plan.actions
    assert emit_plan(back.plan, back.facts) == emit_plan(KEPT.plan, KEPT.facts)


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"format": 0}', '{"format": 1}', '{"format": true}'])
def test_what_is_no_kept_plan_is_refused_with_its_place_and_the_cure(text):
    with pytest.raises(InputError, match=r"plan\.json"):
        parse_kept_plan(text, where="plan.json")


def test_a_plan_of_a_newer_version_asks_for_an_update():
    newer = render_kept_plan(KEPT).replace(f'"format": {FORMAT}', f'"format": {FORMAT + 1}')

    with pytest.raises(InputError, match=r"plan\.json .*up to format 4: update trimtab"):
        parse_kept_plan(newer, where="plan.json")


def test_a_plan_of_format_3_is_read_with_its_alternatives():
    older = json.loads(render_kept_plan(KEPT))
    older["format"] = 3
    older["kept"]["plan"]["ventures"] = older["kept"]["plan"].pop("alternatives")

    back = parse_kept_plan(json.dumps(older), where="plan.json")

    assert back.plan.alternatives == KEPT.plan.alternatives != ()


def damaged(change):
    plain = json.loads(render_kept_plan(KEPT))
    change(plain["kept"])
    return json.dumps(plain)


@pytest.mark.parametrize(
    ("change", "place"),
    [
        (lambda kept: kept.pop("fleet"), "fleet: Field required"),
        (lambda kept: kept["plan"].update(options="many"), r"plan\.options: .*integer.*saw 'many'"),
        (lambda kept: kept["plan"]["actions"][0].update(haste=1), r"plan\.actions\.0\.haste: .*saw 1"),
        (
            lambda kept: kept["plan"]["actions"][0]["saving_usd_mo"].update(low=1e9),
            r"plan\.actions\.0\.saving_usd_mo: .*low",
        ),
    ],
)
def test_a_damaged_plan_is_refused_with_file_place_and_cure(change, place):
    with pytest.raises(InputError, match=rf"plan\.json is damaged: {place}.*run `trimtab audit` again"):
        parse_kept_plan(damaged(change), where="plan.json")


def test_a_figure_that_json_does_not_have_is_refused_before_it_is_kept():
    with pytest.raises(ValueError, match="Out of range"):
        render_kept_plan(replace(KEPT, plan=replace(KEPT.plan, work_gap_frac=float("nan"))))
