"""The emitted rule of demand, as Prometheus evaluates it, beside the demand that truly was: servers, scrape intervals, mishaps.

Run: python -m benchmarks.demand_rules [--promtool PATH]

Two replicas answer a load that rises from 40 to 80 % of both, with a queue that comes and goes. Each server's counters are
written as it exports them, scraped every 10, 15, 30 and 60 s: without a fault, with one scrape of one replica or of both
failed (a staleness marker, as Prometheus writes it), and with a container that restarts, so that its counter begins at 0 and
two of its scrapes fail while the other replica takes the load. kube-state-metrics tells which are ready. `promtool test rules`
evaluates the emitted rules, 5 s after each scrape. Truth is what arrived since the last scrape, and the queue, in replicas.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import yaml
from tests.emit.cluster_example import example_facts
from tests.emit.example import P4D, example_audit

from trimtab.emit.manifests.demand_rules import DEMAND
from trimtab.emit.manifests.facts import ServiceFacts, WorkloadFacts
from trimtab.emit.manifests.plan_files import emit_plan
from trimtab.emit.manifests.signals import SERVERS, ServerSignals
from trimtab.policies.scaling import SYNC_S

CHAT = "prod/chat-api"
CAPACITY_REQ_S = 10.0
SCRAPES = 40
SCRAPES_S = (10, 15, 30, 60)
FAULT = 20
"""The scrape at which something goes wrong."""
FIRST = 6
"""The first scrape that counts: before, windows are not full."""
WITHIN_FRAC = 0.05
PODS = ("chat-api-7d4b9c6f5-x2x9k", "chat-api-7d4b9c6f5-b4c6d")
MISHAPS = ("none", "one scrape of one replica fails", "one scrape of both fails", "a replica restarts")
_AFTER_S = 5
_GOT = re.compile(r"time: (?P<time>\S+),\s*exp:.*?got:\s*\[?(?P<got>.*?)(?=\n\s*expr:|\Z)", re.DOTALL)
_PARTS = re.compile(r"(\d+)([hms])")


@dataclass(frozen=True, slots=True)
class Served:
    """One replica by scrape: requests that came since the one before, those that waited, and whether it was read."""

    came: Sequence[int]
    waiting: Sequence[int]
    missed: frozenset[int]
    restarts: bool


def replicas(mishap: str, scrape_s: int, rng: random.Random) -> tuple[Served, Served]:
    """Return what both replicas do under a mishap."""
    each = [0.4 + 0.4 * number / SCRAPES for number in range(SCRAPES)]
    came = [[round(share * CAPACITY_REQ_S * scrape_s) for share in each] for _ in PODS]
    waiting = [[rng.randrange(4) for _ in each] for _ in PODS]
    missed: list[frozenset[int]] = [frozenset(), frozenset()]
    if mishap == MISHAPS[1]:
        missed[0] = frozenset({FAULT})
    elif mishap == MISHAPS[2]:
        missed = [frozenset({FAULT}), frozenset({FAULT})]
    elif mishap == MISHAPS[3]:
        missed[0] = frozenset({FAULT, FAULT + 1})
        for number in missed[0]:
            came[1][number] += came[0][number]
            came[0][number] = waiting[0][number] = 0
    first, second = (Served(came[pod], waiting[pod], missed[pod], mishap == MISHAPS[3] and pod == 0) for pod in (0, 1))
    return first, second


def samples(served: Served, signals: ServerSignals, pod: str) -> Iterator[Mapping[str, str]]:
    """Yield the series of one replica, as promtool spells them."""
    done, counted = 0, []
    for number, came in enumerate(served.came):
        if served.restarts and number == FAULT:
            done = 0
        before = served.waiting[number - 1] if number else 0
        answered = came if signals.arrived or signals.waiting is None else came - (served.waiting[number] - before)
        done += max(0, answered)
        counted.append(done)
    named = f'{{namespace="prod",pod="{pod}"}}'
    yield {"series": f"{signals.arrived or signals.completed}{named}", "values": _spelled(counted, served.missed)}
    if signals.waiting is not None:
        yield {"series": f"{signals.waiting}{named}", "values": _spelled(served.waiting, served.missed)}
    ready = [int(not (served.restarts and number in served.missed)) for number in range(SCRAPES)]
    labelled = f'{named[:-1]},condition="true"}}'
    yield {"series": f"kube_pod_status_ready{labelled}", "values": _spelled(ready, frozenset())}


def _spelled(values: Sequence[int], missed: frozenset[int]) -> str:
    return " ".join("stale" if number in missed else str(value) for number, value in enumerate(values))


def truth(both: Sequence[Served], signals: ServerSignals, number: int, scrape_s: int) -> float:
    """Return the demand at a scrape, in replicas."""
    queue = sum(served.waiting[number] for served in both) if signals.waiting is not None else 0
    return (sum(served.came[number] for served in both) / scrape_s + queue / SYNC_S) / CAPACITY_REQ_S


def rules_of(server: str, scrape_s: int) -> Mapping[str, object]:
    """Return the emitted rules of a service on some server."""
    plan = example_audit().plan
    action = next(action for action in plan.actions if action.id == "a8")
    scaling = next(change for each in plan.actions for change in each.changes if change.subject == CHAT)
    known = WorkloadFacts(
        name=CHAT, pool=P4D, gpus_per_node=8, replicas=2,
        service=ServiceFacts(capacity_req_s=CAPACITY_REQ_S, signals=SERVERS[server], server_is_known=True),
    )  # fmt: skip
    facts = replace(example_facts(), workloads=(known,), scrape_interval_s=scrape_s, scrape_is_known=True)
    emission = emit_plan(replace(plan, actions=(replace(action, changes=(scaling,)),)), facts)
    file = next(file for file in emission.files if file.kind == "PrometheusRule")
    spec: Mapping[str, object] = yaml.safe_load(file.text)["spec"]
    return spec


def readings(server: str, scrape_s: int, both: Sequence[Served], promtool: str) -> dict[int, float | None]:
    """Return what Prometheus records of demand at each scrape; None where it knows nothing."""
    signals = SERVERS[server]
    at_s = {number * scrape_s + _AFTER_S: number for number in range(FIRST, SCRAPES)}
    series = [row for pod, served in zip(PODS, both, strict=True) for row in samples(served, signals, pod)]
    asked = [
        # a value that never is: promtool says what it got in its place
        {"expr": DEMAND, "eval_time": f"{second}s", "exp_samples": [{"labels": "{}", "value": -1}]}
        for second in at_s
    ]
    test = {
        "rule_files": ["rules.yaml"],
        "evaluation_interval": f"{_AFTER_S}s",
        "tests": [{"interval": f"{scrape_s}s", "input_series": series, "promql_expr_test": asked}],
    }
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "rules.yaml").write_text(yaml.safe_dump(rules_of(server, scrape_s)), encoding="utf-8")
        (Path(folder) / "test.yaml").write_text(yaml.safe_dump(test), encoding="utf-8")
        run = subprocess.run(
            [promtool, "test", "rules", "test.yaml"], cwd=folder, capture_output=True, text=True, check=False
        )
    found: dict[int, float | None] = {}
    for match in _GOT.finditer(run.stdout + run.stderr):
        second = sum(int(count) * {"h": 3600, "m": 60, "s": 1}[unit] for count, unit in _PARTS.findall(match["time"]))
        value = re.search(r"\}\s*([0-9.eE+-]+)", match["got"])
        found[at_s[second]] = float(value[1]) if value else None
    if len(found) != len(at_s):
        raise SystemExit(f"{len(found)} of {len(at_s)} readings of {server}: {run.stdout}{run.stderr}")
    return found


def main() -> None:
    """Read every server at every interval under every mishap, and print a line each and the sums."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--promtool", default=shutil.which("promtool") or "promtool")
    promtool = parser.parse_args().promtool
    sums: dict[str, Counter[str]] = {mishap: Counter() for mishap in MISHAPS}
    worst = dict.fromkeys(MISHAPS, 0.0)
    for server in sorted(SERVERS):
        for scrape_s in SCRAPES_S:
            for mishap in MISHAPS:
                both = replicas(mishap, scrape_s, random.Random(f"{server} {scrape_s}"))
                for number, value in readings(server, scrape_s, both, promtool).items():
                    true = truth(both, SERVERS[server], number, scrape_s)
                    off = 0.0 if value is None else value / true - 1
                    sums[mishap]["readings"] += 1
                    sums[mishap]["unknown"] += value is None
                    sums[mishap]["zero"] += value == 0
                    sums[mishap]["within"] += value is not None and abs(off) <= WITHIN_FRAC
                    sums[mishap]["low"] += off < -WITHIN_FRAC
                    sums[mishap]["high"] += off > WITHIN_FRAC
                    worst[mishap] = max(worst[mishap], off, -off)
        print(server, {mishap: (dict(sums[mishap]), round(worst[mishap], 3)) for mishap in MISHAPS}, flush=True)
    answer = {mishap: {**sums[mishap], "worst_off_frac": worst[mishap]} for mishap in MISHAPS}
    print(json.dumps({"benchmark": "demand_rules", "servers": len(SERVERS), **answer}))


if __name__ == "__main__":
    main()
