"""Engines for heavy steps: a URL chooses the engine; the Ibis expressions stay the same.

duckdb://                                    in this process (the default); ?threads=2&memory_limit=4GB
duckdb:///path/to/file.duckdb                the same over a database file
spark://HOST:7077                            a standalone Spark cluster; ?spark.executor.memory=8g
spark://local                                Spark in this process
clickhouse:// bigquery:// snowflake:// trino://  a warehouse that holds the samples, through Ibis' own driver
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, parse_qsl, urlsplit

import pyarrow as pa

from trimtab.errors import InputError, SourceError, UsageError, near_matches

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
