"""The emitted rule of demand, as Prometheus evaluates it, beside the demand that truly was: servers, scrape intervals, mishaps.

Run: python -m benchmarks.demand_rules [--promtool PATH]

Two replicas answer a load that rises from 40 to 80 % of both, with a queue that comes and goes. Each server's counters are
written as it exports them, scraped every 10, 15, 30 and 60 s: without a fault, with one scrape of one replica or of both
failed (a staleness marker, as Prometheus writes it), and with a container that restarts, so that its counter begins at 0 and
two or ten of its scrapes fail while the other replica takes the load. kube-state-metrics tells which are ready. `promtool
test rules` evaluates the emitted rules, 5 s after each scrape. Truth is what arrived since the last scrape, and the queue, in
replicas.

Servers that count tokens are read by a rule on tokens too, with requests that are five times as long at the end as at first.
Truth is then the work of the tokens that were computed since the last scrape, the growth of the queue and the queue.
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

from trimtab.deployment.effects import SetReplicaPolicy
from trimtab.emit.manifests.demand_rules import DEMAND
from trimtab.emit.manifests.facts import SERVERS, ServerSignals, ServiceFacts, WorkloadFacts
from trimtab.emit.manifests.plan_files import emit_plan
from trimtab.fleet.token_work import TokenWork
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
MISHAPS = (
    "none",
    "one scrape of one replica fails",
    "one scrape of both fails",
    "a replica restarts",
    "a replica restarts and is long away",
)
AWAY = {"a replica restarts": 2, "a replica restarts and is long away": 10}
"""Scrapes that fail while a container restarts."""
PROMPT_TOKENS = tuple(round(300 * 5 ** (number / SCRAPES)) for number in range(SCRAPES))
ANSWER_TOKENS = tuple(round(60 * 5 ** (number / SCRAPES)) for number in range(SCRAPES))
"""Of each request, by scrape: five times as long at the end as at first."""
CACHED_FRAC = 0.3
WORK = TokenWork(input_req=0.0003, output_req=0.004, cached_req=0.00002)
"""What a token takes, such that such a request is about a mean one."""
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
    elif mishap in AWAY:
        missed[0] = frozenset(range(FAULT, FAULT + AWAY[mishap]))
        for number in missed[0]:
            came[1][number] += came[0][number]
            came[0][number] = waiting[0][number] = 0
    first, second = (Served(came[pod], waiting[pod], missed[pod], mishap in AWAY and pod == 0) for pod in (0, 1))
    return first, second


def answered(served: Served, number: int) -> int:
    """Return the requests that a replica answered since the scrape before: what came, less what more waits."""
    before = served.waiting[number - 1] if number else 0
    return max(0, served.came[number] - (served.waiting[number] - before))


def since_start(served: Served, each: Sequence[float]) -> list[float]:
    """Return a counter by scrape, of what a replica did since its container began."""
    counted: list[float] = []
    for number, rise in enumerate(each):
        begins = not number or (served.restarts and number == FAULT)
        counted.append(rise if begins else counted[-1] + rise)
    return counted


def counters(served: Served, signals: ServerSignals, *, by_tokens: bool) -> Iterator[tuple[str, Sequence[float]]]:
    """Yield the counters that a rule reads, and by how much each rises by scrape."""
    done = [answered(served, number) for number in range(SCRAPES)]
    if not by_tokens:
        counts_arrivals = bool(signals.arrived) or signals.waiting is None
        yield signals.arrived or signals.completed, served.came if counts_arrivals else done
        return
    prompts = [count * length for count, length in zip(done, PROMPT_TOKENS, strict=True)]
    yield signals.prompt_tokens or "", prompts
    yield signals.answer_tokens or "", [count * length for count, length in zip(done, ANSWER_TOKENS, strict=True)]
    if signals.cached_tokens:
        yield signals.cached_tokens, [CACHED_FRAC * tokens for tokens in prompts]


def samples(served: Served, signals: ServerSignals, pod: str, *, by_tokens: bool) -> Iterator[Mapping[str, str]]:
    """Yield the series of one replica, as promtool spells them."""
    named = f'{{namespace="prod",pod="{pod}"}}'
    sorted_by = ",".join((named[:-1], *(matcher for matcher in signals.only if "!~" not in matcher))) + "}"
    for counter, each in counters(served, signals, by_tokens=by_tokens):
        yield {"series": f"{counter}{sorted_by}", "values": _spelled(since_start(served, each), served.missed)}
    if signals.waiting is not None:
        yield {"series": f"{signals.waiting}{sorted_by}", "values": _spelled(served.waiting, served.missed)}
    ready = [int(not (served.restarts and number in served.missed)) for number in range(SCRAPES)]
    labelled = f'{named[:-1]},condition="true"}}'
    yield {"series": f"kube_pod_status_ready{labelled}", "values": _spelled(ready, frozenset())}


def _spelled(values: Sequence[float], missed: frozenset[int]) -> str:
    return " ".join("stale" if number in missed else str(value) for number, value in enumerate(values))


def truth(
    both: Sequence[Served], signals: ServerSignals, number: int, scrape_s: int, *, by_tokens: bool = False
) -> float:
    """Return the demand at a scrape, in replicas."""
    queue = sum(served.waiting[number] for served in both) if signals.waiting is not None else 0
    came: float = sum(served.came[number] for served in both)
    if by_tokens:
        came = sum(work_of(served, signals, number) for served in both)
    return (came / scrape_s + queue / SYNC_S) / CAPACITY_REQ_S


def work_of(served: Served, signals: ServerSignals, number: int) -> float:
    """Return the work that came since the scrape before, in mean requests: tokens computed, and requests that wait more."""
    done = answered(served, number)
    cached = CACHED_FRAC if signals.cached_tokens else 0.0
    prompt = PROMPT_TOKENS[number] * ((1 - cached) * WORK.input_req + cached * WORK.cached_req)
    return done * (prompt + ANSWER_TOKENS[number] * WORK.output_req) + served.came[number] - done


def rules_of(server: str, scrape_s: int, *, by_tokens: bool = False) -> Mapping[str, object]:
    """Return the emitted rules of a service on some server."""
    plan = example_audit().plan
    action = next(action for action in plan.actions if action.id == "a8")
    scaling = next(change for each in plan.actions for change in each.changes if change.subject == CHAT)
    if by_tokens:
        if not isinstance(scaling.effect, SetReplicaPolicy):
            raise TypeError(f"{CHAT} is not scaled by a rule")
        scaling = replace(scaling, effect=replace(scaling.effect, tokens=WORK))
    known = WorkloadFacts(
        name=CHAT, pool=P4D, gpus_per_node=8, replicas=2,
        service=ServiceFacts(capacity_req_s=CAPACITY_REQ_S, signals=SERVERS[server], server_is_known=True),
    )  # fmt: skip
    facts = replace(example_facts(), workloads=(known,), scrape_interval_s=scrape_s, scrape_is_known=True)
    emission = emit_plan(replace(plan, actions=(replace(action, changes=(scaling,)),)), facts)
    file = next(file for file in emission.files if file.kind == "PrometheusRule")
    spec: Mapping[str, object] = yaml.safe_load(file.text)["spec"]
    return spec


def readings(
    server: str, scrape_s: int, both: Sequence[Served], promtool: str, *, by_tokens: bool = False
) -> dict[int, float | None]:
    """Return what Prometheus records of demand at each scrape; None where it knows nothing."""
    signals = SERVERS[server]
    at_s = {number * scrape_s + _AFTER_S: number for number in range(FIRST, SCRAPES)}
    series = [
        row
        for pod, served in zip(PODS, both, strict=True)
        for row in samples(served, signals, pod, by_tokens=by_tokens)
    ]
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
        (Path(folder) / "rules.yaml").write_text(
            yaml.safe_dump(rules_of(server, scrape_s, by_tokens=by_tokens)), encoding="utf-8"
        )
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


@dataclass(slots=True)
class Tally:
    """How readings of one mishap compare with the truth."""

    counts: Counter[str]
    worst_off_frac: float = 0.0

    def add(self, value: float | None, true: float) -> None:
        """Count one reading."""
        off = 0.0 if value is None else value / true - 1
        self.counts["readings"] += 1
        self.counts["unknown"] += value is None
        self.counts["zero"] += value == 0
        self.counts["within"] += value is not None and abs(off) <= WITHIN_FRAC
        self.counts["low"] += off < -WITHIN_FRAC
        self.counts["high"] += off > WITHIN_FRAC
        self.worst_off_frac = max(self.worst_off_frac, abs(off))


def read_all(servers: Sequence[str], promtool: str, *, by_tokens: bool) -> dict[str, Tally]:
    """Read servers at every interval under every mishap; tallies by mishap."""
    tallies = {mishap: Tally(Counter()) for mishap in MISHAPS}
    for server in servers:
        for scrape_s in SCRAPES_S:
            for mishap in MISHAPS:
                both = replicas(mishap, scrape_s, random.Random(f"{server} {scrape_s}"))
                for number, value in readings(server, scrape_s, both, promtool, by_tokens=by_tokens).items():
                    tallies[mishap].add(value, truth(both, SERVERS[server], number, scrape_s, by_tokens=by_tokens))
        print(
            server,
            {mishap: (dict(row.counts), round(row.worst_off_frac, 3)) for mishap, row in tallies.items()},
            flush=True,
        )
    return tallies


def main() -> None:
    """Read every server by requests, and by tokens where it counts them; print a line each and the sums."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--promtool", default=shutil.which("promtool") or "promtool")
    promtool = parser.parse_args().promtool
    counting = sorted(server for server, signals in SERVERS.items() if signals.counts_tokens)
    requests, tokens = (
        {
            mishap: {**row.counts, "worst_off_frac": row.worst_off_frac}
            for mishap, row in read_all(servers, promtool, by_tokens=by_tokens).items()
        }
        for servers, by_tokens in ((sorted(SERVERS), False), (counting, True))
    )
    answer = {
        "benchmark": "demand_rules",
        "servers": len(SERVERS),
        **requests,
        "by_tokens": {"servers": counting, **tokens},
    }
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
