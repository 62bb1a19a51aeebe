"""The real server on loopback, attacked: what is refused, what stays bounded, and how it ends."""

import contextlib
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

pytest.importorskip("uvicorn")
pytest.importorskip("httptools")
from packages.runtime.tests.batcher.callers import Model, wrapped
from packages.runtime.tests.http.service import answer, asked, connect, fresh, post, served

from trimtab_runtime.http import BatchApp, Limits, serving

ROOT = Path(__file__).resolve().parents[4]
HEAD = b"POST /predict HTTP/1.1\r\nHost: x\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
ONE = b"1\r\n1\r\n0\r\n\r\n"


def test_requests_on_one_connection_are_answered_in_order_even_when_sent_at_once():
    with served(BatchApp(fresh())) as service, connect(service) as connection:
        connection.sendall(post(b"1") + post(b"2"))
        first = connection.recv(1)
        connection.settimeout(5)
        text = first
        while text.count(b"\r\n\r\n") < 2 or not text.endswith(b"2"):
            text += connection.recv(65_536)

    assert [part[:1] for part in text.split(b"\r\n\r\n")[1:]] == [b"1", b"2"]


def test_an_answer_leaves_in_one_piece(shared_service):
    with connect(shared_service) as connection:
        for _ in range(20):
            connection.sendall(post(b"1"))

            assert connection.recv(65_536).endswith(b"\r\n\r\n1")


def test_a_body_that_comes_after_its_head_or_after_a_go_ahead_is_read(shared_service):
    with connect(shared_service) as connection:
        connection.sendall(HEAD + b"Content-Length: 2\r\n\r\n1")
        time.sleep(0.05)
        connection.sendall(b"2")
        assert connection.recv(65_536).endswith(b"\r\n\r\n12")

        connection.sendall(HEAD + b"Content-Length: 1\r\nExpect: 100-continue\r\n\r\n")
        assert connection.recv(65_536) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(b"3")
        assert connection.recv(65_536).endswith(b"\r\n\r\n3")


def test_a_client_of_http_1_0_is_answered_and_its_connection_closed(shared_service):
    with connect(shared_service) as connection:
        connection.sendall(b"POST /predict HTTP/1.0\r\nContent-Length: 1\r\n\r\n1")
        text = b""
        while piece := connection.recv(65_536):
            text += piece

    assert b"connection: close\r\n" in text
    assert text.endswith(b"\r\n\r\n1")


def test_as_many_requests_as_may_be_sent_ahead_are_answered(shared_service):
    with connect(shared_service) as connection:
        connection.sendall(post(b"1") * serving.MOST_PIPELINED)
        text = b""
        while text.count(b"HTTP/1.1 200") < serving.MOST_PIPELINED:
            text += connection.recv(65_536)


@pytest.mark.parametrize(
    "request_bytes",
    [
        pytest.param(HEAD + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n" + ONE, id="length and chunks"),
        pytest.param(HEAD + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n12", id="two lengths"),
        pytest.param(HEAD + b"Content-Length: 1, 1\r\n\r\n1", id="a list of lengths"),
        pytest.param(HEAD + b"Content-Length: -1\r\n\r\n1", id="a negative length"),
        pytest.param(HEAD + b"Content-Length : 1\r\n\r\n1", id="blank before the colon"),
        pytest.param(HEAD + b"A: b\r\n c\r\nContent-Length: 1\r\n\r\n1", id="a folded header"),
        pytest.param(HEAD + b"A: b\x00\r\nContent-Length: 1\r\n\r\n1", id="NUL in a header"),
        pytest.param(b"POST /predict HTTP/1.1\nHost: x\nContent-Length: 1\n\n1", id="bare LF in the head"),
        pytest.param(CHUNKED + b"1;a\n1\r\n0\r\n\r\n", id="chunk extension with LF"),
        pytest.param(CHUNKED + b"1;a\rb\r\n1\r\n0\r\n\r\n", id="chunk extension with CR"),
        pytest.param(CHUNKED + b"1;a\x00\r\n1\r\n0\r\n\r\n", id="chunk extension with NUL"),
        pytest.param(CHUNKED + b" " + ONE, id="blank before the chunk's size"),
        pytest.param(CHUNKED + b"fffffffffffffffff\r\n1\r\n0\r\n\r\n", id="a chunk of 2^68 bytes"),
        pytest.param(CHUNKED + b"1\r\n1X0\r\n\r\n", id="a chunk without an end"),
        pytest.param(HEAD + b"Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n" + ONE, id="two codings"),
        pytest.param(HEAD + b"Transfer-Encoding: chunked, gzip\r\n\r\n" + ONE, id="chunked is not last"),
        pytest.param(HEAD + b"Transfer-Encoding: xchunked\r\n\r\n" + ONE, id="an unknown coding"),
        pytest.param(
            b"POST /predict HTTP/1.0\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + ONE, id="chunks in HTTP/1.0"
        ),
        pytest.param(b"POST /predict HTTP/1.1\r\nContent-Length: 1\r\n\r\n1", id="no host"),
        pytest.param(HEAD + b"Host: y\r\nContent-Length: 1\r\n\r\n1", id="two hosts"),
        pytest.param(b"POST /predict HTTP/2.0\r\nHost: x\r\nContent-Length: 1\r\n\r\n1", id="HTTP/2.0"),
        pytest.param(b"nonsense\r\n\r\n", id="nonsense"),
    ],
)
def test_what_two_readers_could_read_differently_is_refused(shared_service, request_bytes):
    with connect(shared_service) as connection:
        connection.sendall(request_bytes)

        assert answer(connection)[0] == 400


@pytest.fixture(scope="module")
def shared_service():
    with served(BatchApp(fresh())) as service:
        yield service


def test_a_head_that_is_too_large_is_refused_before_it_ends():
    status, headers, _ = asked(BatchApp(fresh()), HEAD + b"a: " + b"x" * 70_000)

    assert (status, headers["connection"]) == (431, "close")


def test_many_small_headers_are_bounded_alike():
    assert asked(BatchApp(fresh()), HEAD + b"a: b\r\n" * 20_000)[0] == 431


@pytest.mark.parametrize("sent", [b"", b"POST /pre", HEAD + b"a: b\r\n"])
def test_a_head_that_does_not_come_is_not_waited_for(monkeypatch, sent):
    monkeypatch.setattr(serving, "HEAD_S", 0.2)

    status, headers, _ = asked(BatchApp(fresh()), sent)

    assert (status, headers["connection"]) == (408, "close")


def test_a_body_that_does_not_come_is_not_waited_for():
    status, headers, _ = asked(BatchApp(fresh(), limits=Limits(body_s=0.2)), post(b"12345")[:-1])

    assert (status, headers["connection"]) == (408, "close")


def test_unfinished_bodies_together_are_bounded():
    app = BatchApp(fresh(), limits=Limits(most_pending_bytes=1_000_000))
    request = post(b"1" * 400_000)[:-1]

    with served(app) as service, contextlib.ExitStack() as stack:
        connections = [stack.enter_context(connect(service)) for _ in range(3)]
        for connection in connections:
            connection.sendall(request)
        answered, _, _ = select.select(connections, [], [], 10)
        status, headers, _ = answer(answered[0])

        assert (len(answered), status, headers["retry-after"]) == (1, 503, "1")


def test_unread_pipelined_answers_are_bounded(shared_service):
    request = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n" * 500  # each answered by some kilobytes
    sent = 0

    with connect(shared_service) as connection:
        connection.settimeout(2.0)
        with contextlib.suppress(TimeoutError, ConnectionError):
            while sent < 16 << 20:
                sent += connection.send(request)

    assert sent < 16 << 20  # what two sockets hold: the server has stopped reading


def test_one_byte_chunks_do_not_stall_the_others(shared_service):
    flood = CHUNKED + b"1\r\n1\r\n" * (2_300_000 // 6) + b"0\r\n\r\n"
    done = threading.Event()

    def attack():
        with connect(shared_service) as connection:
            connection.settimeout(30)
            connection.sendall(flood)
            answer(connection)
        done.set()

    attacker = threading.Thread(target=attack)
    attacker.start()
    slowest_s = 0.0
    with connect(shared_service) as connection:
        while not done.is_set():
            began_s = time.monotonic()
            connection.sendall(post(b"1"))
            assert answer(connection)[0] == 200
            slowest_s = max(slowest_s, time.monotonic() - began_s)
    attacker.join()

    assert slowest_s < 2.0


def test_connections_are_bounded_and_told_to_come_back():
    with served(BatchApp(fresh()), most_connections=3) as service, contextlib.ExitStack() as stack:
        held = [stack.enter_context(connect(service)) for _ in range(3)]
        for connection in held:
            connection.sendall(post(b"1"))
            assert answer(connection)[0] == 200
        status, headers, _ = answer(stack.enter_context(connect(service)))
        held[0].sendall(post(b"2"))

        assert (status, headers["retry-after"], headers["connection"]) == (503, "1", "close")
        assert answer(held[0])[0] == 200


def test_a_thousand_silent_connections_take_little_memory(shared_service):
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    with contextlib.ExitStack() as stack:
        for _ in range(400):
            stack.enter_context(connect(shared_service)).sendall(HEAD)
        with connect(shared_service) as connection:
            connection.sendall(post(b"1"))
            assert answer(connection)[0] == 200

    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib < 64 << 10


def test_clients_that_keep_their_connections_see_no_error_when_the_server_ends():
    outcomes = []

    def client(service, number):
        with connect(service) as connection:
            connection.settimeout(10)
            while True:
                try:
                    connection.sendall(post(b"1"))
                    status, headers, _ = answer(connection)
                except OSError as error:
                    outcomes.append(repr(error))
                    return
                if status != 200 or headers.get("connection") == "close":
                    outcomes.append((status, headers.get("connection")))
                    return

    with served(BatchApp(fresh())) as service:
        clients = [threading.Thread(target=client, args=(service, number)) for number in range(16)]
        for thread in clients:
            thread.start()
        time.sleep(0.3)
    for thread in clients:
        thread.join(10)

    assert outcomes == [(200, "close")] * 16


def test_a_request_in_flight_is_answered_when_the_server_ends():
    model = Model(held=True)

    with served(BatchApp(wrapped(model))) as service, connect(service) as connection:
        connection.sendall(post(b"4"))
        assert model.running.wait(5)
        service.should_exit = True
        time.sleep(0.3)
        model.go.set()

        assert answer(connection)[2] == b"40"


@pytest.mark.parametrize(("number", "kind"), [(signal.SIGTERM, ""), (signal.SIGINT, ""), (signal.SIGTERM, "async ")])
def test_a_model_that_hangs_does_not_keep_the_process_alive(number, kind):
    program = """
import sys, time
from trimtab_runtime import batch
from trimtab_runtime.http import BatchApp, Limits, server

@batch
KIND def model(items):
    print("running", flush=True)
    time.sleep(600)
    return items

app = server(BatchApp(model, limits=Limits(drain_s=1)), port=0)
import threading
def tell():
    while not app.started:
        time.sleep(0.01)
    print(app.servers[0].sockets[0].getsockname()[1], flush=True)
threading.Thread(target=tell, daemon=True).start()
app.run()
""".replace("KIND ", kind)
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'packages/runtime/src'}"}
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env=environment)
    try:
        port = int(process.stdout.readline())
        with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
            connection.sendall(post(b"1"))
            assert process.stdout.readline() == "running\n"
            process.send_signal(number)
            began_s = time.monotonic()
            process.wait(30)
            assert time.monotonic() - began_s < 20
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
