from datetime import timedelta

import ibis
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st
from tests.tables.bundles import HOUR, START
from tests.tables.reference import histogram_quantile, rollup_samples

from trimtab.tables.rollup import (
    KEYS,
    SAMPLE_SCHEMA,
    histogram_expr,
    histogram_of,
    usage_expr,
)

shares = st.floats(0.0, 1.0)


def samples(values, *, device="GPU-0", workload="prod/chat", start=START, step_s=60, **columns):
    times = (start.replace(tzinfo=None) + timedelta(seconds=step_s * at) for at in range(len(values)))
    keys = {"device": device, "workload": workload}
    rows = [{**keys, "time": time, "sm_active": value} for time, value in zip(times, values, strict=True)]
    return pa.Table.from_pylist([row | columns for row in rows], schema=SAMPLE_SCHEMA)


@given(st.lists(shares, min_size=1, max_size=200), st.sampled_from([0.5, 0.95, 0.99, 1.0]))
def test_a_histogram_quantile_is_within_one_bin_of_the_exact_one(values, quantile):
    exact = float(np.quantile(values, quantile, method="inverted_cdf"))

    assert abs(histogram_quantile(histogram_of(values), quantile) - exact) <= 0.01


def test_the_quantile_of_nothing_is_absent():
    assert histogram_quantile(histogram_of([]), 0.5) is None


@settings(max_examples=15)
@given(st.lists(st.none() | shares, min_size=1, max_size=120))
def test_the_rollup_agrees_with_exact_statistics(values):
    given_samples = samples(values)

    rows = rollup_samples(given_samples, step_s=60).to_pylist(maps_as_pydicts="strict")

    for row in rows:
        at = round((row["hour"] - START) / HOUR)
        hour = [value for value in values[60 * at : 60 * at + 60] if value is not None]
        assert row["samples_expected"] == 60
        if not hour:
            assert row["sm_active_mean"] is None
            assert row["activity_histogram"] is None
            continue
        assert row["sm_active_mean"] == pytest.approx(np.mean(hour))
        assert row["sm_active_max"] == max(hour)
        assert row["activity_histogram"] == histogram_of(hour).tolist()
        for name, quantile in (("p50", 0.5), ("p95", 0.95)):
            assert row[f"sm_active_{name}"] == histogram_quantile(histogram_of(hour), quantile)


def test_an_unallocated_device_keeps_its_null_workload_and_its_quantiles():
    row = rollup_samples(samples([0.2] * 60, workload=None), step_s=60).to_pylist()[0]

    assert row["workload"] is None
    assert row["sm_active_p95"] == 0.2


def test_gpu_util_stands_in_where_sm_active_is_absent():
    row = rollup_samples(samples([None] * 60, gpu_util=0.7), step_s=60).to_pylist()[0]

    assert row["activity_histogram"][70] == 60
    assert row["sm_active_mean"] is None


def test_readings_outside_their_bounds_count_nowhere():
    row = rollup_samples(samples([0.5, 9.2e18, float("nan"), -1.0]), step_s=60).to_pylist()[0]

    assert row["sm_active_max"] == 0.5
    assert sum(row["activity_histogram"]) == 1
    assert row["samples"] == 4


def test_a_gap_shows_as_fewer_samples_than_expected():
    row = rollup_samples(samples([0.5] * 40), step_s=60).to_pylist()[0]

    assert (row["samples"], row["samples_expected"]) == (40, 60)


def test_two_workloads_in_one_hour_give_two_rows():
    table = pa.concat_tables([samples([0.5] * 30), samples([0.9] * 30, workload="dev/nb", start=START + HOUR / 2)])

    rows = rollup_samples(table, step_s=60).to_pylist()

    assert [(row["workload"], row["samples"]) for row in rows] == [("dev/nb", 30), ("prod/chat", 30)]


@pytest.mark.parametrize("dialect", ["duckdb", "clickhouse", "bigquery", "snowflake", "trino", "athena", "postgres"])
def test_the_rollup_compiles_for_the_warehouses(dialect):
    table = ibis.table(ibis.Schema.from_pyarrow(SAMPLE_SCHEMA), name="samples")

    assert "samples" in ibis.to_sql(usage_expr(table), dialect=dialect)
    assert "samples" in ibis.to_sql(
        histogram_expr(table.mutate(hour=table.time.truncate("h")), KEYS, "sm_active"), dialect=dialect
    )
