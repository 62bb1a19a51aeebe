"""Does a batcher tuned by replay keep its target live? Share of requests within the target, with the headroom and without.

Settings are tuned on one draw of Poisson arrivals (least device time within the target at p95) and run live, in threads and
asyncio, on another draw, on a simulated device (5 ms + 0.1 ms an item). `within_frac` is to be at least 0.95.

Run: python -m benchmarks.batch_tune        # some forty seconds
"""

from __future__ import annotations

import asyncio
import json
import random
from dataclasses import asdict, dataclass
from time import perf_counter

from benchmarks.batcher_device import BASE_S, MAX_BATCH, PER_ITEM_S, Device
from trimtab.physics.colocation import BatchCurve
from trimtab.replay.batches import HEADROOM_FRAC, tune
from trimtab_runtime.batcher import Batcher, Options
from trimtab_runtime.policies.batching import BatchRule

SHARE = 0.95
CASES = ((280.0, 0.03), (561.0, 0.03), (561.0, 0.06))
"""Requests a second, and the target in seconds."""
REQUESTS = 3_000
WARM = 200
"""The first requests, while run times are learned, do not count."""
SIZES = (1, 8, 32, MAX_BATCH)


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """One setting run live."""

    rate_req_s: float
    target_s: float
    headroom_frac: float
    min_batch: int
    window_s: float
    within_frac: float
    mean_batch: float


def arrivals(rate_req_s: float, seed: int) -> list[float]:
    """Draw arrival times."""
    rng = random.Random(seed)
    times, now_s = [], 0.0
    for _ in range(REQUESTS):
        now_s += rng.expovariate(rate_req_s)
        times.append(now_s)
    return times


async def run_live(rule: BatchRule, times_s: list[float]) -> tuple[list[float], float]:
    """Send requests when they are due; return their latencies from then on, and the mean batch."""
    device = Device()
    options = Options(
        max_batch=rule.max_batch, min_batch=rule.min_batch, window_s=rule.window_s, target_s=rule.target_s
    )
    batcher: Batcher[int, object] = Batcher(device.run, options)
    began_s = perf_counter()

    async def ask(due_s: float) -> float:
        await batcher(0)
        return perf_counter() - began_s - due_s

    tasks = []
    for due_s in times_s:
        await asyncio.sleep(max(0.0, due_s - (perf_counter() - began_s)))
        tasks.append(asyncio.ensure_future(ask(due_s)))
    latencies_s = await asyncio.gather(*tasks)
    await batcher.drain()
    return latencies_s[WARM:], device.items / device.batches


def measure(rate_req_s: float, target_s: float, headroom_frac: float) -> Live:
    """Tune on one draw and run live on another."""
    curve = BatchCurve(sizes=SIZES, seconds=tuple(BASE_S + PER_ITEM_S * size for size in SIZES))
    rule = tune(
        arrivals(rate_req_s, seed=1), curve, target_s=target_s, share=SHARE, headroom_frac=headroom_frac
    )[0].rule  # fmt: skip
    latencies_s, mean_batch = asyncio.run(run_live(rule, arrivals(rate_req_s, seed=2)))
    within = sum(latency_s <= target_s for latency_s in latencies_s) / len(latencies_s)
    return Live(
        rate_req_s=rate_req_s, target_s=target_s, headroom_frac=headroom_frac, min_batch=rule.min_batch,
        window_s=rule.window_s, within_frac=within, mean_batch=mean_batch,
    )  # fmt: skip


def main() -> None:
    rows = []
    for rate_req_s, target_s in CASES:
        for headroom_frac in (0.0, HEADROOM_FRAC):
            rows.append(row := measure(rate_req_s, target_s, headroom_frac))
            print(
                f"{rate_req_s:5.0f} req/s, target {target_s * 1e3:.0f} ms, headroom {headroom_frac:.0%}: "
                f"{row.within_frac:.1%} within the target, batches of {row.mean_batch:.1f}"
            )
    least = {
        str(frac): min(row.within_frac for row in rows if row.headroom_frac == frac) for frac in (0.0, HEADROOM_FRAC)
    }
    print(
        json.dumps(
            {"benchmark": "batch_tune", "least_within_frac": least, "share": SHARE, "rows": [asdict(r) for r in rows]}
        )
    )


if __name__ == "__main__":
    main()
