"""A batcher over HTTP: raw bytes on a socket, and the answers to them."""

import asyncio
import json

import pytest

from trimtab_runtime import batch
from trimtab_runtime.http import BatchApp, Server
from trimtab_runtime.http.parsing import Reader, Refused


def doubler():
    @batch
    def double(items: list) -> list:
        return [2 * item for item in items]

    return double


def exchange(app, *chunks, pause_s=0.0, **options):
    """Send bytes, close the writing end, return everything that comes back."""

    async def scenario():
        async with Server(app, **options) as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            for chunk in chunks:
                writer.write(chunk)
                await writer.drain()
                await asyncio.sleep(pause_s)
            answer = await asyncio.wait_for(reader.read(), 10)
            writer.close()
            await writer.wait_closed()
            return answer

    return asyncio.run(scenario())


def post(body, *headers, path="/predict", method="POST", close=True):
    lines = [f"{method} {path} HTTP/1.1", "Host: x", f"Content-Length: {len(body)}", *headers]
    lines += ["Connection: close"] if close else []
    return "\r\n".join([*lines, "", ""]).encode() + body


def split(answer):
    head, _, body = answer.partition(b"\r\n\r\n")
    return head.split(b"\r\n"), body


async def echo(scope, receive, send):
    assert scope["type"] == "http"
    message = await receive()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": message["body"] + b"|" + scope["query_string"]})


def test_an_item_goes_in_and_its_result_comes_out():
    head, body = split(exchange(BatchApp(doubler()), post(b"21")))

    assert head[0] == b"HTTP/1.1 200 OK"
    assert json.loads(body) == 42


def test_requests_on_one_connection_are_answered_in_order_even_when_sent_at_once():
    answer = exchange(BatchApp(doubler()), post(b"1", close=False) + post(b"2", close=False) + post(b"3"))

    assert [part[:1] for part in answer.split(b"\r\n\r\n")[1:]] == [b"2", b"4", b"6"]


def test_a_request_may_come_byte_by_byte():
    request = post(b"[1, 2]")

    _, body = split(exchange(echo, *[request[at : at + 1] for at in range(len(request))]))

    assert body == b"[1, 2]|"


def test_chunked_bodies_are_joined():
    request = b"POST /?a=b HTTP/1.1\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    request += b"3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n"

    _, body = split(exchange(echo, request[:70], request[70:]))

    assert body == b"abcde|a=b"


def test_a_streamed_answer_is_chunked():
    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for piece in (b"one", b"", b"two"):
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body"})

    head, body = split(exchange(app, post(b"")))

    assert b"transfer-encoding: chunked" in head
    assert body == b"3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n"


def test_head_requests_get_no_body():
    head, body = split(exchange(echo, post(b"x", method="HEAD")))

    assert head[0] == b"HTTP/1.1 200 OK"
    assert body == b""


def test_a_client_that_waits_for_leave_to_send_gets_it():
    request = post(b"7", "Expect: 100-continue")

    answer = exchange(echo, request[:-1], request[-1:], pause_s=0.01)

    assert answer.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK")


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"nonsense\r\n\r\n", b"400"),
        (b"GET / HTTP/2.0\r\n\r\n", b"505"),
        (b"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", b"400"),
        (b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", b"400"),
        (b"POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", b"400"),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n", b"400"),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nbad header: x\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\na: x\n y\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\na: " + b"x" * 70_000, b"431"),
        (b"POST / HTTP/1.1\r\nContent-Length: 1001\r\n\r\n", b"413"),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3e9\r\n", b"413"),
    ],
)
def test_what_two_readers_could_read_differently_is_refused(request_bytes, status):
    answer = exchange(echo, request_bytes, most_body_bytes=1000)

    assert answer.split(b" ")[1] == status


def test_an_application_that_fails_is_a_500_and_the_server_lives(caplog):
    async def app(scope, receive, send):
        if scope["path"] == "/bad":
            raise RuntimeError("boom")
        await echo(scope, receive, send)

    async def scenario():
        async with Server(app) as server:
            answers = []
            for path in ("/bad", "/good"):
                reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
                writer.write(post(b"1", path=path))
                answers.append(await reader.read())
                writer.close()
                await writer.wait_closed()
            return answers

    bad, good = asyncio.run(scenario())

    assert bad.startswith(b"HTTP/1.1 500 ")
    assert b"boom" not in bad
    assert good.startswith(b"HTTP/1.1 200 ")


def test_a_header_value_cannot_smuggle_in_another_header(caplog):
    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": [(b"x", b"1\r\nset-cookie: a=b")]})
        await send({"type": "http.response.body", "body": b"ok"})

    answer = exchange(app, post(b"1"))

    assert answer.startswith(b"HTTP/1.1 500 ")
    assert b"set-cookie" not in answer


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (post(b"{not json"), 400),
        (post(b"1", method="PUT"), 405),
        (post(b"1", path="/other"), 404),
        (post(b"1", "X-Request-Timeout-Ms: soon"), 400),
        (post(b"1", "X-Request-Timeout-Ms: 0"), 504),
        (post(b"1", "X-Request-Timeout-Ms: 5000"), 200),
    ],
)
def test_statuses_tell_the_client_what_to_do(request_bytes, status):
    head, _ = split(exchange(BatchApp(fresh()), request_bytes))

    assert int(head[0].split()[1]) == status


def fresh(**options):
    @batch(**options)
    def model(items: list) -> list:
        return items

    return model


def test_a_full_queue_is_503_with_a_hint_when_to_come_back():
    model = fresh(size=lambda item: 1, max_size=1, max_queue=1, when_full="refuse")
    model.close()

    head, body = split(exchange(BatchApp(model), post(b"1")))

    assert head[0] == b"HTTP/1.1 503 Service Unavailable"
    assert b"retry-after: 1" in head
    assert "error" in json.loads(body)


def test_an_item_that_is_too_large_is_413():
    head, _ = split(exchange(BatchApp(fresh(size=lambda item: item, max_size=5)), post(b"6")))

    assert head[0].startswith(b"HTTP/1.1 413 ")


def test_metrics_are_served():
    _, body = split(exchange(BatchApp(doubler()), post(b"", path="/metrics", method="GET")))

    assert b"trimtab_batcher_waiting" in body


def test_items_and_results_pass_through_the_codecs():
    app = BatchApp(doubler(), decode=lambda value: value["x"], encode=lambda result: {"y": result})

    assert json.loads(split(exchange(app, post(b'{"x": 4}')))[1]) == {"y": 8}
    assert split(exchange(BatchApp(fresh(), decode=lambda value: value["x"]), post(b"{}")))[0][0].startswith(
        b"HTTP/1.1 400"
    )


def test_the_end_of_the_server_drains_the_batcher():
    model = fresh()
    exchange(BatchApp(model), post(b"1"))

    with pytest.raises(Exception, match="closed"):
        model.call(1)


def test_a_request_in_flight_is_answered_when_the_server_ends():
    entered = asyncio.Event()

    async def app(scope, receive, send):
        if scope["type"] == "http":
            entered.set()
        await asyncio.sleep(0.02)
        await echo({**scope, "query_string": b""}, receive, send)

    async def scenario():
        async with Server(app) as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(post(b"late", close=False))
            await entered.wait()
        answer = await reader.read()
        writer.close()
        await writer.wait_closed()
        return answer

    assert asyncio.run(scenario()).endswith(b"late|")


def test_reading_stops_at_the_first_thing_wrong():
    reader = Reader(10)
    reader.feed(b"GET / HTTP/1.1\r\n\r\n")
    assert reader.next_request().head.method == "GET"
    assert reader.next_request() is None

    reader.feed(b"GET /\x00 HTTP/1.1\r\n\r\n")
    with pytest.raises(Refused, match="request line"):
        reader.next_request()
