"""One request to a cloud's metadata server: never through a proxy, never past a timeout, judged by the server's own clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import urlsplit

HTTP_PORT = 80
MOST_BODY_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataAnswer:
    """What the server said. `server_time` is its clock, so that a wrong clock on this machine moves no deadline."""

    status: int
    body: str
    etag: str
    server_time: datetime


class MetadataServer:
    """A metadata server at a link-local address (or wherever an emulator listens)."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._host = parts.hostname or ""
        self._port = parts.port or HTTP_PORT

    def ask(self, method: str, path: str, headers: Mapping[str, str], timeout_s: float) -> MetadataAnswer:
        """Send one request and return the answer; raise `OSError` if none comes."""
        import http.client  # 40 modules that a machine outside the clouds never needs

        connection = http.client.HTTPConnection(self._host, self._port, timeout=timeout_s)
        try:
            connection.request(method, path, headers=dict(headers))
            response = connection.getresponse()
            return MetadataAnswer(
                status=response.status,
                body=response.read(MOST_BODY_BYTES).decode(errors="replace"),
                etag=response.headers.get("ETag", ""),
                server_time=_server_time(response.headers.get("Date")),
            )
        except http.client.HTTPException as error:
            raise ConnectionError(f"no HTTP answer from {self._host}:{self._port}{path}: {error!r}") from error
        finally:
            connection.close()


def _server_time(date: str | None) -> datetime:
    from email.utils import parsedate_to_datetime

    try:
        return parsedate_to_datetime(date or "").astimezone(UTC)
    except (ValueError, TypeError, OverflowError):
        return datetime.now(UTC)


def seconds_until(moment: datetime, answer: MetadataAnswer, most_s: float) -> float:
    """Return the seconds from the server's time of answering to a moment it named, within 0 and what the cloud ever gives."""
    return min(most_s, max(0.0, (moment - answer.server_time).total_seconds()))
