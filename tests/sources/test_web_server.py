"""The HTTP side of price lists: what is tried again, and what is not."""

import pytest
from tests.sources.answering_server import answering

from trimtab.errors import CredentialsError, SourceError, UsageError
from trimtab.sources.http import WebServer


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


def test_a_key_does_not_follow_to_another_origin():
    with answering(fine) as (other, other_url):
        moved = {"Location": f"{other_url}/prices"}
        with (
            answering(lambda _asked: (302, moved, b"")) as (first, url),
            WebServer(url, headers={"X-Goog-Api-Key": "hunter22"}) as server,
        ):
            assert server.get("/prices") == b"fine"

    assert first.seen[0].headers["X-Goog-Api-Key"] == "hunter22"
    assert "hunter22" not in str(other.seen[0].headers)


def test_a_key_follows_within_an_origin():
    with answering(fine) as (script, url), WebServer(url, headers={"X-Goog-Api-Key": "hunter22"}) as server:
        script.faults = [(302, {"Location": "/elsewhere"}, b"")]
        server.get("/prices")

    assert script.seen[1].headers["X-Goog-Api-Key"] == "hunter22"


def test_a_server_that_sends_on_for_ever_is_an_error():
    with (
        answering(lambda _asked: (302, {"Location": "/prices"}, b"")) as (_, url),
        WebServer(url, sleep=lambda s: None) as server,
        pytest.raises(SourceError, match="sent on more than"),
    ):
        server.get("/prices")


def test_a_refusal_that_echoes_the_key_does_not_show_it():
    with (
        answering(lambda asked: (401, {}, f"no such key {asked.headers['X-Goog-Api-Key']}".encode())) as (_, url),
        WebServer(url.replace("http://", "http://me:pass-word@"), headers={"X-Goog-Api-Key": "hunter22"}) as server,
        pytest.raises(CredentialsError) as raised,
    ):
        server.get("/prices")

    assert "hunter22" not in str(raised.value)
    assert "pass-word" not in str(raised.value)


@pytest.mark.parametrize("link", [".elsewhere.example/prices", "https://[::1/x", "", "?page=2", "prices"])
def test_a_link_that_would_make_another_host_of_the_address_is_refused(link):
    with WebServer("https://prices.example", headers={"X-Goog-Api-Key": "k"}) as server, pytest.raises(SourceError):
        server.path_of(link)


def test_a_link_is_followed_at_the_address_that_was_given():
    with WebServer("http://127.0.0.1:9") as server:
        assert server.path_of("https://prices.example:443/a?b=c") == "/a?b=c"


def test_a_path_of_which_no_address_can_be_made_is_an_error():
    with WebServer("http://127.0.0.1:9") as server, pytest.raises(SourceError, match="no address"):
        server.get("/a\x1b[2J")


def test_an_answer_without_end_is_given_up(monkeypatch):
    monkeypatch.setattr("trimtab.sources.http._MOST_BODY_MIB", 1)
    with (
        answering(lambda _asked: (200, {}, bytes(3 * 2**20))) as (_, url),
        WebServer(url) as server,
        pytest.raises(SourceError, match="more than 1 MiB"),
    ):
        server.get("/prices")
