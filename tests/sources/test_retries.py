"""One rule for every server that is read: what is asked again, and when."""

import httpx
import pytest
from hypothesis import given, strategies as st

from trimtab.sources.http import RetryPolicy, TransientError, retry_after_s
from trimtab.sources.prometheus.client import Prometheus

WAITS_S = st.lists(st.floats(0.0, 60.0), max_size=9).map(tuple)
ASKED_S = st.none() | st.floats(0.0, 1e6)


class Busy:
    """A server that is busy for some times and then answers."""

    def __init__(self, asked_s):
        self.asked_s = list(asked_s)
        self.asked = 0

    def __call__(self):
        self.asked += 1
        if self.asked_s:
            raise TransientError("busy", wait_s=self.asked_s.pop(0))
        return "fine"


@given(WAITS_S, st.data())
def test_nobody_is_asked_sooner_than_the_server_named_nor_kept_longer_than_a_minute(waits_s, data):
    asked_s = data.draw(st.lists(ASKED_S, max_size=len(waits_s)))
    slept = []

    assert RetryPolicy(waits_s=waits_s).answer(Busy(asked_s), sleep=slept.append) == "fine"

    assert slept == [min(max(w, a or 0.0), 60.0) for w, a in zip(waits_s, asked_s, strict=False)]


@given(WAITS_S)
def test_a_server_that_stays_busy_is_asked_once_more_than_there_are_waits(waits_s):
    policy, busy, reasons = RetryPolicy(waits_s=waits_s), Busy([None] * 20), []

    with pytest.raises(TransientError, match="busy"):
        policy.answer(busy, sleep=lambda s: None, report=reasons.append)

    assert busy.asked == policy.tries == len(waits_s) + 1
    assert reasons == ["busy"] * len(waits_s)


@pytest.mark.parametrize(
    ("header", "seconds"), [("7", 7.0), ("0", 0.0), ("", None), ("-1", None), ("Wed, 21 Oct 2026 07:28:00 GMT", None)]
)
def test_seconds_are_read_of_retry_after_and_dates_are_not(header, seconds):
    assert retry_after_s(header) == seconds


def test_a_prometheus_server_is_asked_again_when_it_says():
    answers = [
        httpx.Response(429, headers={"Retry-After": "9"}, text="too many requests"),
        httpx.Response(200, json={"status": "success", "data": {"resultType": "vector", "result": []}}),
    ]
    slept = []
    transport = httpx.MockTransport(lambda request: answers.pop(0))

    with Prometheus("http://prometheus.test", transport=transport, sleep=slept.append) as server:
        assert server.instant("up", 0.0) == []

    assert slept == [9.0]
