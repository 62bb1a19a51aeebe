"""Replays services under named policies, tuned on earlier history: services of a fleet, or of a trace too short for a plan.

On spot they keep an on-demand floor, under the market that the options of `trimtab replay` describe.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from trimtab.catalog import load_catalog
from trimtab.catalog.kinds import CapacityType
from trimtab.catalog.pools import Pool
from trimtab.deployment.deployment import AS_IT_IS
from trimtab.deployment.effects import SetReplicaPolicy
from trimtab.deployment.placement import resolve
from trimtab.errors import InputError, UnknownName, UsageError
from trimtab.fleet.build import build_fleet, bundle_window
from trimtab.fleet.market import Market
from trimtab.fleet.model import Fleet, ServiceObservation, Window
from trimtab.fleet.settings import Settings
from trimtab.inputs.arrow_tables import distinct_texts, floats, read_arrow_table
from trimtab.ledger.arrays import FloatArray
from trimtab.pipeline import SEED, audit, split_window
from trimtab.policies.hedge import HedgePolicy
from trimtab.policies.scaling import SYNC_S, StaticReplicas
from trimtab.replay.compare import (
    FitContext,
    PolicyRun,
    clairvoyant_replica_hr,
    compare,
    expanded,
    first_replicas,
    named_policy,
)
from trimtab.replay.hedged import HedgedReplay, Probes, RecordedZones, SpotMarket, SpotZones, replay_hedged
from trimtab.replay.outcomes.evaluate import cases_of
from trimtab.replay.outcomes.outcome import Case
from trimtab.replay.outcomes.service_model import JUDGED, demand_of, seed_of, service_model
from trimtab.replay.services import ScalingPolicy, ServiceHistory, ServiceModel, arrivals_by_decision
from trimtab.sources.demo.trace import FLEET, RateSeries, read_series
from trimtab.tables.bundle import Bundle
from trimtab.units import S_PER_DAY, S_PER_HR, S_PER_MIN, mul_div, per_month, usd

NO_FLOOR = "all"
_FLOOR = re.compile(r"one-in-(\d+)")
_LOSS = re.compile(r"(\d+(?:\.\d+)?)(?:/hr)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotArguments:
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
) -> SpotArguments | None:
    """Return the spot options; None if no floor was given. Raises UsageError for invalid values."""
    if not floors:
        return None
    if availability is not None:
        return SpotArguments(floors=tuple(map(_floor, floors)), market=read_availability(availability))
    found = _LOSS.fullmatch(loss)
    if not found:
        raise UsageError(f"--loss {loss!r}: write how often an hour a zone is lost, such as 0.1/hr")
    market = SpotZones(zones=zones, loss_per_hr=float(found[1]), outage_s=outage_hr * S_PER_HR)
    return SpotArguments(floors=tuple(map(_floor, floors)), market=market)


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
    asked: SpotArguments,
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


logger = logging.getLogger(__name__)

PLAN = "plan"
DEFAULT_POLICIES = ("static", "hpa:70", "hpa:85", "keda:70", "knative:70", "saturation", "cron", "forecast")
ROOM_TO_GROW = 4

WAIT_LIMIT_S = 1.0
REQUIRED_FRAC = 0.99
SHORT_S = 2 * S_PER_DAY
"""A history of fewer whole days is too short for a plan and its proof."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRow:
    """One policy's outcome for one service, for people and programs; None for unknown values."""

    name: str
    usd_mo: float
    over_clairvoyant: float | None
    attained_frac: float
    keeps: bool
    wait_p50_s: float | None
    wait_p95_s: float | None
    wait_p99_s: float | None
    cold_starts: int | None
    node_hr: float
    given_up_frac: float | None
    spot_frac: float | None
    lost_replicas: int | None
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ServiceRuns:
    """One service's runs over the replayed window, and the cost of its nodes in micro-dollars an hour, on demand and on spot.

    `impossible` lists targets that no capacity can keep, with the nearest target that can be kept.
    """

    workload: str
    span: str
    hours: float
    history: ServiceHistory
    model: ServiceModel
    node_micro_usd_hr: int
    spot_micro_usd_hr: int | None
    runs: Sequence[PolicyRun]
    spot: Sequence[SpotRun]
    impossible: tuple[str, ...]

    def rows(self) -> list[ReplayRow]:
        """Return every run as a row: on demand, then on spot."""
        return [*(self._row(run) for run in self.runs), *(self._spot_row(run) for run in self.spot)]

    def front(self) -> set[str]:
        """Return the names of runs on the Pareto front of cost and requests in time."""
        rows = self.rows()
        return {
            row.name
            for row in rows
            if not any(
                (other.usd_mo, -other.attained_frac) != (row.usd_mo, -row.attained_frac)
                and other.usd_mo <= row.usd_mo
                and other.attained_frac >= row.attained_frac
                for other in rows
            )
        }

    def _usd_mo(self, node_seconds: int, micro_usd_hr: int) -> float:
        return per_month(usd(mul_div(node_seconds, micro_usd_hr, S_PER_HR)), self.hours)

    def _row(self, run: PolicyRun) -> ReplayRow:
        replay = run.replay
        return ReplayRow(
            name=run.name,
            usd_mo=self._usd_mo(int(replay.node_seconds.sum()), self.node_micro_usd_hr),
            over_clairvoyant=run.over_clairvoyant if math.isfinite(run.over_clairvoyant) else None,
            attained_frac=run.worst_attained_frac,
            keeps=run.keeps,
            wait_p50_s=replay.wait_p50_s,
            wait_p95_s=replay.wait_p95_s,
            wait_p99_s=replay.wait_p99_s,
            cold_starts=replay.cold_starts,
            node_hr=float(replay.node_seconds.sum()) / S_PER_HR,
            given_up_frac=replay.unmet / max(replay.requests, 1.0),
            spot_frac=None,
            lost_replicas=None,
            notes=run.notes,
        )

    def _spot_row(self, run: SpotRun) -> ReplayRow:
        replay = run.replay
        held, spot = int(replay.on_demand_node_seconds.sum()), int(replay.spot_node_seconds.sum())
        best_hr = clairvoyant_replica_hr(
            self.history.load(self.model), step_s=self.history.step_s, cold_start_s=self.model.cold_start_s
        )
        assert self.spot_micro_usd_hr is not None
        return ReplayRow(
            name=run.name,
            usd_mo=self._usd_mo(held, self.node_micro_usd_hr) + self._usd_mo(spot, self.spot_micro_usd_hr),
            over_clairvoyant=run.replica_hr / best_hr if best_hr else None,
            attained_frac=float(replay.attained_frac.min(initial=1.0)),
            keeps=run.keeps,
            wait_p50_s=None,
            wait_p95_s=None,
            wait_p99_s=None,
            cold_starts=None,
            node_hr=(held + spot) / S_PER_HR,
            given_up_frac=None,
            spot_frac=spot / max(held + spot, 1),
            lost_replicas=replay.lost,
            notes=(),
        )


def replay_services(
    bundle: Bundle,
    names: Sequence[str],
    only: Sequence[str],
    settings: Settings,
    tell: Callable[[str, float], None],
    asked: SpotArguments | None = None,
) -> list[ServiceRuns]:
    """Replay each judged service of a bundle, or those named, under each policy. Raises if there is none."""
    whole = bundle_window(bundle)
    split = split_window(whole, settings)
    tell("reading the fleet", 0.0)
    fit, rest = build_fleet(bundle, settings, split.fit), build_fleet(bundle, settings, split.proof)
    market = Market(catalog=load_catalog(), at=whole.end.date(), max_term_years=1, assumptions=settings.assumptions)
    cases = {name: case for name, case in cases_of(fit, settings, SEED).items() if _is_service(case)}
    chosen = _chosen(cases, only)
    planned = _planned(bundle, settings) if PLAN in names else {}
    texts = [text for name in names for text in expanded(name)]
    found = []
    for at, case in enumerate(chosen):
        tell(f"replaying {case.workload.name}", at / len(chosen))
        if not np.any(_later(case, rest).arrivals > 0):
            logger.warning("%s: no request is recorded in %s; nothing to replay", case.workload.name, rest.window)
            continue
        found.append(_replay_case(case, fit, rest, texts, planned, market, asked))
    if not found:
        raise InputError(f"no service has recorded requests in {rest.window}, the window that is replayed")
    return found


def _is_service(case: Case | str) -> bool:
    return isinstance(case, Case) and case.law is not None


def _chosen(cases: dict[str, Case | str], only: Sequence[str]) -> list[Case]:
    for name in only:
        if name not in cases:
            raise UnknownName("service", name, cases)
    chosen = [case for name, case in cases.items() if isinstance(case, Case) and (not only or name in only)]
    if not chosen:
        raise InputError("no service in this history can be replayed: its requests or its activity are missing")
    return chosen


def _planned(bundle: Bundle, settings: Settings) -> dict[str, ScalingPolicy]:
    """Return the scaling rule that an audit of the same bundle gives each service."""
    found = audit(bundle, settings)
    return {
        change.subject: change.effect.policy
        for action in found.plan.actions
        for change in action.changes
        if isinstance(change.effect, SetReplicaPolicy)
    }


def _replay_case(
    case: Case,
    fit: Fleet,
    rest: Fleet,
    texts: Sequence[str],
    planned: dict[str, ScalingPolicy],
    market: Market,
    asked: SpotArguments | None,
) -> ServiceRuns:
    assert case.law is not None
    place = resolve(case.workload, AS_IT_IS)
    targets = tuple(target for target in case.targets if target.metric in JUDGED)
    model = service_model(case, case.law, place, targets)
    past = demand_of(case)
    observed = past.most_replicas
    context = FitContext(
        history=_history(case, past, fit.window),
        model=model,
        required_frac=np.array([target.required_frac for target in targets]),
        observed_replicas=observed,
        min_replicas=case.workload.spec.min_replicas or 1,
        max_replicas=case.workload.spec.max_replicas or observed * ROOM_TO_GROW,
        slack_frac=1 - case.settings.planning.target_margin_frac,
    )
    policies = {
        text: planned.get(case.workload.name, StaticReplicas(observed)) if text == PLAN else named_policy(text, context)
        for text in texts
    }
    ahead = _later(case, rest)
    history = _history(case, ahead, rest.window)
    runs = compare(history, model, policies, required_frac=context.required_frac, past=context.history)
    return ServiceRuns(
        workload=case.workload.name,
        span=str(rest.window),
        hours=float(rest.window.hours),
        history=history,
        model=model,
        node_micro_usd_hr=market.rate(place.pool),
        spot_micro_usd_hr=None if asked is None else market.rate(place.pool.held_as(CapacityType.SPOT)),
        runs=runs,
        spot=[] if asked is None else spot_runs(history, model, runs, asked, context.required_frac, SEED),
        impossible=tuple(out_of_reach([target.describe() for target in targets], context.required_frac, model)),
    )


def out_of_reach(names: Sequence[str], required_frac: FloatArray, model: ServiceModel) -> Iterator[str]:
    """Yield each target that replicas miss even at their best load, with the nearest share that can be kept."""
    for name, required, best in zip(names, required_frac, model.ok_frac.max(axis=1), strict=True):
        if best < required:
            yield f"no capacity keeps {name}: at best {best:.2%} are in time, which is the nearest target that can be kept"


def _later(case: Case, rest: Fleet) -> ServiceObservation:
    """Return the demand of the same service in the replayed window."""
    for workload in rest.workloads:
        if workload.name == case.workload.name:
            return demand_of(
                Case(
                    workload=workload,
                    window=rest.window,
                    targets=case.targets,
                    law=case.law,
                    settings=case.settings,
                    seed=case.seed,
                )
            )
    raise InputError(f"{case.workload.name} is not in the window {rest.window}")


def _history(case: Case, demand: ServiceObservation, window: Window) -> ServiceHistory:
    """Return a window's demand as audits replay it: requests per decision, with the same random draws."""
    within = None
    if case.workload.service is not None:
        within = arrivals_by_decision(demand.arrivals, step_s=demand.step_s, seed=seed_of(case, window))
    return ServiceHistory(
        arrivals=demand.arrivals, step_s=demand.step_s, start_hour=window.first_week_hour, within=within
    )


def is_short(path: Path) -> bool:
    """Return whether a trace has fewer than two whole days."""
    return max(len(series.arrivals) * series.interval_s for series in read_series(path)) < SHORT_S


def replay_trace(
    path: Path,
    names: Sequence[str],
    only: Sequence[str],
    settings: Settings,
    tell: Callable[[str, float], None],
    asked: SpotArguments | None,
) -> list[ServiceRuns]:
    """Replay each series of a short trace under each policy. Raises if there is nothing to replay."""
    machine = FLEET.machine
    market = Market(catalog=load_catalog(), at=FLEET.start.date(), max_term_years=1, assumptions=settings.assumptions)
    pool = Pool(machine.provider, machine.instance_type, machine.region)
    series = {f"trace/{service.name}": service for service in read_series(path, step_s=SYNC_S)}
    for name in only:
        if name not in series:
            raise UnknownName("service", name, series)
    texts = [text for name in names for text in expanded(name)]
    if "plan" in texts:
        raise UsageError(f"{path}: policy plan needs two whole days of history; this is shorter")
    found: list[ServiceRuns] = []
    for name, observed in series.items():
        if only and name not in only:
            continue
        tell(f"replaying {name}", len(found) / len(series))
        found.append(
            _replay(name, observed, texts, asked, market.rate(pool), market.rate(pool.held_as(CapacityType.SPOT)))
        )
    return found


def _replay(
    name: str, series: RateSeries, texts: Sequence[str], asked: SpotArguments | None, rate: int, spot_rate: int
) -> ServiceRuns:
    arrivals = np.where(series.present, series.arrivals, np.nan)
    half = len(arrivals) // 2
    if half < 1 or not np.any(arrivals[:half] > 0) or not np.any(arrivals[half:] > 0):
        raise InputError(f"{name}: too short to tune policies on its first half and replay the second")
    model = _model(arrivals, series.interval_s)
    past = ServiceHistory(arrivals=arrivals[:half], step_s=series.interval_s)
    history = ServiceHistory(arrivals=arrivals[half:], step_s=series.interval_s)
    required = np.array([REQUIRED_FRAC])
    context = FitContext(
        history=past,
        model=model,
        required_frac=required,
        observed_replicas=FLEET.replicas,
        min_replicas=1,
        max_replicas=FLEET.replicas * ROOM_TO_GROW,
    )
    policies = {text: named_policy(text, context) for text in texts}
    runs = compare(history, model, policies, required_frac=required, past=past)
    hours = len(history.arrivals) * history.step_s / S_PER_HR
    return ServiceRuns(
        workload=name,
        span=f"the second half of the trace, {hours:.2g} h",
        hours=hours,
        history=history,
        model=model,
        node_micro_usd_hr=rate,
        spot_micro_usd_hr=spot_rate,
        runs=runs,
        spot=[] if asked is None else spot_runs(history, model, runs, asked, required, SEED),
        impossible=tuple(out_of_reach([f"a wait of at most {WAIT_LIMIT_S:g} s"], required, model)),
    )


def _model(arrivals: FloatArray, step_s: float) -> ServiceModel:
    """Return a service whose assumed replicas are as busy as assumed in the busiest minute."""
    steps = max(1, round(S_PER_MIN / step_s))
    known = np.nan_to_num(arrivals)
    whole = known[: len(known) // steps * steps].reshape(-1, steps).sum(axis=1)
    peak_req_s = float(whole.max()) / (steps * step_s)
    return ServiceModel(
        capacity_req_s=peak_req_s / (FLEET.replicas * FLEET.peak_util_frac),
        load_grid=np.array([0.0, 1.0]),
        ok_frac=np.ones((1, 2)),
        wait_limit_s=np.array([WAIT_LIMIT_S]),
        cold_start_s=FLEET.cold_start_s,
        gpus_per_node=FLEET.machine.gpu_count,
    )
