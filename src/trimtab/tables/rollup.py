"""Raw samples -> hourly `gpu_usage` rows with mergeable 101-bin histograms, as Ibis expressions.

Bin i counts the readings with floor(100 * value + 1/2) == i; readings that are null, NaN or outside 0..1 count nowhere. A
quantile is the smallest bin whose cumulative count reaches q of the readings, so that it lies within half a bin of the exact
discrete quantile, and histograms of parts add up to the histogram of the whole. The expressions use counts, sums and one
window only, which every SQL dialect of Ibis has (exact quantiles are missing from several).

An engine runs them, chosen by a URL:

duckdb://                                    in this process (the default); ?threads=2&memory_limit=4GB
duckdb:///path/to/file.duckdb                the same over a database file
spark://HOST:7077                            a standalone Spark cluster; ?spark.executor.memory=8g
spark://local                                Spark in this process
clickhouse:// bigquery:// snowflake:// trino://  a warehouse that holds the samples, through Ibis' own driver

A long history is rolled up a bounded span of hours at a time: what a span yields fits memory, whatever the window. The
`gpu_usage` table is written span by span: complete, or not there.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, parse_qsl, urlsplit

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from trimtab.errors import BundleError, Fault, InputError, SourceError, UsageError, near_matches
from trimtab.tables.arrow import arrow_schema, conform
from trimtab.tables.schemas import HISTOGRAM_BINS
from trimtab.units import HR_PER_DAY, S_PER_HR

if TYPE_CHECKING:
    import ibis.expr.types as ir

DEFAULT_ENGINE = "duckdb://"
WAREHOUSES = ("clickhouse", "bigquery", "snowflake", "trino")
"""Dialects that the expressions are compiled for and parsed in by the tests; running them needs Ibis' driver."""
_SCHEMES = ("duckdb", "spark", *WAREHOUSES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """An open engine: how to name a table that it can see, and how to run an expression on it."""

    name: str
    table: Callable[[str], ir.Table]
    """A Parquet file, a folder or pattern of them, or the name of a table that the engine holds."""
    execute: Callable[[ir.Table], pa.Table]


@contextmanager
def open_engine(url: str = DEFAULT_ENGINE) -> Iterator[Engine]:
    """Open the engine that a URL names. Raises UsageError for a scheme that no engine has, SourceError where it fails."""
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query))
    if parts.scheme == "duckdb":
        with _duckdb(parts.path, options) as engine:
            yield engine
    elif parts.scheme == "spark":
        with _spark(parts, options) as engine:
            yield engine
    elif parts.scheme in WAREHOUSES:
        yield _warehouse(parts.scheme, url)
    else:
        near = near_matches(parts.scheme, _SCHEMES)
        hint = f"; did you mean {near[0]}://?" if near else ""
        raise UsageError(f"--engine {url!r} is none of {', '.join(f'{name}://' for name in _SCHEMES)}{hint}")


@contextmanager
def _duckdb(path: str, options: Mapping[str, str]) -> Iterator[Engine]:
    import duckdb
    import ibis

    config: dict[str, str | bool | int | float | list[str]] = {"autoinstall_known_extensions": False, **options}
    try:
        connection = duckdb.connect(path or ":memory:", config=config)
    except duckdb.Error as error:
        raise UsageError(f"--engine duckdb://{path}: {error}") from error
    with connection:
        views = count()

        def table(place: str) -> ir.Table:
            try:
                relation = connection.read_parquet(files_of(place)) if is_file(place) else connection.table(place)
                name = f"files_{next(views)}" if is_file(place) else place
                if is_file(place):
                    relation.create_view(name)
                schema = relation.limit(0).to_arrow_table().schema
            except duckdb.Error as error:
                what = "not readable as Parquet" if is_file(place) else "no table of the engine"
                raise InputError(f"{place}: {what} ({str(error).splitlines()[0]}); write it again") from error
            return ibis.table(ibis.Schema.from_pyarrow(schema), name=name)

        def execute(expression: ir.Table) -> pa.Table:
            try:
                return connection.sql(str(ibis.to_sql(expression, dialect="duckdb"))).to_arrow_table()
            except duckdb.Error as error:
                raise SourceError(f"DuckDB could not run the query: {error}") from error

        yield Engine(name="DuckDB", table=table, execute=execute)


@contextmanager
def _spark(parts: SplitResult, options: Mapping[str, str]) -> Iterator[Engine]:
    """Open a session of ours on a cluster, and close it; the zone is UTC, in which hours are cut."""
    import ibis

    try:
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise UsageError("--engine spark:// needs PySpark and Java 17: pip install 'trimtab[spark]'") from error
    master = "local[*]" if parts.netloc == "local" else f"spark://{parts.netloc}"
    builder = SparkSession.builder.master(master).appName("trimtab").config("spark.sql.session.timeZone", "UTC")
    builder = builder.config("spark.ui.showConsoleProgress", "false").config("spark.ui.enabled", "false")
    for key, value in options.items():
        builder = builder.config(key, value)
    with _quiet():
        try:
            session = builder.getOrCreate()
        except (PySparkException, OSError, RuntimeError) as error:
            raise SourceError(
                f"no Spark session on {master}: {error}; is Java 17 there, does the master run?"
            ) from error
        try:
            backend = ibis.pyspark.connect(session)

            def table(place: str) -> ir.Table:
                return backend.read_parquet(place) if is_file(place) else backend.table(place)

            def execute(expression: ir.Table) -> pa.Table:
                try:
                    return session.sql(backend.compile(expression)).toArrow()
                except PySparkException as error:
                    raise SourceError(f"Spark could not run the query: {error}") from error

            yield Engine(name=f"Spark at {master}", table=table, execute=execute)
        finally:
            session.stop()


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence what PySpark says of pandas: no pandas frame is made here."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")
        yield


def _warehouse(scheme: str, url: str) -> Engine:
    import ibis

    try:
        backend = ibis.connect(url)
    except ImportError as error:
        raise UsageError(
            f"--engine {scheme}:// needs Ibis' driver: pip install 'ibis-framework[{scheme}]' ({error})"
        ) from error
    return Engine(name=scheme, table=backend.table, execute=backend.to_pyarrow)


def is_file(place: str) -> bool:
    """Return whether a place is Parquet on disk or in a store, rather than the name of a table."""
    return "/" in place or place.endswith(".parquet") or Path(place).exists()


def files_of(place: str) -> str:
    """Return the pattern of a place's Parquet files. Raises InputError if a local place has none."""
    if "://" in place or "*" in place:
        return place
    path = Path(place)
    if path.is_dir():
        if not next(path.rglob("*.parquet"), None):
            raise InputError(f"{place} holds no .parquet file; write samples as Parquet, one row per device and scrape")
        return str(path / "**" / "*.parquet")
    if not path.is_file():
        raise InputError(f"{place}: no such file; give a Parquet file, a folder of them or a table of the engine")
    return place


SIGNALS = ("gpu_util", "sm_active", "tensor_active", "dram_active")
KEYS = ("device", "workload", "hour")
_TOP_BIN = HISTOGRAM_BINS - 1
_QUANTILES = {"p50": 0.50, "p95": 0.95}
SAMPLE_SCHEMA = pa.schema(
    [
        ("device", pa.string()),
        ("workload", pa.string()),
        ("time", pa.timestamp("us")),
        *((signal, pa.float64()) for signal in SIGNALS),
        ("memory_used_gib", pa.float64()),
        ("power_w", pa.float64()),
    ]
)
"""Raw samples: one row per device and scrape; time in UTC; shares in 0..1; a missing reading is null.

The time carries no zone because engines truncate zoned times in the session's zone (DuckDB needs an extension for that).
"""


def histogram_of(values: Iterable[float]) -> npt.NDArray[np.int64]:
    """Return the 101-bin histogram of readings; those outside 0..1 and NaN count nowhere."""
    numbers = np.asarray(list(values), dtype=np.float64)
    numbers = numbers[(numbers >= 0.0) & (numbers <= 1.0)]
    bins = np.floor(numbers * _TOP_BIN + 0.5).astype(np.int64)
    return np.asarray(np.bincount(bins, minlength=HISTOGRAM_BINS), dtype=np.int64)


def histogram_expr(samples: ir.Table, keys: Sequence[str], signal: str) -> ir.Table:
    """Return the long histogram of a signal: keys, `bin`, its `count`, `sum` and `max`, and the counts up to it and in all."""
    import ibis

    value = samples[signal]
    binned = samples.filter(value.between(0.0, 1.0)).mutate(bin=(value * _TOP_BIN + 0.5).floor().cast("int16"))
    readings = binned[signal]
    counted = binned.group_by([*keys, "bin"]).aggregate(count=binned.count(), sum=readings.sum(), max=readings.max())
    upto = ibis.window(group_by=list(keys), order_by="bin", preceding=None, following=0)
    whole = ibis.window(group_by=list(keys))
    return counted.mutate(upto=counted["count"].sum().over(upto), total=counted["count"].sum().over(whole))


def statistics_expr(histogram: ir.Table, keys: Sequence[str], signal: str) -> ir.Table:
    """Return one row per key with a signal's mean, p50, p95 and max, from its long histogram: one pass over the samples."""
    aggregates = {f"{signal}_mean": histogram["sum"].sum() / histogram["count"].sum()}
    for name, quantile in _QUANTILES.items():
        reached = histogram["upto"] >= histogram["total"] * quantile
        aggregates[f"{signal}_{name}"] = histogram["bin"].min(where=reached) / float(_TOP_BIN)
    aggregates[f"{signal}_max"] = histogram["max"].max()
    return histogram.group_by(list(keys)).aggregate(**aggregates)


def usage_expr(samples: ir.Table) -> ir.Table:
    """Return the hourly statistics of raw samples (no histograms yet), one row per device, workload and hour."""
    hourly = hourly_samples(samples)
    result = _plain_statistics(hourly)
    for signal in SIGNALS:
        statistics = statistics_expr(histogram_expr(hourly, KEYS, signal), KEYS, signal)
        joined = result.left_join(statistics, _same_keys(result, statistics))
        result = joined.select(result, *(statistics[name] for name in statistics.columns if name not in KEYS))
    return result


def hourly_samples(samples: ir.Table) -> ir.Table:
    """Return the samples with their `hour`, and `activity`: the best activity signal present (sm_active, else gpu_util)."""
    return samples.mutate(
        hour=samples["time"].truncate("h"), activity=samples["sm_active"].coalesce(samples["gpu_util"])
    )


def _plain_statistics(hourly: ir.Table) -> ir.Table:
    aggregates = {"samples": hourly["time"].nunique()}
    for column, unit in (("memory_used", "gib"), ("power", "w")):
        value = hourly[f"{column}_{unit}"]
        aggregates[f"{column}_{unit}_mean"] = value.mean(where=value >= 0.0)
    aggregates["memory_used_gib_max"] = hourly["memory_used_gib"].max(where=hourly["memory_used_gib"] >= 0.0)
    return hourly.group_by(list(KEYS)).aggregate(**aggregates)


def _same_keys(left: ir.Table, right: ir.Table) -> list[ir.BooleanValue]:
    """Join on the keys, where an unallocated device's null workload equals itself."""
    return [
        left["device"] == right["device"],
        left["hour"] == right["hour"],
        left["workload"].identical_to(right["workload"]),
    ]


def rollup(
    samples: ir.Table, execute: Callable[[ir.Table], pa.Table], *, step_s: float, basis: str = "raw samples"
) -> pa.Table:
    """Run the rollup where the samples live and return `gpu_usage` rows.

    `samples` has the columns of `SAMPLE_SCHEMA`; `execute` runs an expression on the engine that holds them; `step_s` is the
    scrape interval, which says how many samples a full hour has.
    """
    statistics = execute(usage_expr(samples).order_by(list(KEYS)))
    long = execute(histogram_expr(hourly_samples(samples), KEYS, "activity").select(*KEYS, "bin", "count"))
    rows = statistics.num_rows
    utc = statistics.column("hour").cast(pa.timestamp("us")).cast(pa.timestamp("us", tz="UTC"))
    table = statistics.set_column(statistics.column_names.index("hour"), "hour", utc)
    table = table.append_column("samples_expected", pa.array([round(S_PER_HR / step_s)] * rows, type=pa.int64()))
    table = table.append_column("activity_histogram", dense_histograms(statistics, long))
    return conform("gpu_usage", table.append_column("basis", pa.array([basis] * rows, type=pa.string())))


def dense_histograms(rows: pa.Table, long: pa.Table) -> pa.Array:
    """Return for each row of `rows` its 101 counts from a long histogram (keys, bin, count); null if there are none."""
    index = {key: at for at, key in enumerate(_keys_of(rows))}
    dense = np.zeros((rows.num_rows, HISTOGRAM_BINS), dtype=np.int64)
    at = np.fromiter((index[key] for key in _keys_of(long)), dtype=np.int64, count=long.num_rows)
    dense[at, long.column("bin").to_numpy()] = long.column("count").to_numpy()
    offsets = np.arange(rows.num_rows + 1, dtype=np.int32) * HISTOGRAM_BINS
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(dense.ravel()), mask=pa.array(dense.sum(axis=1) == 0))


def _keys_of(table: pa.Table) -> Iterable[tuple[object, ...]]:
    columns = (table.column("device").to_pylist(), table.column("workload").to_pylist())
    hours = table.column("hour").cast(pa.timestamp("us")).to_numpy()
    return zip(*columns, hours.tolist(), strict=True)


Execute = Callable[["ir.Table"], pa.Table]

_REQUIRED = ("device", "time")
_ROWS_PER_SPAN = 100_000
"""Rows of `gpu_usage` that a span may have: about 80 MB of histograms."""


def complete_samples(samples: ir.Table) -> ir.Table:
    """Return samples with every column of `SAMPLE_SCHEMA`, those that are missing null, in its types.

    Raises BundleError if the device or the time is missing, or no reading is there.
    """
    import ibis

    wanted = ibis.Schema.from_pyarrow(SAMPLE_SCHEMA)
    missing = [name for name in _REQUIRED if name not in samples.columns]
    readings = [name for name in wanted if name in samples.columns and name not in (*_REQUIRED, "workload")]
    if missing or not readings:
        what = f"column {missing[0]} is missing" if missing else "no column is a reading"
        cure = f"name the columns {', '.join(wanted)}"
        raise BundleError([Fault(what=what, where="samples", value=", ".join(samples.columns), cure=cure)])
    columns = {
        name: (samples[name] if name in samples.columns else ibis.null()).cast(dtype) for name, dtype in wanted.items()
    }
    return samples.select(**columns)


def rollup_spans(samples: ir.Table, execute: Execute, *, step_s: float) -> Iterator[pa.Table]:
    """Yield the `gpu_usage` rows of successive spans of whole hours, made where the samples live.

    The span is chosen so that it has at most about 100,000 rows. Raises InputError if there are no samples.
    """
    whole = execute(
        samples.aggregate(first=samples["time"].min(), last=samples["time"].max(), devices=samples["device"].nunique())
    ).to_pylist()[0]
    if whole["first"] is None:
        raise InputError("there are no samples to roll up; is the place right, and the window?")
    span = timedelta(hours=max(1, min(_ROWS_PER_SPAN // max(1, whole["devices"]), HR_PER_DAY)))
    start = _naive(whole["first"]).replace(minute=0, second=0, microsecond=0)
    while start <= _naive(whole["last"]):
        time = samples["time"]
        yield rollup(samples.filter(time >= start, time < start + span), execute, step_s=step_s)
        start += span


def _naive(moment: datetime) -> datetime:
    return moment.replace(tzinfo=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What a table holds."""

    rows: int
    hours: int


def write_usage(path: Path, pieces: Iterable[pa.Table]) -> Written:
    """Write pieces of `gpu_usage` to one Parquet file, which takes its name when it is whole."""
    rows = hours = 0
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.partial")
    try:
        with pq.ParquetWriter(fresh, arrow_schema("gpu_usage")) as writer:
            for piece in pieces:
                writer.write_table(piece)
                rows += piece.num_rows
                hours += pc.count_distinct(piece.column("hour")).as_py()
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)
    return Written(rows=rows, hours=hours)
