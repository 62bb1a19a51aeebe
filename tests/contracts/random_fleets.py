"""Random fleets in which every lever has something to offer: services, runs and notebooks with all that may be declared."""

from hypothesis import strategies as st
from tests.fleets import FleetRows, at

DAYS = 7
HOURS = range(DAYS * 24)
LE_S = (0.5, 0.7, 0.85, 1.0, 1.3, 2.0, 4.0, float("inf"))
SHARES = (0.02, 0.2, 0.3, 0.25, 0.15, 0.07, 0.01, 0.0)
SECONDS_A_REQUEST = 0.87
"""Of these shares: requests are answered one at a time, so that batching has something to offer."""
BATCHES = {"seconds": {1: 0.85, 2: 0.92, 4: 1.06, 8: 1.34}, "item_gib": 1.0}
TUNING = {"method": "lora", "recompute": "full", "sharding": 3, "sequence": 2048, "micro_batch": 4, "global_batch": 64}
MOVES = {"regions": ["us-west-2"], "data_gib": 10.0, "traffic_gib_mo": 1.0}
GPUS = {"g5.xlarge": 1, "g5.12xlarge": 4, "p4d.24xlarge": 8}


@st.composite
def services(draw):
    """A fleet of one service, whose owner allows much."""
    rows = FleetRows(DAYS)
    instance_type = draw(st.sampled_from(sorted(GPUS)))
    replicas = draw(st.integers(1, min(3, GPUS[instance_type])))
    rows.node("n", instance_type)
    rows.hold("prod/api", "n", range(replicas), owner_kind="Deployment")
    for number, allocation in enumerate(rows.rows["allocations"]):
        allocation["pod"] = f"api-{number}"
    sm, memory_gib = draw(st.sampled_from([0.08, 0.35, 0.6])), draw(st.sampled_from([5.0, 16.0]))
    for gpu in range(replicas):
        rows.use("prod/api", "n", gpu, HOURS, sm=sm, tensor=sm / 3, dram=sm, memory_gib=memory_gib)
    busy = draw(st.sampled_from([200, 2_000]))
    rows.demand(
        "prod/api",
        lambda hour: busy * (1 + hour % 24) / 24,
        replicas,
        LE_S,
        lambda hour: [busy * (1 + hour % 24) / 24 * share for share in SHARES],
        running=lambda hour: busy * (1 + hour % 24) / 24 * SECONDS_A_REQUEST / 3600,
    )
    for row in rows.rows["demand"]:
        row["input_tokens_mean"], row["output_tokens_mean"] = 300.0, 60.0
    rows.workloads["prod/api"] = {
        "targets": [{"metric": "latency", "quantile": 0.95, "limit_s": draw(st.sampled_from([4.0, 20.0]))}],
        "isolation": draw(st.sampled_from(["hardware", "mps", "time-slicing", "none"])),
        "interruptible": draw(st.booleans()),
        **(draw(st.sampled_from([{}, MOVES]))),
        **(draw(st.sampled_from([{}, {"open_hours": {"from_hour": 8, "to_hour": 18}}]))),
        **(draw(st.sampled_from([{}, {"batching": BATCHES}]))),
        **(draw(st.sampled_from([{}, {"model": "mistralai/Mistral-7B-Instruct-v0.3", "quantize": ["int8", "fp8"]}]))),
    }
    return rows


@st.composite
def nightly_idle(draw):
    """A fleet of one service, asked by day and every five minutes on record, whose owner lets it go to zero."""
    rows = FleetRows(DAYS).node("n", draw(st.sampled_from(["g5.xlarge", "p4d.24xlarge"])))
    rows.hold("prod/desk", "n", [0], owner_kind="Deployment")
    rows.use("prod/desk", "n", 0, HOURS, sm=lambda hour: 0.4 if 8 <= hour % 24 < 18 else 0.0, memory_gib=6.0)
    busy = draw(st.sampled_from([20, 200]))
    for step in range(DAYS * 24 * 12):
        arrivals = float(busy if 8 <= step // 12 % 24 < 18 else 0)
        rows.rows["demand"].append(
            {
                "workload": "prod/desk",
                "start": at(step / 12),
                "interval_s": 300.0,
                "arrivals": arrivals,
                "replicas_ready": 1.0,
                "running_mean": None,
                "latency_le_s": list(LE_S),
                "latency_count": [arrivals * share for share in SHARES],
                "ttft_le_s": None,
                "ttft_count": None,
            }
        )
    rows.workloads["prod/desk"] = {
        "min_replicas": 0,
        "wakes_on": {"query": "sum(rate(gateway_requests_total[2m]))", "hold_s": 900.0},
        "cold_start_s": draw(st.sampled_from([120.0, 300.0])),
        "targets": [{"metric": "latency", "quantile": 0.9, "limit_s": 4.0}],
    }
    return rows


@st.composite
def runs(draw):
    """A fleet of one workload of daily runs."""
    rows = FleetRows(DAYS)
    instance_type = draw(st.sampled_from(["g5.12xlarge", "p4d.24xlarge"]))
    gpus = GPUS[instance_type]
    rows.node("n", instance_type)
    kind = draw(st.sampled_from(["training", "experiment", "batch"]))
    used = draw(st.sampled_from([1, gpus]))
    for day in range(DAYS):
        start = day * 24 + 9
        rows.hold("lab/run", "n", range(gpus), start, start + 7, pod=f"p{day}", owner_kind="Job")
        rows.job("lab/run", start, start, start + 7, gpus, name=f"j{day}")
        for gpu in range(gpus):
            level = 0.8 if gpu < used else 0.0
            rows.use("lab/run", "n", gpu, range(start, start + 7), sm=level, tensor=level / 2, memory_gib=18.0)
    rows.workloads["lab/run"] = {
        "kind": kind,
        "interruptible": draw(st.booleans()),
        "targets": [{"metric": "queue_wait", "limit_s": 7200.0}, {"metric": "throughput", "limit_frac": 0.3}],
        **(draw(st.sampled_from([{}, MOVES]))),
        **(draw(st.sampled_from([{}, {"deferrable": {"within_hr": 8.0}}]))),
        **({"model": "meta-llama/Llama-2-7b-hf", "training": TUNING} if kind == "training" else {}),
    }
    return rows


@st.composite
def notebooks(draw):
    """A fleet of one notebook, used by day."""
    rows = FleetRows(14).node("n", draw(st.sampled_from(["g5.12xlarge", "p4d.24xlarge"])))
    rows.hold("lab/notebook", "n", [0], owner_kind="Notebook")
    level = draw(st.sampled_from([0.1, 0.4]))
    rows.use("lab/notebook", "n", 0, range(14 * 24), sm=lambda hour: level if 9 <= hour % 24 < 17 else 0.0)
    return rows
