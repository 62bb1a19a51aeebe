import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from tests.sources.demo.bundles import assert_consistent

from trimtab.errors import InputError
from trimtab.sources.demo import trace_fleet
from trimtab.sources.demo.trace import read_series


def _write(path, **columns):
    pq.write_table(pa.table(columns), path)
    return path


def test_requests_are_counted_by_the_minute_and_the_unfinished_one_is_left_out(tmp_path):
    path = _write(
        tmp_path / "t.parquet", t_s=[0.0, 59.0, 61.0, 121.0], input_tokens=[1, 3, 10, 9], output_tokens=[1] * 4
    )

    series = read_series(path)[0]

    assert series.arrivals.tolist() == [2.0, 1.0]
    assert series.input_tokens.tolist() == [2.0, 10.0]


def test_cached_tokens_of_a_trace_are_demand_and_absent_ones_stay_absent(tmp_path):
    tokens = {"input_tokens": [100, 300, 200, 200], "output_tokens": [1] * 4}
    told = _write(tmp_path / "told.parquet", t_s=[0.0, 59.0, 61.0, 121.0], cached_tokens=[50, 100, 0, 0], **tokens)
    untold = _write(tmp_path / "untold.parquet", t_s=[0.0, 59.0, 61.0, 121.0], **tokens)

    rows = trace_fleet(told)[0]["demand"].to_pylist()

    assert [row["cached_tokens"] for row in rows[:2]] == [75.0 * rows[0]["completed"], 0.0]
    assert set(trace_fleet(untold)[0]["demand"]["cached_tokens"].to_pylist()) == {None}


def test_a_missing_interval_is_a_gap_without_a_row(tmp_path):
    path = _write(tmp_path / "t.parquet", t_s=[0, 600, 1200, 2400, 3000], requests_per_s=[1.0, 2.0, np.nan, 2.0, 1.0])

    tables, _, meta = trace_fleet(path)

    assert tables["demand"]["arrivals"].to_pylist() == [600.0, 1200.0, 1200.0, 600.0]
    assert set(tables["demand"]["interval_s"].to_pylist()) == {600.0}
    assert pc.max(tables["gpu_usage"]["samples"]).as_py() <= 40
    assert (meta["end"] - meta["start"]).total_seconds() == 3600


def test_the_fleet_is_sized_so_that_the_busiest_interval_takes_eighty_percent(tmp_path):
    t_s = np.arange(0, 86_400, 600)
    rate = 50 + 40 * np.sin(t_s / 86_400 * 2 * np.pi)
    path = _write(tmp_path / "day.parquet", t_s=t_s, requests_per_s=rate)

    tables, workloads, _ = trace_fleet(path)

    usage = tables["gpu_usage"]
    assert set(workloads["workloads"]) == {"trace/day"}
    assert pc.count_distinct(usage["device"]).as_py() == 16
    assert 0.7 < pc.max(usage["sm_active_mean"]).as_py() < 0.8


def test_each_model_of_a_trace_is_a_service(tmp_path):
    path = _write(tmp_path / "t.parquet", t_s=[0, 60, 0, 60], requests_per_s=[1.0, 2, 3, 4], model=["a", "a", "b", "b"])

    tables, _, _ = trace_fleet(path)

    assert set(tables["demand"]["workload"].to_pylist()) == {"trace/a", "trace/b"}


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"time": [1, 2]}, "column t_s"),
        ({"t_s": [1.0]}, "1 rows are no trace"),
        ({"t_s": [-1.0, 2.0]}, "not negative"),
        ({"t_s": [0, 7], "requests_per_s": [1.0, 1.0]}, "whole minutes"),
        ({"t_s": [0, 60], "client": [1, 2]}, "by client"),
        ({"t_s": [0, 57], "pod": ["a", "a"], "gpu_util_pct": [10.0, 20.0]}, "by pod are readings"),
    ],
)
def test_a_file_that_is_no_trace_is_refused_with_its_place_and_cure(tmp_path, columns, message):
    path = _write(tmp_path / "bad.parquet", **columns)

    with pytest.raises(InputError, match=message):
        trace_fleet(path)


def test_a_file_that_is_absent_or_not_parquet_is_refused(tmp_path):
    (tmp_path / "text.parquet").write_text("no", encoding="utf-8")

    with pytest.raises(InputError, match="no such file"):
        trace_fleet(tmp_path / "absent.parquet")
    with pytest.raises(InputError, match="not a readable Parquet"):
        trace_fleet(tmp_path / "text.parquet")


@pytest.mark.shared
@pytest.mark.parametrize("name", ["azure2023_conv", "azure2024_conv_rate_10min_digitised", "servegen_model_rate_10min"])
def test_public_traces_become_bundles(shared_dir, name):
    tables, _, _ = trace_fleet(shared_dir / "data" / "traces" / "requests" / f"{name}.parquet")

    assert tables["demand"].num_rows > 50
    assert pc.min(tables["demand"]["completed"]).as_py() >= 0


def test_a_trace_without_gaps_gives_consistent_tables(tmp_path):
    t_s = np.arange(0, 6 * 3600, 60)
    path = _write(tmp_path / "t.parquet", t_s=t_s, requests_per_s=5 + t_s % 7)

    tables, _, meta = trace_fleet(path)

    assert_consistent(tables, meta["end"])
