"""A small client of the Prometheus HTTP API: retries, splitting of what is too large, clear errors.

Works against Prometheus, Thanos, Mimir and VictoriaMetrics, which share `query`, `query_range`, `series` and `label values`.
A range is asked for in pieces; a piece that the server refuses as too large or too slow is halved in time until it passes.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import httpx
import numpy as np
import numpy.typing as npt
import orjson

from trimtab.errors import CredentialsError, SourceError
from trimtab.sources.http import RETRY_STATUS, Access, Connection, RetryPolicy, TransientError, retry_after_s
from trimtab.units import BYTES_PER_MIB, MS_PER_S, S_PER_HR

logger = logging.getLogger(__name__)

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

MAX_STEPS = 10_000
"""Prometheus refuses a range of more than 11,000 points a series."""
MAX_RESPONSE_BYTES = 96 * BYTES_PER_MIB
_RETRIES = RetryPolicy(waits_s=(0.2, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0))
"""A server of one's own may restart while it is read: about a minute of patience."""
_FIRST_RETRIES = RetryPolicy(waits_s=(0.2, 0.5))
_LASTING_STATUS = frozenset({500})
"""A server that answers 500 to a query cannot evaluate it, and will not the next time."""
_END_OF_TIME_S = 1e11
"""Some time in the year 5138: what lies beyond, NaN included, is no moment."""
_TOO_LARGE = (
    "too many samples",
    "exceeded maximum",
    "exceeds the limit",
    "maximum resolution",
    "timed out",
    "limit reached",
    "err-mimir-max-",
    "exceeded the maximum",
    "resourceexhausted",
    "exceeded series limit",
    "exceeded samples limit",
    "-search.max",
)
"""What servers say of a query that asks for too much: Prometheus, Mimir, Thanos, VictoriaMetrics (names of its flags)."""
_TOO_LARGE_STATUS = frozenset({400, 413, 422, 500, 503, 504})


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One time series: labels, times in whole milliseconds since 1970 (n,), values (n,)."""

    labels: Mapping[str, str]
    times_ms: Ints
    values: Floats


Parameters = Mapping[str, str | list[str]]
"""What a request asks; a list repeats its key."""


class AnswerTooLarge(SourceError):
    """The server will not answer this much at once, however short the time."""


class _TooLargeError(Exception):
    """The server will not answer this much at once."""


class Prometheus:
    """A server that speaks PromQL. Use as a context manager.

    `transport` and `sleep` are there for tests; `selector` (such as `cluster="a"`) is added to every selector that callers
    build with `matching`. At most `at_once` large queries are asked at the same time.
    """

    def __init__(
        self,
        url: str,
        access: Access | None = None,
        *,
        selector: str = "",
        timeout_s: float = 120.0,
        at_once: int = 2,
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        access = access or Access()
        self._connection = Connection(
            url,
            example=" of a Prometheus server; write http://HOST:9090",
            headers=access.request_headers(),
            timeout=httpx.Timeout(timeout_s, connect=10.0),
            verify=access.trust(),
            transport=transport,
            sleep=sleep,
        )
        self.url = self._connection.url
        self.selector = selector
        self.at_once = at_once
        self.requests = 0
        self.received_bytes = 0
        self.warnings: dict[str, int] = {}
        """Warnings that came with answers, and how often."""
        self._counting = threading.Lock()

    def __enter__(self) -> Prometheus:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def matching(self, *matchers: str) -> str:
        """Return `{...}` of the matchers and the client's own selector."""
        return "{" + ",".join(part for part in (*matchers, self.selector) if part) + "}"

    def check(self) -> None:
        """Ask for one number, so that an unreachable or foreign server is told at once; raises SourceError."""
        self._whole("/api/v1/query", {"query": "1"}, retries=_FIRST_RETRIES)

    def series(self, selectors: Sequence[str], start_s: float, end_s: float) -> list[dict[str, str]]:
        """Return the label sets that any of the selectors saw between two moments; one may come twice.

        Where the server refuses that many at once, the time is halved.
        """
        parameters: Parameters = {"match[]": list(selectors), "start": _moment(start_s), "end": _moment(end_s)}
        try:
            data = self._ask("/api/v1/series", parameters)
        except _TooLargeError as error:
            if end_s - start_s <= S_PER_HR:
                raise AnswerTooLarge(f"{self.url} refuses an hour of series of {selectors}: {error}") from error
            middle_s = (start_s + end_s) / 2
            return self.series(selectors, start_s, middle_s) + self.series(selectors, middle_s, end_s)
        if not isinstance(data, list):
            raise self._foreign("the list of series is not a list")
        return [_labels(item) for item in data]

    def names(self, start_s: float, end_s: float, pattern: str) -> set[str]:
        """Return the metric names that match a regular expression between two moments."""
        parameters = {
            "match[]": self.matching(f'__name__=~"{pattern}"'),
            "start": _moment(start_s),
            "end": _moment(end_s),
        }
        data = self._whole("/api/v1/label/__name__/values", parameters, method="GET")
        if not isinstance(data, list):
            raise self._foreign("the list of metric names is not a list")
        return {str(item) for item in data}

    def label_values(self, label: str, start_s: float, end_s: float) -> list[str]:
        """Return the values that a label had between two moments, under the client's own selector; empty ones left out."""
        parameters: Parameters = {"start": _moment(start_s), "end": _moment(end_s)}
        if self.selector:
            parameters = {**parameters, "match[]": self.matching()}
        data = self._whole(f"/api/v1/label/{label}/values", parameters, method="GET")
        if not isinstance(data, list):
            raise self._foreign("the list of label values is not a list")
        return sorted(str(item) for item in data if item)

    def instant(self, query: str, at_s: float) -> list[Series]:
        """Evaluate an expression at one moment; a range selector gives raw samples."""
        data = self._whole("/api/v1/query", {"query": query, "time": _moment(at_s)})
        return list(self._result(data))

    def range(self, query: str, start_s: float, end_s: float, step_s: float) -> Iterator[Series]:
        """Evaluate an expression at start, start + step, ... up to and with end; the same series may come in pieces."""
        steps = int((end_s - start_s) // step_s) + 1
        for first in range(0, steps, MAX_STEPS):
            last = min(first + MAX_STEPS, steps) - 1
            yield from self._piece(query, start_s + first * step_s, start_s + last * step_s, step_s)

    def _piece(self, query: str, start_s: float, end_s: float, step_s: float) -> Iterator[Series]:
        # VictoriaMetrics rounds start and end of long ranges to the step, unless its cache is left aside; others ignore it.
        span = {"start": _moment(start_s), "end": _moment(end_s), "step": f"{step_s:g}"}
        parameters = {"query": query, **span, "nocache": "1"}
        try:
            data = self._ask("/api/v1/query_range", parameters)
        except _TooLargeError as error:
            steps = round((end_s - start_s) / step_s) + 1
            if steps < 2:
                raise AnswerTooLarge(f"{self.url} refuses even one step of {query}: {error}") from error
            logger.debug("halving a range of %d steps: %s", steps, error)
            middle = start_s + (steps // 2 - 1) * step_s
            yield from self._piece(query, start_s, middle, step_s)
            yield from self._piece(query, middle + step_s, end_s, step_s)
            return
        yield from self._result(data)

    def _whole(
        self, path: str, parameters: Parameters, *, method: str = "POST", retries: RetryPolicy = _RETRIES
    ) -> object:
        try:
            return self._ask(path, parameters, method=method, retries=retries)
        except _TooLargeError as error:
            asked = parameters.get("query") or parameters.get("match[]") or path
            raise SourceError(f"{self.url} refuses {asked} as too large: {error}; narrow it with --selector") from error

    def _ask(
        self, path: str, parameters: Parameters, *, method: str = "POST", retries: RetryPolicy = _RETRIES
    ) -> object:
        def again(reason: str) -> None:
            logger.info("%s: %s; trying again", self.url, reason)

        try:
            return self._connection.answer(lambda: self._once(path, parameters, method), retries, again)
        except TransientError as error:
            raise SourceError(
                f"{self.url} cannot be reached: {error}; check the address, or port-forward the service"
            ) from error

    def _once(self, path: str, parameters: Parameters, method: str) -> object:
        with self._counting:
            self.requests += 1
        form, asked = (dict(parameters), None) if method == "POST" else (None, dict(parameters))
        try:
            with self._connection.client.stream(
                method, self._connection.address + path, data=form, params=asked
            ) as response:
                body = self._body(response)
                content_type = response.headers.get("content-type", "")
        except httpx.TransportError as error:
            if isinstance(error, httpx.ReadTimeout) and path.endswith("query_range"):
                raise _TooLargeError("no answer in time") from error
            raise TransientError(self._connection.reason(error)) from error
        if response.status_code != httpx.codes.OK:
            self._refuse(response, body, str(parameters.get("query", path)))
        if "text/html" in content_type:
            raise self._foreign("it answered with a web page: a login page or another service")
        try:
            answer: object = orjson.loads(body)
        except orjson.JSONDecodeError as error:
            raise self._foreign(f"the answer is {content_type or 'of no stated type'}, not JSON") from error
        if not isinstance(answer, dict) or answer.get("status") != "success":
            raise self._foreign("the answer is not of Prometheus' form")
        for warning in [*(answer.get("warnings") or ()), *(("isPartial",) if answer.get("isPartial") else ())]:
            self._warned(self._connection.shown(str(warning)))
        return answer.get("data")

    def _warned(self, warning: str) -> None:
        """Note that an answer may be partial: Thanos and Mimir say so in `warnings`, VictoriaMetrics in `isPartial`."""
        with self._counting:
            first = warning not in self.warnings
            self.warnings[warning] = self.warnings.get(warning, 0) + 1
        if first:
            logger.warning("%s warns: %s; the answer may be partial", self.url, warning)

    def _body(self, response: httpx.Response) -> bytes:
        parts = []
        size = 0
        for part in response.iter_bytes():
            size += len(part)
            if size > MAX_RESPONSE_BYTES:
                raise _TooLargeError(f"an answer of more than {MAX_RESPONSE_BYTES} bytes")
            parts.append(part)
        with self._counting:
            self.received_bytes += size
        return b"".join(parts)

    def _refuse(self, response: httpx.Response, body: bytes, query: str) -> None:
        """Raise the error that a status means; return where it means success."""
        status, content_type = response.status_code, response.headers.get("content-type", "")
        said = self._connection.shown(_said(body))
        if status in (401, 403):
            raise CredentialsError(
                f"{self.url} answered {status}, not allowed: {said or 'no reason given'}; "
                "give --bearer-file, --user or --header, or ask for read access"
            )
        if status in _TOO_LARGE_STATUS and any(sign in said.casefold() for sign in _TOO_LARGE):
            raise _TooLargeError(said)
        if status in RETRY_STATUS - _LASTING_STATUS:
            asked_s = retry_after_s(response.headers.get("Retry-After", ""))
            raise TransientError(f"answered {status} {said}".strip(), wait_s=asked_s)
        if "text/html" in content_type or 300 <= status < 400:
            raise self._foreign(f"it answered {status} with a web page: a login page or another service")
        if status >= 400:
            raise SourceError(f"{self.url} answered {status} to {query}: {said or 'no reason given'}")

    def _result(self, data: object) -> Iterator[Series]:
        if not isinstance(data, dict) or not isinstance(data.get("result"), list):
            raise self._foreign("an answer without a result")
        for item in data["result"]:
            try:
                found = _series(item)
            except (AttributeError, KeyError, IndexError, TypeError, ValueError) as error:
                raise self._foreign(f"a series that cannot be read: {str(item)[:80]}") from error
            yield found

    def _foreign(self, why: str) -> SourceError:
        return SourceError(
            f"{self.url} does not speak Prometheus' HTTP API: {self._connection.shown(why)}; "
            "check the address and its path prefix"
        )


def any_of(label: str, values: Iterable[str]) -> str:
    """Return a matcher of a label that is any of the values, taken literally."""
    escaped = (re.sub(r"([.+*?()|\[\]{}^$\\])", r"\\\\\1", value).replace('"', '\\"') for value in sorted(set(values)))
    return f'{label}=~"{"|".join(escaped)}"'


def _series(item: Mapping[str, object]) -> Series:
    points = cast("Sequence[tuple[float, str]]", item.get("values") or [item["value"]])
    moments, texts = zip(*points, strict=True)
    times = np.array(moments, dtype=np.float64)
    values = np.array(list(map(float, texts)), dtype=np.float64)
    if not (np.abs(times) < _END_OF_TIME_S).all():
        raise ValueError("a time that is no moment")
    return Series(
        labels=_labels(item.get("metric")), times_ms=np.rint(times * MS_PER_S).astype(np.int64), values=values
    )


def _labels(metric: object) -> dict[str, str]:
    return {str(key): str(value) for key, value in metric.items()} if isinstance(metric, dict) else {}


def _said(body: bytes) -> str:
    """Return the reason that an answer gives, if any."""
    try:
        answer: object = orjson.loads(body)
    except orjson.JSONDecodeError:
        return "" if body.lstrip().startswith(b"<") else body[:200].decode("utf-8", "replace").strip()
    return str(answer.get("error", "")) if isinstance(answer, dict) else ""


def _moment(seconds: float) -> str:
    return f"{seconds:.3f}"
