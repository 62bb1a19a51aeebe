"""The replay can compile the very rule that the checkpointer decides by."""

from math import inf

import pytest
from packages.runtime.tests.policies.test_checkpointing import RULE

from trimtab.replay.compiled import admit, compiled
from trimtab_runtime.policies import checkpointing
from trimtab_runtime.policies.checkpointing import (
    NOTHING_ANSWERED,
    CheckpointState,
    Observation,
    decide,
)

CALM = Observation(
    now_s=1000.0, age_s=1000.0, step_s=0.5, stall_s=0.2, save_s=4.0, saving=False, risk_raised=False, notice_left_s=inf
)
STATE = CheckpointState(900.0, NOTHING_ANSWERED)


@compiled
def decided(rule, state, observation):
    state, decision = decide(rule, state, observation)
    return state.saved_at_s, decision.value


@pytest.mark.parametrize("changes", [{}, {"notice_left_s": 120.0}, {"notice_left_s": 9.0}, {"now_s": 1e6}])
def test_the_compiled_rule_decides_as_the_plain_one(changes):
    admit(checkpointing)
    observation = CALM._replace(**changes)

    state, decision = decide(RULE, STATE, observation)

    assert decided(RULE, STATE, observation) == (state.saved_at_s, decision.value)
