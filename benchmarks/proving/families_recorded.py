"""Families whose demand was recorded: requests of real services, jobs of a real cluster, hours in which spot was really gone.

How servers and GPUs then answer is the world's. Rates are scaled to the replicas there are; their shape is as recorded. The
traces stand in a folder beside the checkout; where it is absent, so are these families.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.proving.fleet import G5, G6E, P4D, Fleet, RunsTruth, ServiceTruth, Site
from benchmarks.proving.parts import Family, Rng, answers_within, rng_of, tuning_runs
from benchmarks.proving.world.arrivals import arrivals, lognormal
from benchmarks.proving.world.clock import DAY_S, HOUR_S, HOURS_PER_DAY, MINUTE_S
from benchmarks.proving.world.runs import Checkpoints, Run
from benchmarks.proving.world.service import Server

Floats = npt.NDArray[np.float64]
TRACES = Path(__file__).resolve().parents[3] / "shared" / "data" / "traces"
_WINDOW_S = 600
_CLIENT_WINDOWS = 1900
"""A client is taken if it sent in so many of its two weeks' 2,016 windows."""
_PEAK_QUANTILE = 0.995
_MOST_DISPERSION = 8.0


def _table(name: str) -> pa.Table:
    """Read a recorded table, its words as words."""
    table = pq.read_table(TRACES / f"{name}.parquet")
    for at, column in enumerate(table.schema):
        if pa.types.is_dictionary(column.type):
            table = table.set_column(at, column.name, table[column.name].cast(pa.string()))
    return table


def _column(table: pa.Table, name: str) -> Floats:
    return np.asarray(table[name].to_numpy(), dtype=np.float64)


def _recorded_service(
    rng: Rng, name: str, days: int, rows: pa.Table, site: Site, dispersion: float = 1.0
) -> ServiceTruth:
    """Return a service with continuous batching whose rate is a recorded one, scaled to its replicas.

    For a renewal stream the variance of counts over their mean is the square of the intervals' coefficient of variation.
    """
    server = Server(slots=int(rng.integers(6, 17)), crowding=rng.uniform(0.04, 0.1), sm_full_frac=0.95)
    work_s = rng.uniform(4.0, 12.0)
    minute_s = np.arange(days * DAY_S // MINUTE_S) * float(MINUTE_S)
    by_minute = np.interp(minute_s, _column(rows, "t_s") + _WINDOW_S / 2, _column(rows, "requests_per_s"))
    capacity = site.replicas * server.capacity_req_s(work_s)
    by_minute *= rng.uniform(0.4, 0.6) * capacity / np.quantile(by_minute, _PEAK_QUANTILE)
    arrival_s = arrivals(by_minute, rng, dispersion=min(dispersion, _MOST_DISPERSION))
    slow = work_s * (1 + server.crowding * (server.slots - 1))
    return ServiceTruth(
        name=name,
        sites=(site,),
        server=server,
        arrival_s=arrival_s,
        work_s=lognormal(len(arrival_s), work_s, 0.5, rng),
        declared=answers_within(slow * 2.5),
    )


def recorded_client(seed: int, days: int) -> Fleet:
    """One client of a language model (ServeGen, Alibaba Cloud, two weeks by ten minutes): its rates and its clumping."""
    rng = rng_of("recorded-client", seed)
    rows = _table("requests/servegen_client_rates_10min")
    counts = rows.group_by(["model", "client"]).aggregate([("t_s", "count")])
    full = counts.filter(pc.greater_equal(counts["t_s_count"], _CLIENT_WINDOWS))
    pairs = sorted(zip(full["model"].to_pylist(), full["client"].to_pylist(), strict=True))
    model, client = pairs[int(rng.integers(len(pairs)))]
    mine = rows.filter(pc.and_(pc.equal(rows["model"], model), pc.equal(rows["client"], client))).sort_by("t_s")
    site = Site(machine=G6E, replicas=int(rng.integers(8, 17)))
    dispersion = float(np.median(_column(mine, "iat_cv")) ** 2)
    service = _recorded_service(rng, "prod/chat", days, mine, site, dispersion)
    return Fleet(family="recorded-client", seed=seed, hours=days * HOURS_PER_DAY, services=(service,))


def recorded_models(seed: int, days: int) -> Fleet:
    """The whole demand of two language models (ServeGen), a service each."""
    rng = rng_of("recorded-models", seed)
    rows = _table("requests/servegen_model_rate_10min")
    site = Site(machine=P4D, replicas=8)
    services = [
        _recorded_service(rng, f"prod/{model}", days, rows.filter(pc.equal(rows["model"], model)).sort_by("t_s"), site)
        for model in ("m-small", "m-mid")
    ]
    return Fleet(family="recorded-models", seed=seed, hours=days * HOURS_PER_DAY, services=services)


def recorded_images(seed: int, days: int) -> Fleet:
    """Every request of an image service and the time that it took there (GenTD26, 13.7 days)."""
    rng = rng_of("recorded-images", seed)
    table = _table("requests/gentd26_diffusion_requests").sort_by("t_s")
    hours = min(days * HOURS_PER_DAY, int(table["t_s"][-1].as_py() // HOUR_S))
    took_s = _column(table, "exec_time_seconds")
    # several times the trace's demand, each request again at a moment near its own: a fleet of some replicas, not of one
    copies = int(rng.integers(3, 9))
    arrival_s = np.repeat(_column(table, "t_s"), copies)
    arrival_s = np.clip(arrival_s + rng.normal(0.0, 600.0, len(arrival_s)), 0.0, hours * HOUR_S - 1.0)
    order = np.argsort(arrival_s)
    work_s = np.maximum(np.repeat(took_s, copies), 1.0)[order]
    service = ServiceTruth(
        name="prod/image",
        sites=(Site(machine=G5, replicas=copies * 2 + 2),),
        server=Server(slots=1),
        arrival_s=arrival_s[order],
        work_s=work_s,
        declared=answers_within(float(np.quantile(took_s, 0.95)) * 2.5),
    )
    return Fleet(family="recorded-images", seed=seed, hours=hours, services=(service,))


def recorded_jobs(seed: int, days: int) -> Fleet:
    """Jobs of one virtual cluster of Philly (2017), from some day on: when they came, how many GPUs, how long."""
    rng = rng_of("recorded-jobs", seed)
    table = _table("jobs/philly2017_jobs")
    cluster = str(rng.choice(["6c71a0", "ee9e8c", "0e4a51"]))
    table = table.filter(pc.equal(table["virtual_cluster"], cluster)).sort_by("submit_utc")
    submit = table["submit_utc"].to_numpy().astype("datetime64[s]").astype(np.int64)
    first = np.datetime64("2017-10-09", "s").astype(np.int64) + int(rng.integers(0, 28)) * DAY_S
    inside = np.flatnonzero((submit >= first) & (submit < first + days * DAY_S))
    gpus, lasts = table["num_gpus"].to_numpy(), table["duration_s"].to_numpy().astype(float)
    # a job longer than three days would fill the history by itself: it is cut there
    runs = [
        Run(
            name=f"job-{at}",
            workload="research/philly",
            submit_s=float(submit[at] - first),
            pods=max(1, int(gpus[at]) // P4D.gpus),
            pod_gpus=min(int(gpus[at]), P4D.gpus),
            work_s=float(np.clip(lasts[at], 60.0, 3.0 * DAY_S)),
        )
        for at in inside
        if gpus[at] <= 4 * P4D.gpus
    ]
    hours = days * HOURS_PER_DAY
    used = sum(run.gpus * run.work_s for run in runs) / (hours * HOUR_S * P4D.gpus)
    truth = RunsTruth(
        name="research/philly",
        machine=P4D,
        standing=max(4, int(np.ceil(used * rng.uniform(1.5, 2.5)))),
        runs=runs,
        declared={"targets": [{"metric": "queue_wait", "quantile": 0.9, "limit_s": 1800.0}]},
    )
    return Fleet(family="recorded-jobs", seed=seed, hours=hours, runs=(truth,))


def recorded_spot(seed: int, days: int) -> Fleet:
    """Resumable runs where spot is gone as it was for V100s in one of AWS' zones (SkyPilot's probes, February to May 2023)."""
    rng = rng_of("recorded-spot", seed)
    hours = days * HOURS_PER_DAY
    runs = tuning_runs(rng, hours)
    checkpoint = {"interval_s": 900.0, "save_s": 0.0, "restore_s": 120.0}
    truth = RunsTruth(
        name="research/tune",
        machine=G6E,
        standing=int(rng.integers(6, 9)),
        runs=runs,
        checkpoints=Checkpoints(interval_s=900.0, restore_s=120.0),
        declared={
            "interruptible": True,
            "checkpoint": checkpoint,
            "targets": [{"metric": "queue_wait", "quantile": 0.9, "limit_s": 1800.0}],
        },
    )
    return Fleet(family="recorded-spot", seed=seed, hours=hours, runs=(truth,), droughts=_droughts(rng, hours * HOUR_S))


def _droughts(rng: Rng, length_s: float) -> list[tuple[float, float]]:
    """Return the times in which no V100 was to be had in a zone, from some moment on of a record that is long enough."""
    table = _table("spot/skypilot_spot_availability")
    whole = pc.and_(pc.equal(table["device"], "v100"), pc.equal(table["nodes_wanted"], 1))
    table = table.filter(whole)
    last_s = table.group_by("trace").aggregate([("t_s", "max")])
    long_enough = last_s.filter(pc.greater_equal(last_s["t_s_max"], length_s))["trace"].to_pylist()
    names = [name for name in sorted(long_enough) if "-2023/" in name]
    mine = table.filter(pc.equal(table["trace"], names[int(rng.integers(len(names)))])).sort_by("t_s")
    t_s, gone = _column(mine, "t_s"), mine["available_nodes"].to_numpy() == 0
    first = rng.uniform(0, max(t_s[-1] - length_s, 1.0))
    edges = np.flatnonzero(np.diff(np.concatenate([[0], gone.astype(np.int64), [0]])))
    spans = [(float(t_s[a]) - first, float(t_s[min(b, len(t_s) - 1)]) - first) for a, b in edges.reshape(-1, 2)]
    return [(max(begin, 0.0), min(end, length_s)) for begin, end in spans if end > 0 and begin < length_s]


def recorded() -> tuple[Family, ...]:
    """Return the families of recorded traces; none where the traces are absent."""
    if not TRACES.is_dir():
        return ()
    return tuple(
        Family(name=name, make=make, truth=truth, frozen=False)
        for name, make, truth in (
            ("recorded-client", recorded_client, "one client's requests, two weeks"),
            ("recorded-models", recorded_models, "two models' requests, two weeks"),
            ("recorded-images", recorded_images, "every request of an image service"),
            ("recorded-jobs", recorded_jobs, "jobs of a virtual cluster"),
            ("recorded-spot", recorded_spot, "spot as gone as V100s were"),
        )
    )
