"""A real server on loopback, on a port of its own."""

import socket
import threading
import time
from contextlib import contextmanager

import httpx
import pytest
import uvicorn
from tests.web.fleet import Shelf, whole

from trimtab.web.library import Library, SwitchedPlans
from trimtab.web.server import ServerPlace, configured


@contextmanager
def serving(library, token=None, reviews=None, **place):
    """Run the server; give its address. `place` is more of `ServerPlace`."""
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    server = uvicorn.Server(
        configured(library, ServerPlace(host="127.0.0.1", port=0, token=token, **place), reviews=reviews)
    )
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(20)
        library.close()
        listening.close()


@pytest.fixture(scope="session")
def library():
    document, made = whole()
    found = Library(source=Shelf({"1": document}, {"1": made}))
    while not isinstance(found.switchboard(found.entry("1")), SwitchedPlans):
        time.sleep(0.02)
    return found


@pytest.fixture(scope="session")
def address(library):
    with serving(library) as found:
        yield found


@pytest.fixture
def client(address):
    with httpx.Client(base_url=address, trust_env=False, timeout=60) as found:
        yield found
