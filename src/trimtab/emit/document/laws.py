"""How services answer under load: what the plan takes a replica to serve, and how that did against history."""

from __future__ import annotations

from trimtab.emit.document.part import Part


class HeldPart(Part):
    """A measure as a law foretold it and as it was."""

    foretold: float
    """By the law fitted on the hours of less load."""
    measured: float
    """In the hours held out."""


class BackTestPart(Part):
    """A law fitted on the hours of less load, held against those of more."""

    fitted_req_s: float
    """Highest load of a replica that it was fitted on, requests/s."""
    tested_req_s: float
    """Highest load that it was tested on, requests/s."""
    limit_s: float | None
    """The latency limit that came out worst; null where no target has one."""
    in_time: HeldPart | None
    """Shares of requests within it, 0..1; null where not measured."""
    running: HeldPart | None
    """Requests in work of a replica, mean; null where not measured."""
    waiting: HeldPart | None
    """Requests that wait, of a replica, mean; null where not measured."""
    gpu_s: HeldPart | None
    """GPU-seconds of activity per request; null where not measured."""
    error_frac: float
    """How far it was off: of the GPU time per request or of requests in time, the larger share."""


class LawPart(Part):
    """What the plan takes a replica of a service to serve."""

    workload: str
    """Namespace and name."""
    bound: str
    """What told the most that a replica serves."""
    unit: str
    """Of the three loads: `requests/s`, or `GPUs at work` without request metrics."""
    planned: float
    """The load of a replica that the plan aims at, at most."""
    shown: float
    """The highest load that history shows a replica to sustain."""
    by_activity: float
    """What it would serve at full GPU activity, if nothing else is full before."""
    back_test: BackTestPart | None
    """Null where none was possible."""
    untested: str
    """Why none was; empty where it was."""
    load_test: str
    """How to show that a replica serves more; empty where that would buy nothing."""
    load_test_saves_usd_mo: float | None
    """Dollars a month that the plan could save with it, at most and before commitments; null where unknown."""
