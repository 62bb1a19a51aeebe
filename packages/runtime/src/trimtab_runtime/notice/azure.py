"""Azure: scheduled events from the instance metadata service, of which `Preempt` is the loss of a spot machine.

An empty list means no notice; a list may hold events of other machines of the same set. Source: learn.microsoft.com,
"Azure Metadata Service: Scheduled Events" (ask about once a second; Preempt and Terminate at least 30 s ahead;
`NotBefore` empty once started).
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from datetime import UTC
from http import HTTPStatus

from trimtab_runtime.notice.metadata import MetadataAnswer, MetadataServer, seconds_until
from trimtab_runtime.notice.notice import Notice, interruption

DEFAULT_URL = "http://169.254.169.254"
LEAD_S = 30.0
POLL_S = 0.8
_MOST_LEAD_S = 900.0
"""Reboot and Redeploy are announced 10 to 15 minutes ahead."""
_TIMEOUT_S = 5.0
_FIRST_ANSWER_TIMEOUT_S = 150.0
"""The service is switched on by the first request, which may take two minutes."""
_EVENTS_PATH = "/metadata/scheduledevents?api-version=2020-07-01"
_NAME_PATH = "/metadata/instance/compute/name?api-version=2021-02-01&format=text"
_ENDS_THE_MACHINE = frozenset({"Preempt", "Terminate", "Redeploy", "Reboot"})


class AzureScheduledEvents:
    """Asks for the events that end this machine."""

    name = "azure"

    def __init__(self, url: str = DEFAULT_URL, *, pause_s: float = POLL_S) -> None:
        self.pause_s = pause_s
        self._server = MetadataServer(url)
        self._machine: str | None = None
        self._answered = False

    def look(self) -> Sequence[Notice]:
        """Return the interruptions that are announced for this machine."""
        if self._machine is None:
            self._machine = self._name()
        timeout_s = _TIMEOUT_S if self._answered else _FIRST_ANSWER_TIMEOUT_S
        answer = self._server.ask("GET", _EVENTS_PATH, {"Metadata": "true"}, timeout_s)
        if answer.status != HTTPStatus.OK:
            raise ConnectionError(f"the metadata service answered {answer.status} to {_EVENTS_PATH}")
        self._answered = True
        return [_notice(event, answer) for event in _events(answer) if self._concerns_us(event)]

    def _name(self) -> str:
        answer = self._server.ask("GET", _NAME_PATH, {"Metadata": "true"}, _TIMEOUT_S)
        return answer.body.strip() if answer.status == HTTPStatus.OK else ""

    def _concerns_us(self, event: Mapping[str, object]) -> bool:
        resources = event.get("Resources")
        named = not self._machine or not isinstance(resources, list) or not resources or self._machine in resources
        return named and str(event.get("EventType")) in _ENDS_THE_MACHINE


def _events(answer: MetadataAnswer) -> list[Mapping[str, object]]:
    try:
        events = json.loads(answer.body).get("Events") or []
        return [event for event in events if isinstance(event, dict)]
    except (ValueError, AttributeError, TypeError, RecursionError) as error:
        raise ConnectionError(f"scheduled events are not the JSON that was expected: {answer.body[:100]}") from error


def _notice(event: Mapping[str, object], answer: MetadataAnswer) -> Notice:
    kind = str(event.get("EventType"))
    return interruption("azure", _lead_s(event, answer), time.monotonic(), kind)


def _lead_s(event: Mapping[str, object], answer: MetadataAnswer) -> float:
    if event.get("EventStatus") == "Started":
        return 0.0
    from email.utils import parsedate_to_datetime  # only a machine in Azure needs it

    try:
        not_before = parsedate_to_datetime(str(event.get("NotBefore") or "")).replace(tzinfo=UTC)
    except (ValueError, TypeError, OverflowError):
        return LEAD_S
    return seconds_until(not_before, answer, _MOST_LEAD_S)
