"""Replays services on spot with an on-demand floor, under the spot market that the options of `trimtab replay` describe."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from trimtab.errors import InputError, UsageError
from trimtab.inputs.arrow_tables import distinct_texts, floats, read_arrow_table
from trimtab.policies.hedge import HedgePolicy
from trimtab.policies.scaling import SYNC_S
from trimtab.replay.compare import PolicyRun, first_replicas
from trimtab.replay.hedged import HedgedReplay, Probes, RecordedZones, SpotMarket, SpotZones, replay_hedged
from trimtab.replay.services import ServiceHistory, ServiceModel
from trimtab.units import S_PER_HR

NO_FLOOR = "all"
_FLOOR = re.compile(r"one-in-(\d+)")
_LOSS = re.compile(r"(\d+(?:\.\d+)?)(?:/hr)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotAsked:
    """On-demand floors to replay (one replica in so many; 0: none), and the market."""

    floors: tuple[int, ...]
    market: SpotMarket


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SpotRun:
    """One policy replayed on spot with one floor; `keeps` says whether every target was kept."""

    name: str
    replay: HedgedReplay
    replica_hr: float
    keeps: bool


def spot_asked(
    floors: Sequence[str], loss: str, zones: int, outage_hr: float, availability: Path | None
) -> SpotAsked | None:
    """Return the spot options; None if no floor was given. Raises UsageError for invalid values."""
    if not floors:
        return None
    if availability is not None:
        return SpotAsked(floors=tuple(map(_floor, floors)), market=read_availability(availability))
    found = _LOSS.fullmatch(loss)
    if not found:
        raise UsageError(f"--loss {loss!r}: write how often an hour a zone is lost, such as 0.1/hr")
    market = SpotZones(zones=zones, loss_per_hr=float(found[1]), outage_s=outage_hr * S_PER_HR)
    return SpotAsked(floors=tuple(map(_floor, floors)), market=market)


def _floor(text: str) -> int:
    found = _FLOOR.fullmatch(text)
    if text != NO_FLOOR and not (found and int(found[1]) > 0):
        raise UsageError(f"--spot {text!r}: write one-in-4 (one replica in four on demand) or all")
    return int(found[1]) if found else 0


def read_availability(path: Path) -> RecordedZones:
    """Read probes of several zones (`zone`, `t_s`, `available_nodes`). If there are several traces, use the one with most
    zones.

    Zones that were probed for less than half as long as the longest are left out.
    """
    table = read_arrow_table(path)
    lacking = {"zone", "t_s", "available_nodes"} - set(table.column_names)
    if lacking:
        raise InputError(
            f"{path}: spot availability has zone, t_s and available_nodes; missing: {', '.join(sorted(lacking))}"
        )
    group = next((name for name in ("dataset", "trace") if name in table.column_names), None)
    groups = _texts(table, group, path) if group else np.full(table.num_rows, "")
    names = _texts(table, "zone", path)
    t_s = floats(table, "t_s", str(path))
    up = floats(table, "available_nodes", str(path)) > 0
    if not table.num_rows or not np.isfinite(t_s).all():
        raise InputError(f"{path}: t_s must be finite numbers, one for each probe; it has {table.num_rows} rows")
    best: list[Probes] = []
    for name in np.unique(groups):
        zones = [
            _probes(str(zone), t_s, up, (groups == name) & (names == zone)) for zone in np.unique(names[groups == name])
        ]
        longest = max(_span_s(zone) for zone in zones)
        kept = [zone for zone in zones if _span_s(zone) >= longest / 2]
        if len(kept) > len(best):
            best = kept
    return RecordedZones(zones=tuple(best))


def _texts(table: pa.Table, name: str, path: Path) -> np.ndarray:
    distinct_texts(table[name], f"{path}: {name}")
    return np.array([str(text) for text in table[name].cast("string").to_pylist()])


def _probes(zone: str, t_s: np.ndarray, up: np.ndarray, chosen: np.ndarray) -> Probes:
    order = np.argsort(t_s[chosen], kind="stable")
    return Probes(zone=zone, t_s=t_s[chosen][order], up=up[chosen][order])


def _span_s(probes: Probes) -> float:
    return float(probes.t_s[-1] - probes.t_s[0])


def spot_runs(
    history: ServiceHistory,
    model: ServiceModel,
    runs: Sequence[PolicyRun],
    asked: SpotAsked,
    required_frac: np.ndarray,
    seed: int,
) -> list[SpotRun]:
    """Replay every policy again on spot, once with each floor."""
    steps = len(history.arrivals) * int(history.step_s) // SYNC_S
    spells = asked.market.spells(steps, seed)
    found = []
    for run in runs:
        for floor in asked.floors:
            replay = replay_hedged(
                history,
                model,
                run.policy,
                HedgePolicy(floor),
                spells,
                initial_replicas=first_replicas(run.policy, history.load(model)),
            )
            found.append(
                SpotRun(
                    name=f"{run.name} spot:" + (f"one-in-{floor}" if floor else NO_FLOOR),
                    replay=replay,
                    replica_hr=float(replay.gpu_seconds.sum()) / model.gpus_per_replica / S_PER_HR,
                    keeps=bool(np.all(replay.attained_frac >= required_frac)),
                )
            )
    return found
