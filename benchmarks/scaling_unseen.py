"""Our scaling rule on demand that played no part in its design: attainment, and cost over the best rule in hindsight.

The game is that of `benchmarks.autoscale`: 15 s steps, 120 s cold starts, a request is in time if it queues for at most 1 s,
the 99.99 % quantile of the load is 8 and 40 replicas. A policy is made from the first half of a series, scored on the second.

Held back whole: ServeGen's m-small and mm-image (their eight and four clients with most requests), the services Mooncake and
GenTD26, and changes of regime made from four of those clients. Designed on (`--design`): Azure 2023 and 2024, ServeGen's m-mid,
its ten clients with most requests, and the same changes made from four of them. Counts are drawn from recorded rates as for the
models' series; in a window in which a client is missing and others are not, it has no requests.

The best rule in hindsight is the cheapest that keeps 0.999 on the scored half itself, of: HPA on demand at 10 to 95 % over 15 s
and 5 min, HPA on mean load over 1, 5 and 15 min at the same targets, the forecast with any fixed margin, and any static number.

Run: python -m benchmarks.scaling_unseen [--data DIR] [--cold-start-s 120] [--design]
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.autoscale import PEAK_REPLICAS, REQUIRED_FRAC, game
from benchmarks.traces import RATE_WINDOW_S, STEP_S, Demand, Floats, data_argument, demands, drawn
from trimtab.policies.forecast import ForecastPolicy, forecast_policy
from trimtab.policies.scaling import NO_LIMIT, HpaPolicy, Metric, StaticReplicas
from trimtab.replay.compare import clairvoyant_replica_hr, tune_scaling
from trimtab.replay.recorded import record, rolling_mean, samples, wanted_loads
from trimtab.replay.services import ScalingPolicy, ServiceHistory, ServiceModel, replay_service

HELD_CLIENTS = {"m-small": 8, "mm-image": 4}
HELD_SERVICES = ("mooncake", "gentd26")
DESIGN_CLIENTS = {"m-mid": 10}
DESIGN_SERIES = ("azure", "servegen_m-mid")
REGIME_SOURCES = 4
"""So many of the clients with most requests are also replayed with a change of regime."""
TARGETS = tuple(round(0.10 + 0.05 * step, 2) for step in range(18))
MEAN_WINDOWS_S = (60, 300, 900)
MARGINS = (1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0, 7.0, 9.0, 12.0, 16.0, 24.0)
LEVEL_CHANGE = 3.0
VOLATILITY_FRAC, VOLATILE_S = 0.15, 300
SEED = 7
LEAST_FRAC, NEAR_FRAC, TWICE = 0.99, 0.01, 2.0
COST_BOUND = 1.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """What a policy cost and attained on the scored half."""

    replica_hr: float
    attainment_frac: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Our rule on one series at one size, beside the best in hindsight; costs as ratios of replica-hours."""

    case: str
    attainment_frac: float
    over_clairvoyant: float
    over_best_rule: float
    best_rule: str
    best_over_clairvoyant: float
    hpa_50_attainment_frac: float
    hpa_50_over_clairvoyant: float
    holds: bool
    floor_replicas: int


def clients(traces: Path, most: Mapping[str, int]) -> Iterator[Demand]:
    """Yield the clients of ServeGen's models with most requests, drawn as the models' own series are."""
    table = pq.read_table(traces / "requests" / "servegen_client_rates_10min.parquet")
    for model, count in most.items():
        rows = table.filter(pc.equal(table["model"].cast("string"), model))
        who, t_s, rate = (rows[name].to_numpy().astype(float) for name in ("client", "t_s", "requests_per_s"))
        known_s = np.unique(t_s)
        grid_s = np.arange(known_s[0], known_s[-1] + RATE_WINDOW_S, RATE_WINDOW_S)
        totals = {client: rate[who == client].sum() for client in np.unique(who)}
        for client in sorted(totals, key=lambda client: -totals[client])[:count]:
            rates = np.zeros(len(known_s))
            rates[np.searchsorted(known_s, t_s[who == client])] = rate[who == client]
            yield drawn(f"{model}_client{client:.0f}", grid_s - grid_s[0], np.interp(grid_s, known_s, rates))


def changed_regimes(demand: Demand) -> Iterator[Demand]:
    """Yield the demand at three times its level from the middle of the second half, and volatile from its start."""
    rng = np.random.default_rng(SEED)
    steps = len(demand.arrivals)
    grown = demand.arrivals.copy()
    grown[steps * 3 // 4 :] = np.rint(grown[steps * 3 // 4 :] * LEVEL_CHANGE)
    yield Demand(name=f"{demand.name}+level", arrivals=grown, request_level=False)
    swings = np.exp(VOLATILITY_FRAC * rng.standard_normal(steps * STEP_S // VOLATILE_S + 1))
    volatile = demand.arrivals * np.where(
        np.arange(steps) < steps // 2, 1.0, np.repeat(swings, VOLATILE_S // STEP_S)[:steps]
    )
    yield Demand(name=f"{demand.name}+volatile", arrivals=np.rint(volatile), request_level=False)


def series(traces: Path, *, design: bool) -> list[Demand]:
    """Return the series that the rule was designed on, or those held back."""
    names = DESIGN_SERIES if design else HELD_SERVICES
    of_clients = list(clients(traces, DESIGN_CLIENTS if design else HELD_CLIENTS))
    whole = [demand for demand in demands(traces) if demand.name.startswith(names)]
    changed = [new for demand in of_clients[:REGIME_SOURCES] for new in changed_regimes(demand)]
    return [*of_clients, *whole, *changed]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Game:
    """One series at one size; policies are scored from `split` on."""

    demand: Demand
    model: ServiceModel
    load: Floats
    split: int

    def score(self, policy: ScalingPolicy, hpa: HpaPolicy | None, signal: Floats | None = None) -> Score:
        """Replay the second half; where a signal over the whole series is given, rules saw the first."""
        rest = None if signal is None else signal[self.split :]
        history = ServiceHistory(arrivals=self.demand.arrivals[self.split :], step_s=STEP_S, signal=rest)
        first = self.load[self.split] if rest is None else rest[~np.isnan(rest)][0]
        start = max(hpa.min_replicas, math.ceil(first / hpa.target_frac)) if hpa else 0
        if isinstance(policy, StaticReplicas):
            start = policy.replicas
        replay = replay_service(history, self.model, policy, initial_replicas=start)
        return Score(replica_hr=replay.replica_hr, attainment_frac=float(replay.attained_frac[0]))

    def fit(self) -> ServiceHistory:
        """Return the first half, from which policies are made."""
        return ServiceHistory(arrivals=self.demand.arrivals[: self.split], step_s=STEP_S)


def plain_rules(now: Game) -> dict[str, Callable[[], Score]]:
    """Return every rule that the hindsight chooses from, by name."""
    found: dict[str, Callable[[], Score]] = {}
    for target in TARGETS:
        for window_s in (STEP_S, 300):
            hpa = HpaPolicy(target, 1, NO_LIMIT, window_s=window_s)
            found[f"HPA {target:.0%} over {window_s} s"] = partial(now.score, hpa, hpa)
        for window_s in MEAN_WINDOWS_S:
            mean = rolling_mean(now.load, samples(window_s, STEP_S))
            on_mean = HpaPolicy(target, 1, NO_LIMIT, Metric.SIGNAL, 0.0, 0.0)
            found[f"mean of {window_s} s at {target:.0%}"] = partial(now.score, on_mean, on_mean, mean)
    usual = _forecast(now)
    told = record(now.load, step_s=STEP_S, rules=usual.rules)
    for margin in MARGINS:
        fixed = usual._replace(rules=usual.rules._replace(first_margin=margin, least_margin=margin, most_margin=margin))
        wanted = wanted_loads(fixed, now.load, told, step_s=STEP_S)
        found[f"forecast, margin {margin:g}"] = partial(now.score, fixed, fixed.hpa, wanted)
    for replicas in range(1, math.ceil(now.load.max()) + 2):
        static = StaticReplicas(replicas)
        found[f"static {replicas}"] = partial(now.score, static, None)
    return found


def _forecast(now: Game) -> ForecastPolicy:
    rate = float(np.nanmean(now.fit().arrivals)) / STEP_S
    return forecast_policy(cold_start_s=now.model.cold_start_s, mean_req_s=rate)


def measured(demand: Demand, peak: int, cold_start_s: int) -> Row:
    """Score our rule and the best in hindsight on one series at one size."""
    model = game(demand, peak, cold_start_s)
    load = ServiceHistory(arrivals=demand.arrivals, step_s=STEP_S).load(model)
    now = Game(demand=demand, model=model, load=load, split=len(load) // 2)
    policy = tune_scaling(now.fit(), model, required_frac=REQUIRED_FRAC).policy
    wanted = wanted_loads(policy, load, record(load, step_s=STEP_S, rules=policy.rules), step_s=STEP_S)
    ours = now.score(policy, policy.hpa, wanted)
    scores = {name: rule() for name, rule in plain_rules(now).items()}
    keeping = {name: score for name, score in scores.items() if score.attainment_frac >= REQUIRED_FRAC}
    best = min(keeping, key=lambda name: keeping[name].replica_hr)
    least_hr = clairvoyant_replica_hr(load[now.split :], step_s=STEP_S, cold_start_s=cold_start_s)
    plain = scores[f"HPA {0.5:.0%} over {STEP_S} s"]
    return Row(
        case=f"{demand.name}/{peak}",
        attainment_frac=ours.attainment_frac,
        over_clairvoyant=ours.replica_hr / least_hr,
        over_best_rule=ours.replica_hr / keeping[best].replica_hr,
        best_rule=best,
        best_over_clairvoyant=keeping[best].replica_hr / least_hr,
        hpa_50_attainment_frac=plain.attainment_frac,
        hpa_50_over_clairvoyant=plain.replica_hr / least_hr,
        holds=ours.attainment_frac >= LEAST_FRAC or _near_the_best(ours, scores),
        floor_replicas=policy.hpa.min_replicas,
    )


def _near_the_best(ours: Score, scores: Mapping[str, Score]) -> bool:
    """Tell whether no rule at up to twice our cost attains 0.01 more."""
    within = [score.attainment_frac for score in scores.values() if score.replica_hr <= TWICE * ours.replica_hr]
    return ours.attainment_frac >= max(within, default=0.0) - NEAR_FRAC


def summary(rows: list[Row]) -> dict[str, float]:
    """Return the shares of cases that reach each target."""
    return {
        "cases": len(rows),
        "kept_999_frac": float(np.mean([row.attainment_frac >= REQUIRED_FRAC for row in rows])),
        "holds_99_or_near_best_frac": float(np.mean([row.holds for row in rows])),
        "worst_attainment_frac": min(row.attainment_frac for row in rows),
        "cost_within_5_percent_frac": float(np.mean([row.over_best_rule <= COST_BOUND for row in rows])),
        "median_over_best_rule": float(np.median([row.over_best_rule for row in rows])),
        "mean_over_best_rule": float(np.mean([row.over_best_rule for row in rows])),
        "worst_over_best_rule": max(row.over_best_rule for row in rows),
        "mean_over_clairvoyant": float(np.mean([row.over_clairvoyant for row in rows])),
    }


def main() -> None:
    parser = data_argument(__doc__)
    parser.add_argument("--cold-start-s", type=int, default=120)
    parser.add_argument("--design", action="store_true", help="the series that the rule was designed on instead")
    arguments = parser.parse_args()
    rows: list[Row] = []
    for demand in series(arguments.data, design=arguments.design):
        for peak in PEAK_REPLICAS:
            row = measured(demand, peak, arguments.cold_start_s)
            rows.append(row)
            print(
                f"{row.case:34} {row.attainment_frac:.4f} in time  {row.over_clairvoyant:7.3f} x clairvoyant  "
                f"{row.over_best_rule:6.3f} x {row.best_rule}",
                flush=True,
            )
    natural = [row for row in rows if "+" not in row.case]
    result = {
        "benchmark": "scaling_unseen",
        "design": arguments.design,
        "cold_start_s": arguments.cold_start_s,
        **summary(rows),
        "as_recorded": summary(natural),
        "regime_changes": summary([row for row in rows if "+" in row.case]),
        "rows": [asdict(row) for row in rows],
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
