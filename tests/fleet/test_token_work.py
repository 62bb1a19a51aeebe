"""Demand counted in tokens: what each takes of a replica, what a step's work is, and when requests are counted instead."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra.numpy import arrays
from tests.fleets import FleetRows

from trimtab.fleet.build import build_fleet
from trimtab.fleet.model import ServiceObservation, TokenReadings
from trimtab.fleet.settings import Settings
from trimtab.fleet.token_work import TokenWork, in_tokens, token_work
from trimtab.replay.outcomes.evaluate import law_of

SETTINGS = Settings()
NAME = "chat/api"
LE_S = (1.0, 2.0, 4.0, 8.0, float("inf"))
MEASURED = {"prefill_s": 30.0, "decode_s": 90.0}


def is_long(hour):
    """Whether requests of an hour are four times as long."""
    return hour % 24 >= 12


def workload(counters=True, follows_tokens=True, **columns):
    """100 requests an hour, of 500 tokens in and 100 out in the morning and four times as many after noon, over a week."""
    rows = FleetRows(7)

    def load(hour):
        work = (1.6 if is_long(hour) else 0.4) if follows_tokens else 1.0
        return 0.2 * work

    for number in range(2):
        rows.node(f"n{number}", "g5.xlarge").hold(NAME, f"n{number}", [0], owner_kind="Deployment")
        rows.use(NAME, f"n{number}", 0, range(7 * 24), sm=load)
    rows.demand(NAME, lambda hour: 100, 2, LE_S, lambda hour: [0, 90, 10, 0, 0])
    for hour, row in enumerate(rows.rows["demand"]):
        times = 4.0 if is_long(hour) else 1.0
        row |= {"completed": 100.0, "input_tokens_mean": 500.0 * times, "output_tokens_mean": 100.0 * times}
        if counters:
            row |= {"input_tokens": 50_000.0 * times, "output_tokens": 10_000.0 * times}
        row |= MEASURED | columns
    return build_fleet(rows.bundle(), SETTINGS).workload(NAME)


def test_a_token_takes_its_share_of_a_mean_request_by_the_time_of_the_engines_steps():
    work = token_work(workload())

    # a quarter of the time goes to prompts, of 1,250 tokens on average, the rest to answers of 250
    assert work.input_req == pytest.approx(0.25 / 1_250)
    assert work.output_req == pytest.approx(0.75 / 250)
    assert work.cached_req == work.input_req


def test_prompt_tokens_that_the_cache_held_take_nothing_of_the_steps():
    work = token_work(workload(cached_tokens=10_000.0))

    assert work.cached_req == 0.0
    assert work.input_req == pytest.approx(0.25 * 100 / (125_000 - 10_000))


def test_a_step_of_long_requests_is_more_work_than_one_of_as_many_short_ones():
    known = workload()

    done = in_tokens(known.service, token_work(known)).arrivals

    assert done[0] == pytest.approx(40.0)
    assert done[12] == pytest.approx(160.0)


def test_a_step_whose_cache_hits_were_not_read_keeps_its_requests():
    known = workload(cached_tokens=10_000.0)
    cached = known.service.tokens.cached.copy()
    cached[12] = np.nan
    service = replace(known.service, tokens=replace(known.service.tokens, cached=cached))

    done = in_tokens(service, token_work(known)).arrivals

    # as work of prompts none of which was cached it would be that of a long step, and more
    assert done[12] == service.arrivals[12] == 100.0
    assert done[13] > 150.0


@pytest.mark.parametrize(
    ("known", "why"),
    [
        (workload(counters=False), "no counter of tokens was read"),
        (workload(prefill_s=None, decode_s=None), "one price for every token"),
        (workload(follows_tokens=False), "GPU activity follows its requests more closely"),
        (replace(workload(), service=None), "not seen to count tokens"),
    ],
    ids=["mean lengths only", "no weights", "activity says otherwise", "no requests"],
)
def test_requests_are_counted_where_tokens_do_not_say_more(known, why):
    assert why in token_work(known)


def test_a_law_of_a_service_that_counts_tokens_has_loads_of_their_work():
    law = law_of(workload(), SETTINGS)

    assert law.counted == token_work(workload())
    # 20 % of the time for 50 mean requests an hour each, and four times as much after noon as in the morning
    assert law.load[-1] / law.load[0] == pytest.approx(4.0, rel=0.01)


def test_a_law_of_one_that_tells_mean_lengths_only_has_loads_of_requests_and_says_why():
    law = law_of(workload(counters=False), SETTINGS)

    assert law.counted is None
    assert "no counter of tokens" in law.tokens
    assert law.load == pytest.approx(law.load[0])


def test_a_service_without_tokens_is_the_same_object_in_tokens():
    service = workload().service

    assert in_tokens(service, None) is service
    assert (
        in_tokens(replace(service, tokens=None), TokenWork(input_req=1.0, output_req=1.0, cached_req=0.0)).tokens
        is None
    )


STEPS = 12
COUNTS = arrays(np.float64, STEPS, elements=st.floats(0, 1e6))


@settings(deadline=None, max_examples=50)
@given(prompts=COUNTS, answers=COUNTS, cached=COUNTS, input_req=st.floats(0, 1), output_req=st.floats(0, 1))
def test_the_work_of_a_step_is_that_of_its_tokens_and_never_below_nothing(
    prompts, answers, cached, input_req, output_req
):
    tokens = TokenReadings(
        input=prompts, output=answers, cached=cached, prefill_s=prompts, decode_s=answers, counted=True
    )
    service = ServiceObservation(
        step_s=60.0, arrivals=np.ones(STEPS), replicas=np.ones(STEPS), running=np.ones(STEPS),
        latency_le_s=np.zeros(0), latency_count=np.zeros((STEPS, 0)), tokens=tokens,
    )  # fmt: skip

    work = TokenWork(input_req=input_req, output_req=output_req, cached_req=0.0)
    done = in_tokens(service, work).arrivals

    assert done == pytest.approx((prompts - np.minimum(cached, prompts)) * input_req + answers * output_req, abs=1e-6)
    assert (done >= -1e-6).all()
