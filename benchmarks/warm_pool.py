"""The most that spare nodes could save: services of one node type, autoscaled with and without a wait for nodes.

k spare nodes are kept up and paid, so that a replica which lands on one starts without waiting for a node; another node is
then started in its place. What is shown is a bound in their favour, by replay:

- a service may follow any rule that keeps its targets where no start waits for a node, as long as its nodes never rise by more
  than k within the time that a node takes to start (beyond that some start would wait);
- each service of a group may use all k at once, whatever the others do at that time;
- spares are paid and nothing else of them is.

Beside it, what is left where the services of a group need spares at the same time: as many are paid as all rises together came
to. The bill without spares is that of the cheapest number of replicas or rule that keeps the targets. Shorter starts by what is
on nodes' disks are open to both.

    python -m benchmarks.warm_pool [--services 24] [--first 1] [--groups 40]
"""

from __future__ import annotations

import argparse
import json
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.faster_start import MACHINES, NAME, drawn
from trimtab.deployment.deployment import AS_IT_IS, Deployment
from trimtab.deployment.effects import SetReplicas
from trimtab.fleet.build import build_fleet, bundle_window
from trimtab.fleet.market import Market
from trimtab.ledger.arrays import FloatArray
from trimtab.levers import autoscaling, faster_start, replica_count
from trimtab.pipeline import split_window
from trimtab.pipeline.auditing import SEED
from trimtab.policies.scaling import SYNC_S
from trimtab.replay.compiled import CountArray
from trimtab.replay.outcomes.evaluate import Evaluator, cases_of
from trimtab.replay.outcomes.outcome import Case
from trimtab.replay.outcomes.service_model import demand_of
from trimtab.replay.outcomes.service_outcome import replicas_held
from trimtab.replay.outcomes.service_replays import ServiceReplays
from trimtab.units import S_PER_HR, usd

GROUPS = (1, 2, 4, 8, 16)
"""Services that share spare nodes."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Way:
    """A rule that keeps the targets: its bill, and by how many nodes it rose within a node's start (n_decisions,)."""

    bill_usd: float
    rises: CountArray
    spares: int
    """The fewest spare nodes with which no start of it waited."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Service:
    """One drawn service: its bill without spare nodes, and the ways that no start waits in, the cheapest first."""

    seed: int
    node_s: float
    bill_usd: float
    spare_usd: float
    """What a spare node costs over the same time."""
    ways: tuple[Way, ...]

    def with_spares(self, count: int) -> Way | None:
        """Return the cheapest way with so many spares, if it is cheaper than none."""
        way = next((way for way in self.ways if way.spares <= count), None)
        return way if way is not None and way.bill_usd < self.bill_usd else None


def service_of(seed: int) -> Service:
    """Draw a service and replay all ways in both worlds."""
    bundle, settings, _, _ = drawn(seed)
    window = split_window(bundle_window(bundle), settings).fit
    case = cases_of(build_fleet(bundle, settings, window), settings, SEED)[NAME]
    assert isinstance(case, Case)
    node_s = settings.assumptions.node_startup_s
    at_once = replace(settings, assumptions=replace(settings.assumptions, node_startup_s=0.0))
    usd_hr = usd(Market.of(MACHINES, window.end.date(), settings).rate(case.workload.pool))
    cold = [way.bill_usd for way in _ways(case, usd_hr, node_s)]
    warm = _ways(replace(case, settings=at_once), usd_hr, node_s)
    return Service(
        seed=seed,
        node_s=node_s,
        bill_usd=min(cold),
        spare_usd=usd_hr * case.window.hours,
        ways=tuple(sorted(warm, key=lambda way: way.bill_usd)),
    )


def _ways(case: Case, usd_hr: float, node_s: float) -> Iterator[Way]:
    evaluator, replays = Evaluator(case=case), ServiceReplays()
    for deployment in _deployments(case):
        if not evaluator.keeps_targets(deployment):
            continue
        held = replicas_held(case, evaluator.place(deployment).as_replayed(), replays)
        assert held is not None
        model, replicas = held
        node_hr = float(evaluator.outcome(deployment).on_demand.sum()) / S_PER_HR
        rises = _rises(replicas.counts(), model.empty_node_kept_s, node_s)
        yield Way(bill_usd=node_hr * usd_hr, rises=rises, spares=int(rises.max()))


def _deployments(case: Case) -> Iterator[Deployment]:
    yield AS_IT_IS
    most = demand_of(case).most_replicas
    for count in range(1, most):
        yield Deployment.of((replica_count.NAME, SetReplicas(replicas=count, before=most)))
    for start in (None, *faster_start.starts(case)):
        base = AS_IT_IS if start is None else Deployment.of((faster_start.NAME, start))
        for rule in autoscaling.propose(case, start):
            yield base.plus((autoscaling.NAME, rule))


def _rises(replicas: CountArray, kept_s: float, node_s: float) -> CountArray:
    """Return by how many nodes, of one replica each, those that are up rose within a node's start, at each decision."""
    up = np.lib.stride_tricks.sliding_window_view(_padded(replicas, kept_s), _steps(kept_s) + 1).max(axis=1)
    return np.asarray(np.maximum(up - _padded(up, node_s)[: len(up)], 0), dtype=np.int32)


def _padded(counts: CountArray, seconds: float) -> CountArray:
    return np.concatenate([np.full(_steps(seconds), counts[0], dtype=counts.dtype), counts])


def _steps(seconds: float) -> int:
    return math.ceil(seconds / SYNC_S)


def group_bills(group: Sequence[Service]) -> tuple[float, float, float]:
    """Return a group's bill without spares, the least that it could be with some, and the least as its needs coincide."""
    without = sum(service.bill_usd for service in group)
    bound, together = without, without
    for count in sorted({way.spares for service in group for way in service.ways} - {0}):
        chosen = [service.with_spares(count) for service in group]
        bill = sum(
            service.bill_usd if way is None else way.bill_usd for service, way in zip(group, chosen, strict=True)
        )
        bound = min(bound, bill + count * group[0].spare_usd)
        rises = [way.rises for way in chosen if way is not None]
        # as many as one of them needs are paid at least
        if rises and bill + count * group[0].spare_usd < together:
            together = min(together, bill + int(np.sum(rises, axis=0).max()) * group[0].spare_usd)
    return without, bound, together


def main() -> None:
    """Print each service, then what groups of them could save, and all as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--services", type=int, default=24)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--groups", type=int, default=40)
    arguments = parser.parse_args()
    services = []
    for seed in range(arguments.first, arguments.first + arguments.services):
        service = service_of(seed)
        services.append(service)
        best = service.ways[0]
        print(
            f"{seed:4d}  node {service.node_s:3.0f} s  bill ${service.bill_usd:8,.2f}  no start waits ${best.bill_usd:8,.2f}"
            f"  with {best.spares} spares at ${service.spare_usd:,.2f}",
            flush=True,
        )
    without_usd = sum(service.bill_usd for service in services)
    free_usd = sum(min(service.bill_usd, service.ways[0].bill_usd) for service in services)
    found = {
        "benchmark": "warm_pool",
        "services": len(services),
        "no_waits_free_frac": round(1 - free_usd / without_usd, 4),
        "groups": _groups(services, random.Random(arguments.first), arguments.groups),
    }
    print(json.dumps(found))


def _groups(services: Sequence[Service], rng: random.Random, count: int) -> list[dict[str, float]]:
    found = []
    for size in GROUPS:
        if size > len(services):
            continue
        groups = (
            [[service] for service in services]
            if size == 1
            else [rng.sample(list(services), size) for _ in range(count)]
        )
        bills: FloatArray = np.array([group_bills(group) for group in groups])
        without, bound, together = bills.sum(axis=0)
        found.append(
            {
                "services": size,
                "groups": len(groups),
                "could_save_frac": round(float(1 - bound / without), 4),
                "could_save_in": int((bills[:, 1] < bills[:, 0] - 0.01).sum()),
                "as_needs_coincide_frac": round(float(1 - together / without), 4),
                "as_needs_coincide_in": int((bills[:, 2] < bills[:, 0] - 0.01).sum()),
            }
        )
    return found


if __name__ == "__main__":
    main()
