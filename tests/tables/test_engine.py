from datetime import timedelta

import ibis
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sqlglot
from tests.tables.bundles import START
from tests.tables.reference import rollup_samples

from trimtab.cli import main
from trimtab.errors import BundleError, InputError, SourceError, UsageError
from trimtab.ledger.allocation_expr import allocation_expr, cost_by, unallocated_expr
from trimtab.ledger.arrays import apportion_groups
from trimtab.tables.rollup import (
    KEYS,
    SAMPLE_SCHEMA,
    WAREHOUSES,
    complete_samples,
    histogram_expr,
    hourly_samples,
    open_engine,
    rollup_spans,
    usage_expr,
)

STEP_S = 60
HOURS = 30
SMALL = (
    "?spark.driver.host=127.0.0.1&spark.driver.bindAddress=127.0.0.1&spark.executor.memory=600m"
    "&spark.sql.shuffle.partitions=1&spark.sql.adaptive.enabled=false&spark.sql.codegen.wholeStage=false"
    "&spark.sql.autoBroadcastJoinThreshold=-1"
)
"""What a cluster of one core and a few rows needs: no exchange is worth its planning."""


def fleet_samples(gpus=3):
    """A few GPUs, some of the time unallocated, with gaps, readings out of bounds and two workloads in an hour."""
    rng = np.random.default_rng(3)
    at = np.arange(HOURS * 60)
    tables = []
    for gpu in range(gpus):
        workload = np.where(at % 1200 < 400, None, np.where(at < 1000, "prod/chat", "research/train"))
        sm = np.where(rng.random(len(at)) < 0.05, np.nan, np.round(rng.beta(2, 3, len(at)), 4))
        columns = {
            "device": [f"GPU-{gpu}"] * len(at),
            "workload": workload.tolist(),
            "time": [START.replace(tzinfo=None) + timedelta(seconds=int(one) * STEP_S) for one in at],
            "gpu_util": np.round(rng.random(len(at)), 2),
            "sm_active": pa.array(sm, from_pandas=gpu == 0),
            "tensor_active": pa.nulls(len(at), pa.float64()),
            "dram_active": np.where(at % 7 == 0, 9.2e18, 0.25),
            "memory_used_gib": np.full(len(at), 12.5),
            "power_w": np.round(rng.uniform(100, 400, len(at))),
        }
        tables.append(pa.table(columns, schema=SAMPLE_SCHEMA))
    return pa.concat_tables(tables)


def cells_and_bill(groups=60):
    """Cells of node time in whole seconds, and what their pools cost each hour; one group nobody held for any time."""
    rng = np.random.default_rng(5)
    sizes = rng.integers(1, 6, groups)
    group = np.repeat(np.arange(groups), sizes)
    seconds = np.where(group == 0, 0, rng.integers(0, 7, len(group)) * 600).astype(np.float64)
    cells = pa.table(
        {
            "pool": group % 4,
            "hour": group // 4,
            "cell": np.arange(len(group)),
            "workload": [f"team/w{number % 5}" for number in range(len(group))],
            "node_seconds": seconds,
        }
    )
    totals = rng.integers(0, 10**9, groups)
    billed = pa.table({"pool": np.arange(groups) % 4, "hour": np.arange(groups) // 4, "micro_usd": totals})
    return cells, billed, apportion_groups(totals, group, seconds)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("engine")
    cells, billed, _ = cells_and_bill()
    (folder / "samples").mkdir()
    samples = fleet_samples()
    pq.write_table(samples.slice(0, 2000), folder / "samples" / "a.parquet")
    pq.write_table(samples.slice(2000), folder / "samples" / "b.parquet")
    pq.write_table(cells, folder / "cells.parquet")
    pq.write_table(billed, folder / "billed.parquet")
    return folder


def rolled_up(engine, files):
    samples = complete_samples(engine.table(str(files / "samples")))
    return pa.concat_tables(rollup_spans(samples, engine.execute, step_s=STEP_S))


def allocated(engine, files):
    cells, billed = (engine.table(str(files / f"{name}.parquet")) for name in ("cells", "billed"))
    whole = allocation_expr(cells, billed)
    rows = engine.execute(whole.order_by("cell"))
    return rows, engine.execute(cost_by(whole, "workload").order_by("workload"))


def assert_same(left, right):
    assert left.column_names == right.column_names
    keys = [("hour", "ascending"), ("device", "ascending"), ("workload", "ascending")]
    left, right = left.sort_by(keys), right.sort_by(keys)
    for name in left.column_names:
        if left[name].type == pa.float64():
            mine, theirs = (table[name].to_numpy(zero_copy_only=False) for table in (left, right))
            np.testing.assert_allclose(mine, theirs, rtol=1e-12, err_msg=name)
        else:
            assert left[name].to_pylist() == right[name].to_pylist(), name


def test_a_rollup_by_spans_is_the_rollup_of_the_whole(files):
    with open_engine("duckdb://") as duckdb:
        assert_same(rolled_up(duckdb, files), rollup_samples(fleet_samples(), step_s=STEP_S))


@pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning")
@pytest.mark.timeout(900)
def test_spark_finds_what_duckdb_finds(spark_url, files):
    with open_engine(spark_url + SMALL) as spark, open_engine("duckdb://") as duckdb:
        assert_same(rolled_up(spark, files), rolled_up(duckdb, files))
        for ours, theirs in zip(allocated(spark, files), allocated(duckdb, files), strict=True):
            assert ours.to_pylist() == theirs.to_pylist()


def test_an_allocation_is_that_of_the_ledger_and_sums_to_the_bill(files):
    _, billed, expected = cells_and_bill()

    with open_engine("duckdb://") as duckdb:
        rows, by_workload = allocated(duckdb, files)

    assert rows["micro_usd"].to_pylist() == expected.tolist()
    assert sum(by_workload["micro_usd"].to_pylist()) == sum(billed["micro_usd"].to_pylist())


def test_money_of_an_hour_that_nobody_held_is_found():
    cells = ibis.memtable(pa.table({"pool": ["a"], "hour": [0], "cell": [0], "node_seconds": [3600]}))
    billed = ibis.memtable(pa.table({"pool": ["a", "a", "a"], "hour": [0, 1, 2], "micro_usd": [5, 7, 0]}))

    lost = unallocated_expr(cells, billed).to_pyarrow().to_pylist()

    assert lost == [{"pool": "a", "hour": 1, "micro_usd": 7}]


@pytest.mark.parametrize("dialect", WAREHOUSES)
def test_every_expression_is_sql_that_the_warehouse_parses(dialect):
    samples = ibis.table(ibis.Schema.from_pyarrow(SAMPLE_SCHEMA), name="samples")
    cells, billed, _ = cells_and_bill()
    tables = [
        ibis.table(ibis.Schema.from_pyarrow(one.schema), name=name) for one, name in ((cells, "c"), (billed, "b"))
    ]
    expressions = (
        usage_expr(samples),
        histogram_expr(hourly_samples(samples), KEYS, "activity"),
        allocation_expr(*tables),
        cost_by(allocation_expr(*tables), "workload"),
    )

    for expression in expressions:
        text = str(ibis.to_sql(expression, dialect=dialect))
        assert isinstance(sqlglot.parse_one(text, read=dialect), sqlglot.exp.Query)


@pytest.mark.parametrize(
    ("url", "said"), [("sparc://host", "did you mean spark://"), ("mysql://h", "is none of duckdb://")]
)
def test_an_engine_that_there_is_not_is_told_with_near_matches(url, said):
    with pytest.raises(UsageError, match=said), open_engine(url):
        pass


def test_options_of_the_url_reach_duckdb():
    with pytest.raises(UsageError, match="memory_limt"), open_engine("duckdb://?memory_limt=1GB"):
        pass


def test_samples_that_are_not_there_or_lack_their_device_are_told(tmp_path):
    pq.write_table(pa.table({"time": pa.array([START.replace(tzinfo=None)]), "power_w": [1.0]}), tmp_path / "s.parquet")

    with open_engine("duckdb://") as engine:
        with pytest.raises(InputError, match="no such file"):
            engine.table(str(tmp_path / "none.parquet"))
        with pytest.raises(BundleError, match="column device is missing"):
            complete_samples(engine.table(str(tmp_path / "s.parquet")))
        with pytest.raises(SourceError, match="DuckDB could not run"):
            engine.execute(ibis.table({"a": "int64"}, name="nothing"))


def test_the_command_writes_a_table_of_a_bundle(files, tmp_path, capsys):
    out = tmp_path / "fleet" / "gpu_usage.parquet"

    with pytest.raises(SystemExit) as stopped:
        main(["rollup", str(files / "samples"), "--step", "60", "--out", str(out)])

    assert stopped.value.code == 0
    assert "by DuckDB" in capsys.readouterr().out
    assert_same(pq.read_table(out), rollup_samples(fleet_samples(), step_s=STEP_S))


def test_samples_that_are_no_parquet_are_told(tmp_path):
    (tmp_path / "s.parquet").write_bytes(b"PAR1 and no more PAR1")

    with open_engine("duckdb://") as engine, pytest.raises(InputError, match="not readable as Parquet"):
        engine.table(str(tmp_path / "s.parquet"))
