"""Prometheus text that is a response by itself: return it from an endpoint of FastAPI, Starlette or Flask as it is.

It behaves as a string, as an ASGI application (three arguments: Starlette, FastAPI) and as a WSGI application (two: Flask).
"""

from __future__ import annotations

import sys
from collections import UserString
from collections.abc import Awaitable, Callable, Iterable
from typing import cast

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""Of the Prometheus exposition format (prometheus.io/docs/instrumenting/exposition_formats)."""


class MetricsText(UserString):
    """The text, and the response that carries it."""

    media_type = CONTENT_TYPE
    status_code = 200
    background = None

    def __call__(self, *arguments: object) -> Awaitable[None] | Iterable[bytes]:
        """Answer an ASGI request (scope, receive, send) or a WSGI request (environ, start_response)."""
        if len(arguments) == 3:
            return self._send(cast("Callable[[dict[str, object]], Awaitable[None]]", arguments[2]))
        body = self.data.encode()
        start_response = cast("Callable[[str, list[tuple[str, str]]], object]", arguments[1])
        start_response("200 OK", [("Content-Type", CONTENT_TYPE), ("Content-Length", str(len(body)))])
        return [body]

    async def _send(self, send: Callable[[dict[str, object]], Awaitable[None]]) -> None:
        body = self.data.encode()
        headers = [(b"content-type", CONTENT_TYPE.encode()), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})


def metrics_response(text: str) -> MetricsText:
    """Return the text as a response; where Starlette is loaded as one of its own, which FastAPI insists on."""
    responses = sys.modules.get("starlette.responses")
    return MetricsText(text) if responses is None else _starlette_kind(responses.Response)(text)


_kinds: dict[type, type[MetricsText]] = {}


def _starlette_kind(response: type) -> type[MetricsText]:
    """Return the class that is a `MetricsText` and a Starlette response; made once."""
    if response not in _kinds:

        def init(self: MetricsText, text: str) -> None:
            MetricsText.__init__(self, text)
            vars(response)["__init__"](self, text, media_type=CONTENT_TYPE)

        _kinds[response] = type("MetricsText", (MetricsText, response), {"__init__": init})
    return _kinds[response]
