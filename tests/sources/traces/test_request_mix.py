"""What a trace says of the demand to serve."""

import math
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from trimtab.errors import InputError, UnknownName
from trimtab.sources.traces.request_mix import read_request_mix
from trimtab.tables.arrow import table_from_rows
from trimtab.tables.bundle import BundleMeta, write_bundle


def write(folder, **columns):
    path = folder / "trace.parquet"
    pq.write_table(pa.table(columns), path)
    return path


def test_rate_and_tokens_come_from_requests(tmp_path):
    # A request each second for ten minutes, and 60 more within the fifth minute.
    even = [float(second) for second in range(600)]
    burst = [240 + second + 0.5 for second in range(60)]
    t_s = sorted(even + burst)
    path = write(tmp_path, t_s=t_s, input_tokens=[100] * 330 + [300] * 330, output_tokens=[50] * 660)

    mix = read_request_mix(path)

    assert mix.mean_req_s == pytest.approx(660 / 599)
    assert 1.8 < mix.peak_req_s <= 2.0
    assert (mix.input_tokens, mix.output_tokens, mix.longest_tokens) == (200, 50, 350)
    assert mix.burst_cv < 1
    assert "200 tokens in and 50 out" in mix.summary


def test_a_csv_is_a_trace_too(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text("t_s,input_tokens,output_tokens\n0,10,5\n1,10,5\n2,10,5\n")

    assert read_request_mix(path).mean_req_s == pytest.approx(1.5)


def test_clients_of_one_moment_are_added_and_their_bursts_pooled(tmp_path):
    path = write(
        tmp_path, t_s=[0, 0, 600, 600], client=[1, 2, 1, 2], requests_per_s=[6.0, 2.0, 6.0, 2.0], iat_cv=[1.0, 3.0, 1.0, 3.0]
    )  # fmt: skip

    mix = read_request_mix(path)

    burst = math.sqrt((6 * 1 + 2 * 9) / 8)
    assert mix.mean_req_s == 8
    assert mix.burst_cv == pytest.approx(burst)
    assert mix.peak_req_s == pytest.approx(8 + 2.33 * burst * math.sqrt(8 / 60))
    assert mix.input_tokens is None


def test_one_of_several_models_must_be_named(tmp_path):
    path = write(tmp_path, model=["a", "a", "b", "b"], t_s=[0, 600, 0, 600], requests_per_s=[1.0, 1.0, 9.0, 9.0])

    assert read_request_mix(path, workload="b").mean_req_s == 9
    with pytest.raises(InputError, match="a, b; choose one with --workload"):
        read_request_mix(path)
    with pytest.raises(UnknownName, match="workload of the trace"):
        read_request_mix(path, workload="c")


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"time": [1.0, 2.0]}, "column t_s"),
        ({"t_s": [1.0]}, "1 rows are no trace"),
        ({"t_s": [1.0, 1.0]}, "same moment"),
        ({"t_s": [0.0, math.nan]}, "finite"),
        ({"t_s": [0.0, 600.0], "requests_per_s": [0.0, 0.0]}, "no requests"),
    ],
)
def test_what_is_no_trace_is_refused_with_its_reason(tmp_path, columns, said):
    with pytest.raises(InputError, match=said):
        read_request_mix(write(tmp_path, **columns))


def test_a_file_that_is_no_table_is_refused(tmp_path):
    path = tmp_path / "x.parquet"
    path.write_bytes(b"not parquet")

    with pytest.raises(InputError, match="not a readable"):
        read_request_mix(path)


def test_a_bundles_demand_is_a_trace(tmp_path):
    start = datetime(2026, 1, 1, tzinfo=UTC)
    seen = [(0, 300, 100), (5, 600, 100), (10, None, None), (15, 900, 400)]
    rows = [
        {
            "workload": "prod/chat",
            "start": start + timedelta(minutes=minute),
            "interval_s": 300.0,
            "arrivals": arrivals,
            "input_tokens_mean": tokens,
            "output_tokens_mean": 10.0,
        }
        for minute, arrivals, tokens in seen
    ]
    path = tmp_path / "fleet"
    meta = BundleMeta(start=start, end=start + timedelta(hours=1))
    write_bundle(path, {"demand": table_from_rows("demand", rows)}, meta)

    mix = read_request_mix(path)

    assert mix.mean_req_s == pytest.approx(2)
    assert mix.input_tokens == pytest.approx((100 * 900 + 400 * 900) / 1800)
    with pytest.raises(InputError, match="no fleet bundle"):
        read_request_mix(tmp_path)


@pytest.mark.parametrize(
    ("name", "workload"),
    [
        ("azure2023_conv", None),
        ("mooncake_conversation", None),
        ("azure2024_conv_rate_10min_digitised", None),
        ("servegen_client_rates_10min", "m-mid"),
        ("servegen_model_rate_10min", "m-mid"),
        ("gentd26_diffusion_requests", None),
    ],
)
def test_published_traces_are_read(shared_dir, name, workload):
    mix = read_request_mix(shared_dir / "data" / "traces" / "requests" / f"{name}.parquet", workload=workload)

    assert 0 < mix.mean_req_s <= mix.peak_req_s < 10_000
    assert (mix.input_tokens is None) == ("conv" not in name or "rate" in name)
