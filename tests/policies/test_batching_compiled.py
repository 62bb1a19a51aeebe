"""The replay can compile the very rules that the runtime decides by."""

from math import inf

import numba

from trimtab.replay.compiled import admit
from trimtab_runtime.policies import batching
from trimtab_runtime.policies.batching import BatchRule, Cap, Cycle, Echo, Learned, Moment, RunTime


def one_decision(rule, time, learned, moment, cycle, cap):
    """Take every step of the rule once; return numbers that depend on each."""
    time = batching.observe_run(time, 20.0, 0.007)
    learned = Learned(batching.observe_cycle(learned.returns, cycle), learned.bursts)
    decision = batching.decide(rule, time, learned, moment)
    cap = batching.observe_fit(batching.observe_oom(cap, 64), 32, 64)
    return decision.wait_s, decision.wake_at, batching.horizon_s(time), cap.limit, batching.refusal_s(time, 20.0, 0.0)


def test_the_compiled_rule_decides_as_the_plain_one():
    closed_loop = Echo(20, 1.0, 16.0, 0.0, 0.45, 0.001, 0.0001)
    arguments = (
        BatchRule(),
        RunTime(20, 16.0, 0.0066, 100.0, 0.01, 0.0001),
        Learned(closed_loop, Echo()),
        Moment(16, 0.0, 16, 0.0, 0, inf, 0),
        Cycle(16.0, 16, 0, 0.001, 0.0066, 0.003),
        Cap(64),
    )
    admit(batching)

    assert numba.njit(one_decision)(*arguments) == one_decision(*arguments)
    assert one_decision(*arguments)[1] == 32
