"""Curves and arrivals as people have them."""

import time

import pyarrow as pa
import pytest
from pyarrow import parquet

from trimtab.errors import InputError
from trimtab.sources.traces.batch_files import read_arrivals, read_curve


def written(tmp_path, text, name="file.csv"):
    path = tmp_path / name
    path.write_text(text)
    return path


def test_repeated_measurements_become_their_median(tmp_path):
    curve = read_curve(written(tmp_path, "batch,seconds\n8,0.007\n1,0.005\n8,0.006\n8,0.9\n1,0.005\n"))

    assert curve.sizes == (1, 8)
    assert curve.seconds == (0.005, 0.007)


def test_milliseconds_are_told_by_the_column(tmp_path):
    assert read_curve(written(tmp_path, "batch_size,run_ms\n1,5\n2,6\n")).seconds == (0.005, 0.006)


@pytest.mark.parametrize(
    "text",
    [
        "t_s,tokens\n12.5,1\n10,2\n",
        "timestamp\n2026-11-20T10:00:02.5+00:00\n2026-11-20T10:00:00+00:00\n",
    ],
)
def test_arrivals_are_sorted_and_counted_from_the_first(tmp_path, text):
    assert read_arrivals(written(tmp_path, text)) == [0.0, 2.5]


def test_times_that_name_no_zone_are_utc_wherever_they_are_read(tmp_path, monkeypatch):
    path = tmp_path / "arrivals.csv"
    path.write_text("timestamp\n2026-07-01T12:00:00\n2026-07-01T12:00:05+00:00\n")
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert read_arrivals(path) == [0.0, 5.0]
    finally:
        monkeypatch.undo()
        time.tzset()


def test_arrivals_come_from_parquet_too(tmp_path):
    path = tmp_path / "trace.parquet"
    parquet.write_table(pa.table({"t_s": [5.0, 4.0], "output_tokens": [1, 2]}), path)

    assert read_arrivals(path) == [0.0, 1.0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("when\n1\n", "needs a column t_s or .*saw when"),
        ("", "saw none"),
        ("t_s\n1\nsoon\n", "row 3: 'soon'"),
        ("t_s\n", "saw none"),
    ],
)
def test_what_is_wrong_in_a_file_is_said_with_its_place(tmp_path, text, message):
    with pytest.raises(InputError, match=message):
        read_arrivals(written(tmp_path, text))


def test_a_file_that_is_no_table_is_refused(tmp_path):
    with pytest.raises(InputError, match="not a readable Parquet"):
        read_arrivals(written(tmp_path, "not parquet", name="x.parquet"))


def test_a_recorded_trace_is_read_whole(shared_dir):
    arrivals = read_arrivals(shared_dir / "data" / "traces" / "requests" / "azure2023_conv.parquet")

    assert len(arrivals) == 19_366
    assert arrivals[0] == 0.0
