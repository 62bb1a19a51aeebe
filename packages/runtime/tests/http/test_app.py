"""The ASGI application: what goes in and out, and which status tells the client what."""

import asyncio
import json
import logging

import httpx
import pytest
from packages.runtime.tests.batcher.callers import Model, wrapped
from packages.runtime.tests.http.service import fresh

from trimtab_runtime import batch
from trimtab_runtime.errors import UsageError
from trimtab_runtime.http import BatchApp, Limits


def ask(app, method="POST", path="/predict", content=b"1", headers=()):
    async def scenario():
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://x") as client:
            return await client.request(method, path, content=content, headers=dict(headers))

    return asyncio.run(scenario())


def doubler():
    @batch
    def double(items: list) -> list:
        return [2 * item for item in items]

    return double


def test_an_item_goes_in_and_its_result_comes_out():
    answer = ask(BatchApp(doubler()), content=b"21")

    assert (answer.status_code, answer.json()) == (200, 42)


@pytest.mark.parametrize(
    ("request_parts", "status"),
    [
        ({"content": b"{not json"}, 400),
        ({"content": '"\u00e9"'.encode("utf-16")}, 400),
        ({"content": b'"\xff"'}, 400),
        ({"content": b"[" * 100_000}, 400),
        ({"content": b'{"a":' * 100_000}, 400),
        ({"content": b"NaN"}, 400),
        ({"content": b"[1, -Infinity]"}, 400),
        ({"content": b"\xff"}, 400),
        ({"content": b"9" * 5_000}, 400),
        ({"method": "PUT"}, 405),
        ({"path": "/other"}, 404),
        ({"headers": {"X-Request-Timeout-Ms": "soon"}}, 400),
        ({"headers": {"X-Request-Timeout-Ms": "nan"}}, 400),
        ({"headers": {"X-Request-Timeout-Ms": "0"}}, 504),
        ({"headers": {"X-Request-Timeout-Ms": "5000"}}, 200),
    ],
)
def test_statuses_tell_the_client_what_to_do(request_parts, status):
    answer = ask(BatchApp(fresh()), **request_parts)

    assert answer.status_code == status
    assert status == 200 or answer.json()["error"]


@pytest.mark.parametrize("result", [float("nan"), float("inf"), {"deep": float("-inf")}, object(), {1}])
def test_a_result_that_json_cannot_carry_is_a_clear_500(result, caplog):
    @batch
    def model(items: list) -> list:
        return [result for _ in items]

    with caplog.at_level(logging.ERROR):
        answer = ask(BatchApp(model))

    assert answer.status_code == 500
    assert "cannot be sent as JSON" in answer.json()["error"]
    assert "encode" in caplog.text


def test_a_full_queue_is_503_with_a_hint_when_to_come_back():
    model = fresh(max_queue=1, when_full="refuse")
    model.close()

    answer = ask(BatchApp(model))

    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "1"


def test_an_item_that_is_too_large_is_413():
    assert ask(BatchApp(fresh(size=lambda item: item, max_size=5)), content=b"6").status_code == 413


def test_a_body_that_is_too_large_is_413():
    app = BatchApp(fresh(), limits=Limits(most_body_bytes=10))

    assert ask(app, content=b'"12345678"').status_code == 200
    assert ask(app, content=b'"123456789"').status_code == 413


def test_more_requests_than_are_taken_at_once_are_503():
    model = Model(held=True)
    app = BatchApp(wrapped(model), limits=Limits(most_requests=2))

    async def scenario():
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://x") as client:
            two = [asyncio.ensure_future(client.post("/predict", content=b"1")) for _ in range(2)]
            await asyncio.sleep(0.05)
            third = await client.post("/predict", content=b"1")
            model.go.set()
            return [answer.status_code for answer in await asyncio.gather(*two)], third

    accepted, third = asyncio.run(scenario())

    assert accepted == [200, 200]
    assert (third.status_code, third.headers["retry-after"]) == (503, "1")


def test_a_client_that_leaves_within_its_body_runs_nothing():
    model = Model()
    app = BatchApp(wrapped(model))
    messages = [{"type": "http.request", "body": b"12", "more_body": True}, {"type": "http.disconnect"}]
    sent = []

    async def receive():
        return messages.pop(0)

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "path": "/predict", "method": "POST", "headers": [(b"host", b"x")]}
    asyncio.run(app(scope, receive, send))

    assert (model.batches, sent) == ([], [])


def test_metrics_are_served():
    answer = ask(BatchApp(doubler()), "GET", "/metrics")

    assert "trimtab_batcher_waiting" in answer.text
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")


def test_items_and_results_pass_through_the_codecs():
    app = BatchApp(doubler(), decode=lambda value: value["x"], encode=lambda result: {"y": result})

    assert ask(app, content=b'{"x": 4}').json() == {"y": 8}
    assert ask(app, content=b"{}").status_code == 400
    assert ask(app, content=b"[]").status_code == 400


def test_the_drain_of_a_model_that_hangs_has_a_limit(caplog):
    model = Model(held=True)
    batcher = wrapped(model)
    reply = batcher.submit(1)
    assert model.running.wait(5)
    messages = [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]
    sent = []

    async def receive():
        return messages.pop(0)

    async def send(message):
        sent.append(message["type"])

    async def scenario():
        app = BatchApp(batcher, limits=Limits(drain_s=0.1))
        await asyncio.wait_for(app({"type": "lifespan"}, receive, send), 5)

    asyncio.run(scenario())

    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    assert "given up" in caplog.text
    model.go.set()
    assert reply.result(5) == 10


def test_limits_that_mean_nothing_are_refused():
    with pytest.raises(UsageError, match="body_s"):
        Limits(body_s=0)


def test_errors_are_json():
    assert json.loads(ask(BatchApp(fresh()), content=b"{").content)["error"].startswith("JSONDecodeError")
