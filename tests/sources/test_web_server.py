"""The HTTP side of price lists: what is tried again, and what is not."""

import pytest
from tests.sources.answering_server import answering

from trimtab.errors import CredentialsError, SourceError, UsageError
from trimtab.sources.web_server import WebServer


def fine(_asked):
    return 200, {}, b"fine"


def test_a_server_that_is_busy_is_asked_again_after_the_time_it_names():
    slept = []
    with answering(fine) as (script, url), WebServer(url, sleep=slept.append) as server:
        script.faults = [(429, {"Retry-After": "7"}, b""), (503, {}, b"")]

        assert server.get("/prices") == b"fine"

    assert slept == [7.0, 2.0]


def test_a_server_that_stays_down_is_an_error_that_says_what_it_said():
    with (
        answering(lambda _asked: (502, {}, b"bad gateway")) as (script, url),
        WebServer(url, sleep=lambda s: None) as server,
        pytest.raises(SourceError, match="HTTP 502 bad gateway"),
    ):
        server.get("/prices")
    assert len(script.seen) == 4


def test_nobody_there_is_an_error():
    with (
        WebServer("http://127.0.0.1:9", sleep=lambda s: None) as server,
        pytest.raises(SourceError, match="not answer"),
    ):
        server.get("/prices")


def test_a_key_that_is_refused_is_not_tried_again():
    with (
        answering(lambda _asked: (403, {}, b"API key not valid")) as (script, url),
        WebServer(url, headers={"X-Goog-Api-Key": "k"}) as server,
        pytest.raises(CredentialsError, match="not valid"),
    ):
        server.get("/prices")
    assert len(script.seen) == 1


def test_an_address_without_a_scheme_is_refused():
    with pytest.raises(UsageError, match="https://"):
        WebServer("prices.example")
