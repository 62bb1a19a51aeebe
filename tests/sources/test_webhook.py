"""Posting to a webhook: what is tried again, what is not, and that its address, which is a secret, is shown nowhere."""

import json
import logging
import socket
import threading
import traceback

import pytest
from tests.sources.answering_server import answering

from trimtab.errors import CredentialsError, SourceError, TrimtabError, UsageError
from trimtab.sources.webhook import post_json

SECRET = "T0SECRET/B0SECRET/xoxSECRETxox"
BODY = json.dumps({"text": "Grüße – 46 %"}, ensure_ascii=False)


def taken(_asked):
    return 200, {}, b"ok"


def refused_at(url, body=BODY, sleep=lambda s: None):
    """What is raised, with all that a person or a log could see of it."""
    with pytest.raises(TrimtabError) as caught:
        post_json(url, body, sleep=sleep)
    shown = "".join(traceback.format_exception(caught.value)) + repr(caught.value)
    assert "SECRET" not in shown
    return caught.value


def test_the_message_arrives_as_it_was_written_and_once():
    with answering(taken) as (script, url):
        post_json(f"{url}/services/{SECRET}?sig=abc/", BODY)

    (asked,) = script.seen
    assert (asked.method, asked.path, asked.query) == ("POST", f"/services/{SECRET}", {"sig": "abc/"})
    assert json.loads(asked.body) == json.loads(BODY)
    assert asked.headers["Content-Type"] == "application/json; charset=utf-8"


def test_a_server_that_is_busy_is_asked_again_after_the_time_it_names(caplog):
    slept = []
    with answering(taken) as (script, url), caplog.at_level(logging.DEBUG, logger="trimtab"):
        script.faults = [(429, {"Retry-After": "7"}, b""), (503, {}, SECRET.encode())]
        post_json(f"{url}/services/{SECRET}", BODY, sleep=slept.append)

    assert slept == [7.0, 2.0]
    assert len(script.seen) == 3
    assert "HTTP 503" in caplog.text
    assert "SECRET" not in "".join(
        record.getMessage() for record in caplog.records if record.name.startswith("trimtab")
    )


def test_a_server_that_stays_down_is_an_error_after_four_tries():
    with answering(lambda _asked: (502, {}, b"bad gateway")) as (script, url):
        error = refused_at(f"{url}/services/{SECRET}")

    assert isinstance(error, SourceError)
    assert "127.0.0.1 did not take the message: HTTP 502 bad gateway" in str(error)
    assert len(script.seen) == 4


@pytest.mark.parametrize(
    ("status", "said", "kind"),
    [
        (400, b"invalid_blocks", SourceError),
        (403, b"invalid_token", CredentialsError),
        (404, b"no_service", CredentialsError),
        (413, b"too large", SourceError),
    ],
)
def test_what_is_refused_for_good_is_not_tried_again_and_says_why(status, said, kind):
    body = said + b" at /services/" + SECRET.encode()
    with answering(lambda _asked: (status, {}, body)) as (script, url):
        error = refused_at(f"{url}/services/{SECRET}")

    assert type(error) is kind
    assert f"HTTP {status} {said.decode()}" in str(error)
    assert len(script.seen) == 1


def test_a_message_is_not_sent_on_to_another_address():
    with answering(taken) as (other, other_url):
        moved = {"Location": f"{other_url}/elsewhere"}
        with answering(lambda _asked: (307, moved, b"")) as (_, url):
            error = refused_at(f"{url}/services/{SECRET}")

    assert "elsewhere" in str(error)
    assert other.seen == []


def test_nobody_there_is_an_error_without_the_address():
    assert "127.0.0.1" in str(refused_at(f"http://127.0.0.1:9/services/{SECRET}"))


def test_a_message_that_was_sent_and_not_answered_is_not_sent_again():
    accepted = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def hang_up():
            connection, _ = server.accept()
            accepted.append(connection.recv(65536))
            connection.close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        error = refused_at(f"http://127.0.0.1:{server.getsockname()[1]}/services/{SECRET}")
        thread.join()

    assert "may be there" in str(error)
    assert len(accepted) == 1


@pytest.mark.parametrize(
    "url",
    [
        f"hooks.slack.com/services/{SECRET}",
        f"ftp://hooks.slack.com/services/{SECRET}",
        f"https://hooks.slack.com:SECRET/{SECRET}",
        f"https:///services/{SECRET}",
        f"https://hooks.slack.com/services/{SECRET} and",
        f"https://hooks.slack.com/services/{SECRET}\n",
        f"HTTPS://hooks.slack.com/{SECRET}",
        "",
    ],
)
def test_what_is_no_address_is_refused_without_showing_it(url):
    assert isinstance(refused_at(url), UsageError)
