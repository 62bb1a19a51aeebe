"""A plan that is kept comes back as it was, facts and all."""

import pytest
from tests.emit.cluster_example import example_facts
from tests.emit.example import example_audit

from trimtab.emit.kept_plan import KeptPlan, parse_kept_plan, render_kept_plan
from trimtab.emit.manifests.plan_files import emit_plan
from trimtab.errors import InputError

KEPT = KeptPlan(fleet="demo", plan=example_audit().plan, facts=example_facts())


def test_a_kept_plan_comes_back_as_it_was():
    back = parse_kept_plan(render_kept_plan(KEPT), where="x")

    assert back.facts == KEPT.facts
    assert back.plan.actions == KEPT.plan.actions
    assert emit_plan(back.plan, back.facts) == emit_plan(KEPT.plan, KEPT.facts)


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"format": 0}', '{"format": 1}'])
def test_what_is_no_kept_plan_is_refused_with_its_place(text):
    with pytest.raises(InputError, match=r"plan\.json"):
        parse_kept_plan(text, where="plan.json")
