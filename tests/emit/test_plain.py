"""Typed values survive their plain form, every effect among them, and what does not fit is refused with its place."""

import json

import pytest
from hypothesis import given, strategies as st
from tests.emit.strategies import EFFECTS

from trimtab.catalog.kinds import BuyingOption
from trimtab.deployment.effects import Effect
from trimtab.emit.plain import from_plain, to_plain
from trimtab.errors import InputError


@pytest.mark.parametrize("kind", list(EFFECTS), ids=lambda kind: kind.__name__)
@given(data=st.data())
def test_an_effect_survives_json(kind, data):
    effect = data.draw(EFFECTS[kind])

    assert from_plain(Effect, json.loads(json.dumps(to_plain(effect)))) == effect


def test_an_unknown_effect_is_named():
    with pytest.raises(InputError, match=r"action a1.*Teleport"):
        from_plain(Effect, {"type": "Teleport"}, where="action a1")


def test_a_misfit_names_its_place():
    plain = {"type": "StartBeforeRuns", "lead_s": "soon"}

    with pytest.raises(InputError, match=r"value\.lead_s: expected float, saw 'soon'"):
        from_plain(Effect, plain)


def test_a_missing_value_and_one_too_many_are_faults():
    with pytest.raises(InputError, match="lead_s"):
        from_plain(Effect, {"type": "StartBeforeRuns"})
    with pytest.raises(InputError, match="has no haste"):
        from_plain(Effect, {"type": "StartBeforeRuns", "lead_s": 1.0, "haste": True})


def test_an_unknown_choice_lists_the_known_ones():
    plain = {
        "type": "BuyCommitment",
        "pool": {"type": "Pool", "provider": "aws", "instance_type": "x", "region": "y", "capacity": "on-demand"},
        "option": "RESERVED_9Y",
        "count": 1,
        "rate_micro_usd_hr": 1,
        "on_demand_micro_usd_hr": 2,
    }

    with pytest.raises(InputError, match=BuyingOption.RESERVED_3Y.name):
        from_plain(Effect, plain)
