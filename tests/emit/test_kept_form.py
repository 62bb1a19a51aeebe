"""Every effect survives the form in which plans are kept, and what does not fit it is refused with its place."""

import json

import pytest
from hypothesis import given, strategies as st
from pydantic import TypeAdapter, ValidationError
from tests.emit.strategies import EFFECTS

from trimtab.catalog.kinds import BuyingOption
from trimtab.plan.model import Change

CHANGE = TypeAdapter(Change)


def change(effect):
    return CHANGE.validate_python({"subject": "a", "effect": effect})


@pytest.mark.parametrize("kind", list(EFFECTS), ids=lambda kind: kind.__name__)
@given(data=st.data())
def test_an_effect_survives_json(kind, data):
    made = Change(subject="a", effect=data.draw(EFFECTS[kind]))

    assert CHANGE.validate_json(json.dumps(CHANGE.dump_python(made, mode="json"), allow_nan=False)) == made


@pytest.mark.parametrize("effect", [{"type": "Teleport"}, {"lead_s": 1.0}, "soon"])
def test_an_effect_of_no_known_class_is_refused(effect):
    with pytest.raises(ValidationError, match=r"effect"):
        change(effect)


def test_a_misfit_names_its_place():
    with pytest.raises(ValidationError, match=r"effect\.StartBeforeRuns\.lead_s"):
        change({"type": "StartBeforeRuns", "lead_s": "soon"})


def test_a_missing_value_is_a_fault():
    with pytest.raises(ValidationError, match="lead_s"):
        change({"type": "StartBeforeRuns"})


def test_an_unknown_choice_lists_the_known_ones():
    effect = {
        "type": "BuyCommitment",
        "pool": {"provider": "aws", "instance_type": "x", "region": "y", "capacity": "on-demand"},
        "option": "reserved-9y",
        "count": 1,
        "rate_micro_usd_hr": 1,
        "on_demand_micro_usd_hr": 2,
    }

    with pytest.raises(ValidationError, match=BuyingOption.RESERVED_3Y.value):
        change(effect)
