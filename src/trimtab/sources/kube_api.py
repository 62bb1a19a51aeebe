"""Lists of a Kubernetes API server, page by page, through whatever carries the requests.

An API server answers 410 Gone when a list's continue token is too old: the list is read again from its beginning. 429, 500,
502, 503 and 504 and timeouts are tried again with growing pauses, 429 after what Retry-After says.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from trimtab.errors import CredentialsError, SourceError
from trimtab.sources.kube_objects import Object, Objects, at, listed, text
from trimtab.sources.kube_quantity import quantity
from trimtab.sources.kube_resources import RESOURCES, Resource

logger = logging.getLogger(__name__)

PAGE = 500
"""Objects a page: what kubectl asks for by default."""
_TRIES = 5
_MOST_RESTARTS = 3
_FIRST_PAUSE_S = 0.5
_MOST_PAUSE_S = 30.0
_PASSING = frozenset({429, 500, 502, 503, 504})
_APPLY = "trimtab collect --rbac | kubectl apply -f -"

Report = Callable[[str, float], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What an API server answered."""

    status: int
    body: str
    retry_after: str = ""


class Unanswered(Exception):
    """A request that got no answer: a timeout, a broken or refused connection. Says which."""


class Carrier(Protocol):
    """What carries a request: its address, authentication and certificates are its own business."""

    def get(self, path: str, parameters: Mapping[str, str]) -> Answer:
        """Return the answer to a GET; raises Unanswered."""
        ...


@dataclass(slots=True, kw_only=True)
class KubeApi:
    """Reads lists; `server` is what errors call the server, `pause` sleeps for seconds."""

    carrier: Carrier
    server: str
    page: int = PAGE
    pause: Callable[[float], None] = time.sleep
    requests: int = field(default=0, init=False)

    def read(self, report: Report = lambda stage, done_frac: None) -> Objects:
        """List every resource that trimtab reads.

        A resource whose API is not installed is passed over; one that may not be listed is counted, with what is then not
        known. Raises CredentialsError where nodes or pods may not be listed, SourceError where the server does not answer.
        """
        objects = Objects()
        for index, resource in enumerate(RESOURCES):
            report(f"listing {resource.name}", index / len(RESOURCES))
            try:
                items = self.items(resource)
            except CredentialsError:
                if resource.needed:
                    raise
                objects.count(f"resource {resource.name} that may not be listed; not known: {resource.cost}")
                continue
            for item in items:
                objects.take({"apiVersion": _version(resource), **item, "kind": resource.kind})
        return objects

    def items(self, resource: Resource) -> list[Object]:
        """Return all objects of a resource, of the first of its API versions that the server has; none where it has none."""
        for path in resource.paths():
            for _ in range(_MOST_RESTARTS):
                found = self._pages(path, resource)
                if found is not None:
                    return found
        if resource.needed:
            raise SourceError(
                f"{self.server}: no {resource.name} there (404); is it the address of a Kubernetes API server?"
            )
        logger.debug("%s: %s is not installed", self.server, resource.name)
        return []

    def _pages(self, path: str, resource: Resource) -> list[Object] | None:
        """Return a list's items; None where there is no such list, or it must be read again from its beginning."""
        items: list[Object] = []
        token = ""
        while True:
            parameters = {"limit": str(self.page)} | ({"continue": token} if token else {})
            answer = self._ask(path, parameters, resource)
            if answer.status in (404, 410):
                return None
            page = self._parsed(answer, resource)
            items += listed(page, "items")
            token, before = text(page, "metadata", "continue"), token
            if not token:
                return items
            if token == before:
                raise SourceError(f"{self.server}: the list of {resource.name} repeats its continue token; report it")

    def _ask(self, path: str, parameters: Mapping[str, str], resource: Resource) -> Answer:
        """Ask until the answer is one, or patience ends."""
        pause_s, last = _FIRST_PAUSE_S, ""
        for attempt in range(_TRIES):
            self.requests += 1
            try:
                answer = self.carrier.get(path, parameters)
            except Unanswered as error:
                last = str(error)
            else:
                if answer.status not in _PASSING:
                    return self._allowed(answer, resource)
                last = f"HTTP {answer.status}: {_message(answer)}"
                pause_s = max(pause_s, quantity(answer.retry_after) or 0.0)
            if attempt < _TRIES - 1:
                self.pause(min(pause_s, _MOST_PAUSE_S))
                pause_s *= 2
        raise SourceError(
            f"{self.server}: listing {resource.name} failed {_TRIES} times, at last with {last}; "
            "is the cluster reachable (kubectl get nodes)? else read a dump: kubectl get ... -o json, --kube-dump FILE"
        )

    def _allowed(self, answer: Answer, resource: Resource) -> Answer:
        """Return an answer that is a list, that there is none (404), or that it must be read again (410)."""
        match answer.status:
            case 200 | 404 | 410:
                return answer
            case 401:
                raise CredentialsError(
                    f"{self.server}: not signed in while listing {resource.name} (401: {_message(answer)}); "
                    "renew the credentials of the kubeconfig context (kubectl get nodes must work)"
                )
            case 403:
                raise CredentialsError(
                    f"{self.server}: not allowed to list {resource.name} (403: {_message(answer)}); grant it with: {_APPLY}"
                )
            case status:
                raise SourceError(f"{self.server}: listing {resource.name} answered HTTP {status}: {_message(answer)}")

    def _parsed(self, answer: Answer, resource: Resource) -> object:
        try:
            return json.loads(answer.body)
        except (ValueError, RecursionError) as error:
            raise SourceError(
                f"{self.server}: the list of {resource.name} is not JSON ({error}); "
                "is it the address of a Kubernetes API server, or of a proxy's sign-in page?"
            ) from error


def _version(resource: Resource) -> str:
    return f"{resource.group}/{resource.versions[0]}" if resource.group else resource.versions[0]


def _message(answer: Answer) -> str:
    """Return what the server said: a Status object's message, else the first line."""
    try:
        said = at(json.loads(answer.body), "message")
    except (ValueError, RecursionError):
        said = None
    plain = said if isinstance(said, str) else answer.body
    return " ".join(plain.split())[:200] or "no message"
