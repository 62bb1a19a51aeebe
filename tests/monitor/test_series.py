"""The recorded series: a board is split by memory, dollars add up to the fleet's, readings in percent are read as such."""

import pytest
from tests.monitor.fleet import OLD_NAMES, STYLES, Style, gpu, node

ONE, OTHER = ("chat-api-7d4b9c6f5-x2x9k", "prod"), ("embed-0", "prod")


def ask(promtool, series, *asked):
    """Hold PromQL against values: (expression, {labels: value}) after ten minutes."""
    test = {
        "interval": "30s",
        "input_series": list(series),
        "promql_expr_test": [
            {
                "expr": expression,
                "eval_time": "10m",
                "exp_samples": [{"labels": labels, "value": value} for labels, value in values.items()],
            }
            for expression, values in asked
        ],
    }
    run = promtool(test)
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize("style", STYLES)
def test_mig_instances_share_a_board_by_their_memory(style, promtool):
    style = Style(names=STYLES[style].names, exported=STYLES[style].exported, node_label=STYLES[style].node_label)
    series = [
        *node("n0"),
        *gpu(style, "n0", 0, *ONE, mig="1", used_mib=5_000, free_mib=25_000),
        *gpu(style, "n0", 0, *OTHER, mig="2", used_mib=5_000, free_mib=5_000),
    ]

    ask(
        promtool,
        series,
        (
            "trimtab:workload_usd_hr",
            {
                'trimtab:workload_usd_hr{namespace="prod",workload="chat-api"}': 0.75 * 2.75,
                'trimtab:workload_usd_hr{namespace="prod",workload="embed"}': 0.25 * 2.75,
            },
        ),
        ("trimtab:fleet_usd_hr", {"trimtab:fleet_usd_hr": 2.75}),
    )


def test_pods_that_see_one_board_share_it_evenly(promtool):
    series = [*node("n0"), *gpu(Style(), "n0", 0, *ONE), *gpu(Style(), "n0", 0, *OTHER)]

    ask(
        promtool,
        series,
        (
            "sum by (workload) (trimtab:gpu_held)",
            {'{workload="chat-api"}': 0.5, '{workload="embed"}': 0.5},
        ),
    )


def test_a_gpu_costs_what_its_node_does_else_what_its_model_does(promtool):
    series = [
        *node("n0"),
        *gpu(Style(), "n0", 0, *ONE),
        *node("n1", spot=True),
        *gpu(Style(), "n1", 0, *ONE),
        *gpu(Style(), "no-labels", 0, *ONE),
    ]

    ask(
        promtool,
        series,
        (
            "sum by (node) (trimtab:gpu_usd_hr)",
            {'{node="n0"}': 2.75, '{node="n1"}': 1.0, '{node="no-labels"}': 2.5},
        ),
    )


def test_waste_and_work_add_up_to_what_the_fleet_costs(promtool):
    series = [
        *node("n0"),
        *gpu(Style(), "n0", 0, *ONE, sm_active=0.25),
        *gpu(Style(), "n0", 1, *OTHER, sm_active=0),
        *gpu(Style(), "n0", 2, sm_active=0),
    ]

    ask(
        promtool,
        series,
        (
            "sum by (kind) (trimtab:waste_usd_hr)",
            {'{kind="unused part"}': 0.75 * 2.75, '{kind="idle"}': 2.75, '{kind="unallocated"}': 2.75},
        ),
        ("sum(trimtab:waste_usd_hr) + 0.25 * 2.75 - trimtab:fleet_usd_hr", {"{}": 0}),
    )


def test_a_ratio_that_is_percent_is_read_as_percent_and_utilization_always(promtool):
    percent = Style(names=OLD_NAMES | {"sm_active": "DCGM_FI_PROF_SM_UTIL_RATIO"})
    utilization = Style(names=OLD_NAMES | {"sm_active": "DCGM_FI_DEV_GPU_UTIL"})
    series = [
        *gpu(percent, "n0", 0, *ONE, sm_active=60),
        *gpu(percent, "n0", 1, *ONE, sm_active=1),
        *gpu(utilization, "n1", 0, *ONE, sm_active=1),
    ]

    ask(
        promtool,
        series,
        (
            "max by (node, gpu, signal) (trimtab:gpu_activity_frac)",
            {
                '{node="n0",gpu="GPU-n0-0",signal="sm_active"}': 0.6,
                '{node="n0",gpu="GPU-n0-1",signal="sm_active"}': 0.01,
                '{node="n1",gpu="GPU-n1-0",signal="gpu_util"}': 0.01,
            },
        ),
    )


def test_what_dcgm_writes_where_it_has_no_reading_is_none(promtool):
    series = [*gpu(Style(), "n0", 0, *ONE, power_w=9223372036854775794, sm_active=9223372036854775794)]

    ask(promtool, series, ("trimtab:gpu_power_w", {}), ("trimtab:gpu_activity_frac", {}))


def test_what_was_verified_is_there_by_action_as_it_was_found(promtool):
    asked = (
        ("sum(trimtab:saving_planned_usd_mo)", {"{}": 1300.0}),
        ('trimtab:saving_realised_usd_mo{status="short"} + 0', {
            '{action="a2",lever="spot",status="short",subject="ml/train",until="2026-10-29"}': -25.25
        }),
    )  # fmt: skip

    ask(promtool, [], *asked)
