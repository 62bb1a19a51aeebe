"""AWS: the spot instance action and the rebalance recommendation, from the instance metadata service (IMDSv2).

EC2 sends the process no signal at the two-minute mark; it must be polled here. An absent document
(404) means no notice. Sources: docs.aws.amazon.com, "Spot Instance interruption notices" (ask every 5 s; about two
minutes ahead, best effort; none for hibernation) and "EC2 instance rebalance recommendations".
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from datetime import datetime
from http import HTTPStatus

from trimtab_runtime.notice.metadata import MetadataAnswer, MetadataServer, seconds_until
from trimtab_runtime.notice.notice import Notice, NoticeKind, interruption
from trimtab_runtime.units import as_utc

DEFAULT_URL = "http://169.254.169.254"
LEAD_S = 120.0
POLL_S = 5.0
TOKEN_TTL_S = 21600
_TIMEOUT_S = 2.0
_ACTION_PATH = "/latest/meta-data/spot/instance-action"
_REBALANCE_PATH = "/latest/meta-data/events/recommendations/rebalance"


class AwsSpotNotices:
    """Asks the instance metadata service, renewing its session token when the service asks for it."""

    name = "aws"

    def __init__(self, url: str | None = None, *, pause_s: float = POLL_S) -> None:
        self.pause_s = pause_s
        self._server = MetadataServer(url or os.environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT", DEFAULT_URL))
        self._token = ""

    def look(self) -> Sequence[Notice]:
        """Return the interruption and the rebalance recommendation that are announced."""
        found = (_interruption(self._get(_ACTION_PATH)), _rebalance(self._get(_REBALANCE_PATH)))
        return [notice for notice in found if notice is not None]

    def _get(self, path: str) -> MetadataAnswer:
        if not self._token:
            self._renew_token()
        answer = self._ask(path)
        if answer.status == HTTPStatus.UNAUTHORIZED:
            self._renew_token()
            answer = self._ask(path)
        if answer.status not in (HTTPStatus.OK, HTTPStatus.NOT_FOUND):
            raise ConnectionError(f"the metadata service answered {answer.status} to {path}")
        return answer

    def _ask(self, path: str) -> MetadataAnswer:
        return self._server.ask("GET", path, {"X-aws-ec2-metadata-token": self._token}, _TIMEOUT_S)

    def _renew_token(self) -> None:
        headers = {"X-aws-ec2-metadata-token-ttl-seconds": str(TOKEN_TTL_S), "Content-Length": "0"}
        answer = self._server.ask("PUT", "/latest/api/token", headers, _TIMEOUT_S)
        if answer.status != HTTPStatus.OK:
            raise ConnectionError(
                f"the metadata service gave no token ({answer.status}); in a container, raise the instance's hop limit to 2"
            )
        self._token = answer.body.strip()


def _interruption(answer: MetadataAnswer) -> Notice | None:
    if answer.status == HTTPStatus.NOT_FOUND:
        return None
    now_s = time.monotonic()
    try:
        document = json.loads(answer.body)
        lead_s = seconds_until(as_utc(datetime.fromisoformat(document["time"])), answer, LEAD_S)
        return interruption("aws", lead_s, now_s, str(document.get("action", "")))
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        # Something is announced that cannot be read: the shortest lead that leaves room for a save is the safe reading.
        return interruption("aws", LEAD_S / 4, now_s, f"unreadable: {answer.body[:100]}")


def _rebalance(answer: MetadataAnswer) -> Notice | None:
    if answer.status == HTTPStatus.NOT_FOUND:
        return None
    now_s = time.monotonic()
    return Notice(
        source="aws", kind=NoticeKind.REBALANCE, seen_s=now_s, deadline_s=float("inf"), detail=answer.body[:100]
    )
