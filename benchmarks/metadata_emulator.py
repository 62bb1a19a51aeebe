"""The metadata servers of three clouds on a loopback port, with an interruption that can be announced at will.

They answer as the vendors' pages describe: AWS with session tokens and 404 until something is announced, Google with
etags and a long poll that returns on a change, Azure with a list of scheduled events.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self
from urllib.parse import parse_qs, urlsplit

TOKEN = "emulated-token"
MACHINE = "spot-machine-1"

Reply = tuple[int, str, str]
"""Status, body and etag."""


class MetadataEmulator:
    """One server on 127.0.0.1 that speaks all three dialects; each source asks for its own paths only."""

    def __init__(self) -> None:
        self.announced = threading.Event()
        self.rebalance = False
        self.token = TOKEN
        self.lead_s = 120.0
        self.requests: list[str] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self.reply))
        self._server.daemon_threads = True

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.announced.set()
        self._server.shutdown()
        self._server.server_close()

    def announce(self, lead_s: float) -> None:
        """Announce an interruption that is this far away."""
        self.lead_s = lead_s
        self.announced.set()

    def reply(self, method: str, target: str, headers: dict[str, str]) -> Reply:
        """Return the answer to one request."""
        self.requests.append(f"{method} {target}")
        path, query = urlsplit(target).path, parse_qs(urlsplit(target).query)
        if path.startswith("/latest/"):
            return self._aws(method, path, headers)
        if path.startswith("/computeMetadata/"):
            return self._gcp(query, headers)
        return self._azure(path, headers)

    def _aws(self, method: str, path: str, headers: dict[str, str]) -> Reply:
        if path == "/latest/api/token":
            return (HTTPStatus.OK, self.token, "") if method == "PUT" else (HTTPStatus.METHOD_NOT_ALLOWED, "", "")
        if headers.get("x-aws-ec2-metadata-token") != self.token:
            return HTTPStatus.UNAUTHORIZED, "", ""
        moment = (datetime.now(UTC) + timedelta(seconds=self.lead_s)).strftime("%Y-%m-%dT%H:%M:%SZ")
        if path.endswith("/spot/instance-action") and self.announced.is_set():
            return HTTPStatus.OK, json.dumps({"action": "terminate", "time": moment}), ""
        if path.endswith("/recommendations/rebalance") and self.rebalance:
            return HTTPStatus.OK, json.dumps({"noticeTime": moment}), ""
        return HTTPStatus.NOT_FOUND, "", ""

    def _gcp(self, query: dict[str, list[str]], headers: dict[str, str]) -> Reply:
        if headers.get("metadata-flavor") != "Google":
            return HTTPStatus.FORBIDDEN, "", ""
        if query.get("wait_for_change") == ["true"] and query.get("last_etag") == ["etag-0"]:
            self.announced.wait(float(query["timeout_sec"][0]))
        state = self.announced.is_set()
        return HTTPStatus.OK, str(state).upper(), f"etag-{int(state)}"

    def _azure(self, path: str, headers: dict[str, str]) -> Reply:
        if headers.get("metadata") != "true":
            return HTTPStatus.BAD_REQUEST, "", ""
        if path.endswith("/compute/name"):
            return HTTPStatus.OK, MACHINE, ""
        not_before = format_datetime(datetime.now(UTC) + timedelta(seconds=self.lead_s), usegmt=True)
        other = {"EventId": "1", "EventType": "Preempt", "Resources": ["another-machine"], "NotBefore": not_before}
        mine = {"EventId": "2", "EventType": "Preempt", "Resources": [MACHINE], "NotBefore": not_before}
        events = [other, mine] if self.announced.is_set() else [other]
        return HTTPStatus.OK, json.dumps({"DocumentIncarnation": 1, "Events": events}), ""


def _handler(reply: Callable[[str, str, dict[str, str]], Reply]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            status, body, etag = reply(self.command, self.path, headers)
            self.send_response(status)
            self.send_header("Content-Length", str(len(body.encode())))
            if etag:
                self.send_header("ETag", etag)
            self.end_headers()
            self.wfile.write(body.encode())

        do_GET = _answer
        do_PUT = _answer

        def log_message(self, format: str, *arguments: object) -> None:
            """Stay silent."""

    return Handler
