"""Google Cloud: `instance/preempted` from the metadata server, by a long poll that returns the moment the value changes.

A poll that hangs means no notice. Spot VMs are off 30 s after the soft-off signal that comes with it. Source:
cloud.google.com, "Spot VMs" and "About VM metadata" (`wait_for_change`, `last_etag`, `timeout_sec`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from http import HTTPStatus
from urllib.parse import quote

from trimtab_runtime.notice.metadata import MetadataServer
from trimtab_runtime.notice.notice import Notice, interruption

DEFAULT_HOST = "metadata.google.internal"
LEAD_S = 30.0
_LONG_POLL_S = 60
_TIMEOUT_MARGIN_S = 10.0
_PATH = "/computeMetadata/v1/instance/preempted"


class GcpPreemptionNotices:
    """Waits at the metadata server for `preempted` to become TRUE."""

    name = "gcp"

    def __init__(self, url: str | None = None, *, long_poll_s: int = _LONG_POLL_S) -> None:
        self.pause_s = 0.0
        self._server = MetadataServer(url or f"http://{os.environ.get('GCE_METADATA_HOST', DEFAULT_HOST)}")
        self._long_poll_s = long_poll_s
        self._etag = ""

    def look(self) -> Sequence[Notice]:
        """Wait for a change, or on the first look return the value as it is."""
        wait = (
            f"?wait_for_change=true&last_etag={quote(self._etag)}&timeout_sec={self._long_poll_s}" if self._etag else ""
        )
        answer = self._server.ask(
            "GET", _PATH + wait, {"Metadata-Flavor": "Google"}, self._long_poll_s + _TIMEOUT_MARGIN_S
        )
        if answer.status != HTTPStatus.OK:
            raise ConnectionError(f"the metadata server answered {answer.status} to {_PATH}")
        self.pause_s = 0.0 if answer.etag else 1.0  # a server without etags cannot be waited at
        self._etag = answer.etag
        if answer.body.strip().upper() != "TRUE":
            return []
        self.pause_s = 1.0  # nothing more is to come: do not ask in a tight loop
        return [interruption("gcp", LEAD_S, time.monotonic(), "preempted")]
