"""Each alert fires on its fault and on nothing else in a real Prometheus engine, however exporters and scrapes spell things."""

import pytest
from tests.monitor.fleet import HEALTHY, SCRAPES, STYLES, Style, gpu, node, owner

CHAT = ("chat-api-7d4b9c6f5-x2x9k", "prod")
TRAIN = ("train-x2x9k", "ml")
INTERRUPTIONS = 'karpenter_interruption_received_messages_total{message_type="spot_interrupted"}'
ALL = {
    "TrimtabGpuUnderused",
    "TrimtabGpuSaturated",
    "TrimtabGpuMemoryNearlyFull",
    "TrimtabGpuHot",
    "TrimtabGpuThrottled",
    "TrimtabGpuPower",
    "TrimtabTrainingOccupancyLow",
    "TrimtabGpuIdle",
    "TrimtabSpotInterruptionBurst",
    "TrimtabCommitmentUnused",
    "TrimtabSpendJump",
    "TrimtabGpuTelemetryAbsent",
}


def cluster(style, *, chat=None, train=None, free=None, nodes=4, telemetry=4, extra=()):
    """Series of four nodes: two serve, two train; `chat` and `train` are readings to plant, `free` those of an unheld GPU."""
    for number in range(nodes):
        yield from node(f"n{number}")
    for number in range(telemetry):
        who, planted = (CHAT, chat) if number < 2 else (TRAIN, train)
        yield from gpu(style, f"n{number}", 0, *who, **(planted or {}))
    if free is not None:
        yield from gpu(style, "n0", 1, **free)
    yield from owner("ml", TRAIN[0], "Job")
    yield from extra


FAULTS = {
    "healthy": ({}, set()),
    "underused": ({"chat": {"sm_active": 0.2}}, {"TrimtabGpuUnderused"}),
    "saturated": ({"chat": {"sm_active": 0.99}}, {"TrimtabGpuSaturated"}),
    "training is meant to be busy": ({"train": {"sm_active": 0.99}}, set()),
    "memory": ({"chat": {"used_mib": 38_000, "free_mib": 2_000}}, {"TrimtabGpuMemoryNearlyFull"}),
    "hot": ({"train": {"temperature_c": 88}}, {"TrimtabGpuHot"}),
    "throttled by heat": ({"train": {"reasons": 0x40}}, {"TrimtabGpuThrottled"}),
    "held at its power cap": ({"train": {"reasons": 0x04}}, set()),
    "power": ({"train": {"power_w": 390}}, {"TrimtabGpuPower"}),
    "occupancy": ({"train": {"sm_occupancy": 0.2}}, {"TrimtabTrainingOccupancyLow"}),
    "a service's occupancy": ({"chat": {"sm_occupancy": 0.2}}, set()),
    "idle": ({"chat": {"sm_active": 0}}, {"TrimtabGpuIdle"}),
    "idle and held by nobody": ({"free": {"sm_active": 0}}, {"TrimtabGpuIdle"}),
    "interruptions": (
        {"extra": [{"series": INTERRUPTIONS, "values": "0x100 1+1x20 21x300"}]},
        {"TrimtabSpotInterruptionBurst"},
    ),
    "one interruption": ({"extra": [{"series": INTERRUPTIONS, "values": "0x100 1x400"}]}, set()),
    "a paid node is gone": ({"nodes": 3, "telemetry": 3}, {"TrimtabCommitmentUnused"}),
    "a silent node": ({"telemetry": 3}, {"TrimtabGpuTelemetryAbsent"}),
    "nothing is scraped": ({"telemetry": 0}, {"TrimtabGpuTelemetryAbsent"}),
}


def fires(names):
    """What promtool is asked: which alerts fire, whatever their labels."""
    return {
        "expr": 'group by (alertname) (ALERTS{alertstate="firing"})',
        "exp_samples": [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in sorted(names)],
    }


IN_EVERY_STYLE = ("healthy", "underused", "idle and held by nobody", "throttled by heat")


@pytest.mark.parametrize(
    ("fault", "style"),
    [
        *((fault, style) for fault in FAULTS for style in ("old names", "new names, exported labels")),
        *((fault, style) for fault in IN_EVERY_STYLE for style in ("every 10 s", "every 60 s")),
    ],
)
def test_an_alert_fires_on_its_fault_and_on_nothing_else(fault, style, promtool):
    planted, expected = FAULTS[fault]
    test = {
        "interval": f"{STYLES[style].interval_s}s",
        "input_series": list(cluster(STYLES[style], **planted)),
        "promql_expr_test": [{"eval_time": "100m", **fires(expected)}],
    }

    run = promtool(test)

    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize(
    "activity", ["0.6x180 0x480", "0x180 0.6x480", "0.6x180 0x60 0.6x420"], ids=["stops", "starts", "pauses"]
)
def test_a_workload_that_stops_or_starts_is_not_called_underused(activity, promtool):
    planted = {"sm_active": activity, "sm_occupancy": activity}
    means = '{alertname=~"TrimtabGpuUnderused|TrimtabTrainingOccupancyLow",alertstate="firing"}'
    test = {
        "interval": "10s",
        "input_series": list(cluster(Style(interval_s=10), chat=planted, train=planted)),
        "promql_expr_test": [{"expr": f"count_over_time(ALERTS{means}[110m])", "eval_time": "110m", "exp_samples": []}],
    }

    run = promtool(test, evaluated="1m")

    assert run.returncode == 0, run.stdout + run.stderr


def rolled_out(style, number, before=300, loading=30):
    """A GPU whose pod is replaced at half time by one that loads its model for five minutes."""
    after = SCRAPES - before
    old = {name: f"{value}x{before - 1} _x{after}" for name, value in HEALTHY.items()}
    new = {name: f"_x{before} {value}x{after - 1}" for name, value in HEALTHY.items()}
    old["sm_active"] = f"0.5x{before - 1} _x{after}"
    new["sm_active"] = f"_x{before} 0x{loading - 1} 0.5x{after - loading - 1}"
    yield from gpu(style, f"n{number}", 0, f"chat-7d4b9c6f5-x2x{number}k", "prod", **old)
    yield from gpu(style, f"n{number}", 0, f"chat-5c9f8d7b6-b7d{number}k", "prod", **new)


def test_a_service_whose_pods_are_replaced_is_not_called_underused(promtool):
    style = Style(interval_s=10)
    test = {
        "interval": "10s",
        "input_series": [series for number in range(2) for series in rolled_out(style, number)],
        "promql_expr_test": [
            {
                "expr": 'count_over_time(ALERTS{alertname="TrimtabGpuUnderused",alertstate="firing"}[110m])',
                "eval_time": "110m",
                "exp_samples": [],
            }
        ],
    }

    run = promtool(test, evaluated="1m")

    assert run.returncode == 0, run.stdout + run.stderr


def test_every_alert_has_its_fault():
    assert set().union(*(expected for _, expected in FAULTS.values())) | {"TrimtabSpendJump"} == ALL


def kv_cache(value):
    return [{"series": f'vllm:kv_cache_usage_perc{{pod="{CHAT[0]}",namespace="prod"}}', "values": f"{value}x{SCRAPES}"}]


@pytest.mark.parametrize(("used", "expected"), [(0.5, set()), (0.97, {"TrimtabGpuMemoryNearlyFull"})])
def test_a_server_that_takes_its_memory_at_the_start_is_judged_by_its_cache(used, expected, promtool):
    full = {"used_mib": 38_000, "free_mib": 2_000}
    test = {
        "interval": "30s",
        "input_series": list(cluster(Style(), chat=full, extra=kv_cache(used))),
        "promql_expr_test": [{"eval_time": "100m", **fires(expected)}],
    }

    run = promtool(test)

    assert run.returncode == 0, run.stdout + run.stderr


def test_an_alert_says_what_it_costs_and_where_to_read_on(promtool):
    test = {
        "interval": "30s",
        "input_series": list(cluster(Style(), chat={"sm_active": 0.2})),
        "alert_rule_test": [
            {
                "eval_time": "100m",
                "alertname": "TrimtabGpuUnderused",
                "exp_alerts": [
                    {
                        "exp_labels": {"severity": "info", "namespace": "prod", "workload": "chat-api"},
                        "exp_annotations": {
                            "summary": "prod/chat-api uses 20% of its GPUs",
                            "description": "They cost $5.50 an hour. Fewer replicas, a smaller GPU or a share of one may do: "
                            "trimtab audit says which keeps the targets.",
                            "runbook_url": "docs/how-to/watch-a-cluster.md#trimtabgpuunderused",
                        },
                    }
                ],
            }
        ],
    }

    run = promtool(test)

    assert run.returncode == 0, run.stdout + run.stderr
