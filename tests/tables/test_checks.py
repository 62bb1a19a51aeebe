import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, strategies as st
from tests.tables.bundles import END, HOUR, META, START, allocation, device, node, tables, usage

from trimtab.errors import BundleError
from trimtab.tables.bundle import memory_bundle, write_bundle
from trimtab.tables.checks import check_bundle, checked_bundle

SENTINEL = 9223372036854775794.0


def checked(**rows):
    return check_bundle(memory_bundle(tables(**rows), META))


def faults(**rows):
    with pytest.raises(BundleError) as raised:
        checked(**rows)
    return str(raised.value)


def test_a_sound_bundle_passes_unchanged():
    assert checked().meta == META


def test_percent_in_a_share_column_is_told_with_its_cure():
    text = faults(gpu_usage=[usage(hour, sm_active_mean=40.0 + hour) for hour in range(5)])

    assert "sm_active_mean holds percent" in text
    assert "divide it by 100" in text


@pytest.mark.parametrize("reading", [SENTINEL, float("nan"), float("inf"), -0.5, 1.7])
def test_a_stray_reading_becomes_null_and_is_counted(reading):
    rows = [usage(hour) for hour in range(30)] + [usage(30, sm_active_mean=reading)]

    bundle = checked(gpu_usage=rows)

    assert bundle.table("gpu_usage", ["sm_active_mean"])[0].null_count == 1
    assert sum(count for reason, count in bundle.meta.counts.items() if "sm_active_mean" in reason) == 1


def test_text_that_means_no_value_becomes_null():
    bundle = checked(allocations=[allocation(team="N/A")])

    assert bundle.table("allocations", ["team"])[0].null_count == 1


def test_text_that_means_no_value_is_refused_where_one_must_be():
    assert "N/A" in faults(devices=[device(gpu="[N/A]")])


def test_negative_gpus_are_refused_with_their_row():
    text = faults(allocations=[allocation(), allocation(pod="b", gpus=-1.0)])

    assert "row 1" in text
    assert "-1.0" in text


def test_duplicate_rows_are_dropped_and_counted():
    bundle = checked(gpu_usage=[usage(), usage(), usage(1)])

    assert bundle.table("gpu_usage").num_rows == 2
    assert bundle.meta.counts["gpu_usage: duplicate rows dropped"] == 1


def test_rows_outside_the_window_are_dropped_and_counted():
    bundle = checked(gpu_usage=[usage(), usage(1), usage(hour=24 * 40)])

    assert bundle.table("gpu_usage").num_rows == 2
    assert bundle.meta.counts["gpu_usage: rows outside the window dropped (clock skew)"] == 1


def test_a_window_that_most_rows_miss_is_a_fault():
    assert "lie outside the window" in faults(gpu_usage=[usage(24 * 40), usage(24 * 41)])


def test_an_interval_that_runs_backwards_is_a_fault():
    assert "end is before start" in faults(nodes=[node(start=END, end=START)])


def test_an_interval_of_no_length_is_dropped_and_counted():
    bundle = checked(allocations=[allocation(), allocation(pod="b", end=START)])

    assert bundle.table("allocations").num_rows == 1


def test_an_unknown_device_or_node_is_named_with_a_near_match():
    text = faults(gpu_usage=[usage(device="GPU-00")], allocations=[allocation(node="n1")])

    assert "device that devices does not know (saw 'GPU-00')" in text
    assert "is it GPU-0?" in text
    assert "node that nodes does not know (saw 'n1')" in text


def test_an_hour_off_the_hour_is_a_fault():
    assert "not on the hour" in faults(gpu_usage=[usage() | {"hour": START + HOUR / 2}])


def test_a_bucket_list_without_its_counts_is_a_fault():
    row = {"workload": "prod/chat", "start": START, "interval_s": 60.0, "latency_le_s": [0.1, 1.0]}

    assert "differ in length" in faults(demand=[row])


def test_all_faults_of_all_tables_come_at_once(tmp_path):
    write_bundle(tmp_path / "fleet", tables(), META)
    (tmp_path / "fleet" / "devices.parquet").write_bytes(b"")
    (tmp_path / "fleet" / "gpu_usage.parquet").unlink()
    pq.write_table(pa.table({"nodes": ["n0"], "gpu_count": ["eight"]}), tmp_path / "fleet" / "nodes.parquet")

    with pytest.raises(BundleError) as raised:
        checked_bundle(tmp_path / "fleet")

    text = str(raised.value)
    assert "devices.parquet: the file is empty" in text
    assert "gpu_usage.parquet: the table is missing" in text
    assert "column node is missing; rename nodes?" in text
    assert "column gpu_count has the wrong type (saw 'string')" in text


def test_repairs_never_touch_the_files(tmp_path):
    write_bundle(tmp_path / "fleet", tables(gpu_usage=[usage(), usage()]), META)
    before = (tmp_path / "fleet" / "gpu_usage.parquet").read_bytes()

    checked_bundle(tmp_path / "fleet")

    assert (tmp_path / "fleet" / "gpu_usage.parquet").read_bytes() == before


@given(st.lists(st.none() | st.floats(), min_size=1, max_size=40))
def test_what_passes_the_check_is_within_bounds(readings):
    rows = [usage(hour, dram_active_mean=reading) for hour, reading in enumerate(readings)]

    try:
        bundle = checked(gpu_usage=rows)
    except BundleError:
        return

    kept = bundle.table("gpu_usage", ["dram_active_mean"])[0].drop_null().to_pylist()
    assert all(-1e-6 <= value <= 1.000001 for value in kept)


@given(st.binary(max_size=300))
def test_any_bytes_as_a_table_are_refused_on_purpose(tmp_path_factory, blob):
    folder = tmp_path_factory.mktemp("fleet")
    write_bundle(folder, tables(), META)
    (folder / "nodes.parquet").write_bytes(blob)

    with pytest.raises(BundleError, match=r"nodes\.parquet"):
        checked_bundle(folder)


def test_an_empty_name_of_a_workload_is_a_fault():
    bundle = memory_bundle(tables(allocations=[allocation(workload="")]), META)

    with pytest.raises(BundleError, match="column workload has 1 value"):
        check_bundle(bundle)
