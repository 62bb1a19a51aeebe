"""What is to be served: requests, tokens, and the limits on their times."""

from __future__ import annotations

import math
from dataclasses import dataclass

from trimtab.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class Targets:
    """Limits in seconds; None means that there is none. TTFT is held at p95, TPOT and latency at the mean."""

    ttft_s: float | None = None
    tpot_s: float | None = None
    latency_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What is to be served: requests a second (or a fixed concurrency), tokens in and out, limits, headroom."""

    input_tokens: float
    output_tokens: float
    rate_req_s: float | None = None
    concurrency: int | None = None
    targets: Targets = Targets()
    headroom_frac: float = 0.2
    mean_req_s: float | None = None
    """What is served on average where `rate_req_s` is a peak; the cost of a token spreads over these. None: the rate itself."""

    def __post_init__(self) -> None:
        for rate in (self.rate_req_s, self.mean_req_s):
            if rate is not None and not (math.isfinite(rate) and rate > 0):
                raise InputError(f"a rate of {rate} requests a second cannot be served; give one above 0")
        if self.input_tokens < 1 or self.output_tokens < 1:
            raise InputError("requests need at least one input and one output token")
        if (self.rate_req_s is None) == (self.concurrency is None):
            raise InputError("give either a rate of requests or a concurrency")
