"""The replay can compile the very rules that the runtime decides by."""

from math import inf

from trimtab.replay.compiled import admit, compiled
from trimtab_runtime.policies import batching
from trimtab_runtime.policies.batching import BatchRule, Cap, Cycle, Echo, Learned, Moment, Returns, Round, RunTime


def one_decision(rule, time, learned, moment, cycle, seen, cap):
    """Take every step of the rule once; return numbers that depend on each."""
    time = batching.observe_run(time, 20.0, 0.007)
    returns = batching.observe_returns(learned.returns, seen)
    learned = Learned(returns, batching.observe_cycle(learned.bursts, cycle))
    decision = batching.decide(rule, time, learned, moment)
    cap = batching.observe_fit(batching.observe_oom(cap, 64), 32, 64)
    return decision.wait_s, decision.wake_at, batching.saving_s(time), cap.limit, batching.refusal_s(time, 20.0, 0.0)


def test_the_compiled_rule_decides_as_the_plain_one():
    return_time = RunTime(50, 16.0, 0.001, 0.0, 0.0, -1.0)
    closed_loop = Returns(50, 16.0, 16.0, 0.0, 16.0, 1.3, return_time, 0.0001)
    arguments = (
        BatchRule(),
        RunTime(20, 16.0, 0.0066, 100.0, 0.01, 0.0001),
        Learned(closed_loop, Echo()),
        Moment(16, 0.0, 16, 0.0, 0, inf, 0),
        Cycle(16, 0, 0.001, 0.0066, 0.003),
        Round(16, 16, 16, 0.001, 1.3),
        Cap(64),
    )
    admit(batching)

    assert compiled(one_decision)(*arguments) == one_decision(*arguments)
    assert one_decision(*arguments)[1] == 32
