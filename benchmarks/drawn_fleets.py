"""Small fleets drawn at random, in which every lever has something to offer: seconds each, not a minute.

The draws are those of the property tests (`tests/contracts/random_fleets.py`), made from a seed. `drawn-several` puts two to
four of them into one cluster.
"""

from __future__ import annotations

import random

from hypothesis import HealthCheck, Phase, given, seed as seeded, settings
from hypothesis.strategies import SearchStrategy
from tests.contracts.random_fleets import nightly_idle, notebooks, runs, services
from tests.fleets import FleetRows


def _plain_services() -> SearchStrategy[FleetRows]:
    """Draw services without batching and formats to choose from, which multiply what a plan compares."""
    found: SearchStrategy[FleetRows] = services().filter(
        lambda rows: not any({"batching", "quantize"} & declared.keys() for declared in rows.workloads.values())
    )
    return found


def _on_spot() -> SearchStrategy[FleetRows]:
    """Draw services that bear interruptions, start slowly and must answer almost always: plans keep some replicas on demand."""

    def bear(rows: FleetRows) -> FleetRows:
        for name in rows.workloads:
            target = {"metric": "latency", "quantile": 0.995, "limit_s": 20.0}
            rows.workloads[name] = {
                "targets": [target], "interruptible": True, "cold_start_s": 2400, "isolation": "hardware", "min_replicas": 3,
            }  # fmt: skip
        return rows

    found: SearchStrategy[FleetRows] = services().map(bear)
    return found


_STRATEGIES = {
    "drawn-service": services,
    "drawn-plain-service": _plain_services,
    "drawn-night": nightly_idle,
    "drawn-runs": runs,
    "drawn-notebook": notebooks,
}
_ON_SPOT = {"drawn-on-spot": _on_spot}
"""Drawn only where they are asked for: their plans are all of one kind."""
_WEEK = ("drawn-plain-service", "drawn-night", "drawn-runs")
"""Those of one length: a workload without telemetry in half of the window would not be judged."""
SEVERAL = "drawn-several"
DRAWN = (*_STRATEGIES, SEVERAL)
ASKED_FOR = tuple(_ON_SPOT)
_MOST = 4
_NAMED = {"workload": "{name}-{number}", "node": "{number}-{name}", "device": "{number}-{name}", "pod": "{name}-{number}",
          "job": "{name}-{number}"}  # fmt: skip
"""Columns that name something, and what it is called in a cluster of several."""


def drawn(kind: str, seed: int) -> FleetRows:
    """Return the fleet of a kind and a seed."""
    if kind != SEVERAL:
        return _drawn((_STRATEGIES | _ON_SPOT)[kind](), seed)
    rng = random.Random(seed)
    kinds = [rng.choice(_WEEK) for _ in range(rng.randint(2, _MOST))]
    return _together([_drawn(_STRATEGIES[each](), rng.randrange(2**32)) for each in kinds])


def _drawn(strategy: SearchStrategy[FleetRows], seed: int) -> FleetRows:
    """Return the last of a few draws: hypothesis begins with the simplest of all, whatever the seed."""
    found: list[FleetRows] = []

    @seeded(seed)
    @settings(
        max_examples=3,
        deadline=None,
        database=None,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def draw(rows: FleetRows) -> None:
        found.append(rows)

    draw()
    return found[-1]


def _together(parts: list[FleetRows]) -> FleetRows:
    """Return one cluster with the workloads of several, each on its own nodes."""
    made = FleetRows(parts[0].days)
    for number, part in enumerate(parts):
        for table, rows in part.rows.items():
            made.rows[table] += [_renamed(row, number) for row in rows]
        made.workloads |= {
            _NAMED["workload"].format(name=name, number=number): of for name, of in part.workloads.items()
        }
    return made


def _renamed(row: dict[str, object], number: int) -> dict[str, object]:
    named = {column: form for column, form in _NAMED.items() if row.get(column) is not None}
    return {**row, **{column: form.format(name=row[column], number=number) for column, form in named.items()}}
