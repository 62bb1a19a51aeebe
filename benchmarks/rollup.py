"""The rollup against a hand-written SQL of the same statistic and against exact quantiles, on 100 million wide rows.

    python -m benchmarks.rollup [--data FOLDER] [--rows 100000000] [--threads 2]

The statistic: mean, p50 and p95 of SM activity by workload and hour (about 67,000 groups). The rows are generated once
(seeded)
into FOLDER as Parquet. Each way runs in a process of its own, so that CPU seconds (of the
query; `process_cpu_s` has the imports and the compilation too) and peak memory are its own.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from trimtab.units import MIB_PER_GIB, S_PER_HR

ROWS = 100_000_000
WORKLOADS = 200
HOURS = 336
WAYS = ("hand_written", "ours", "exact")

HAND_WRITTEN = """
WITH binned AS (
    SELECT workload, hour, CAST(floor(sm_active * 100 + 0.5) AS SMALLINT) AS bin,
           count(*) AS n, sum(sm_active) AS total
    FROM (SELECT workload, date_trunc('hour', time) AS hour, sm_active FROM samples)
    WHERE sm_active BETWEEN 0 AND 1
    GROUP BY ALL
), ranked AS (
    SELECT *, sum(n) OVER (PARTITION BY workload, hour ORDER BY bin) AS upto,
           sum(n) OVER (PARTITION BY workload, hour) AS whole
    FROM binned
)
SELECT workload, hour, sum(total) / sum(n) AS sm_active_mean,
       min(bin) FILTER (WHERE upto >= whole * 0.5) / 100.0 AS sm_active_p50,
       min(bin) FILTER (WHERE upto >= whole * 0.95) / 100.0 AS sm_active_p95
FROM ranked GROUP BY ALL
"""
"""Written before the Ibis expressions were; the comparator of `cpu_ratio`."""

EXACT = """
SELECT workload, hour, mean AS sm_active_mean, middle[1] AS sm_active_p50, middle[2] AS sm_active_p95
FROM (
    SELECT workload, date_trunc('hour', time) AS hour, avg(sm_active) AS mean,
           quantile_cont(sm_active, [0.5, 0.95]) AS middle
    FROM samples GROUP BY ALL
)
"""

GENERATE = """
COPY (
    SELECT 'team/' || (i % {workloads}) AS workload,
           'GPU-' || (i % 4000) AS device,
           TIMESTAMP '2026-09-01' + INTERVAL (CAST(i / {rows} * {seconds} AS BIGINT)) SECOND AS time,
           pow(hash(i) / 18446744073709551615.0, 1 + (i % {workloads}) / 50.0) AS sm_active,
           hash(i + 1) / 18446744073709551615.0 AS tensor_active,
           hash(i + 2) / 18446744073709551615.0 AS dram_active,
           hash(i + 3) / 18446744073709551615.0 AS gpu_util,
           CAST(30 + 10 * (hash(i + 4) / 18446744073709551615.0) AS DOUBLE) AS memory_used_gib,
           CAST(100 + 300 * (hash(i + 5) / 18446744073709551615.0) AS DOUBLE) AS power_w
    FROM range({rows}) AS numbers(i)
) TO '{path}' (FORMAT parquet, COMPRESSION snappy)
"""


def main() -> None:
    """Generate the rows, run each way, print what they took and how far apart their answers are."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("build/benchmarks"))
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    samples = options.data / f"samples-{options.rows}.parquet"
    if options.way:
        print(json.dumps(_run(options.way, samples, options.threads)))
        return
    if not samples.is_file():
        _generate(samples, options.rows)
    results = {way: _apart(way, options.data, options.rows, options.threads) for way in WAYS}
    print(json.dumps(_summary(results, samples, options.rows)))


def _generate(path: Path, rows: int) -> None:
    print(f"generating {rows:,} rows ...", flush=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    with duckdb.connect(config={"memory_limit": "2GB", "autoinstall_known_extensions": False}) as connection:
        seconds = HOURS * S_PER_HR
        connection.execute(GENERATE.format(rows=rows, workloads=WORKLOADS, seconds=seconds, path=path))


def _apart(way: str, data: Path, rows: int, threads: int) -> dict[str, float]:
    """Run one way in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.rollup", "--way", way, "--data", str(data)]
    done = subprocess.run(
        [*command, "--rows", str(rows), "--threads", str(threads)], check=True, capture_output=True, text=True
    )
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    print(f"{way:<14} {result}", flush=True)
    return result


def _run(way: str, samples: Path, threads: int) -> dict[str, float]:
    began = time.monotonic()
    config: dict[str, str | bool | int | float | list[str]] = {
        "threads": threads,
        "memory_limit": "10GB" if way == "exact" else "700MB",
        "temp_directory": str(samples.with_suffix(".spill")),
        "autoinstall_known_extensions": False,
    }
    with duckdb.connect(config=config) as connection:
        connection.execute(f"CREATE VIEW samples AS SELECT * FROM read_parquet('{samples}')")
        sql = _sql(way)
        before_cpu_s = _cpu_s()
        table = connection.sql(sql).order("workload, hour").to_arrow_table()
        query_cpu_s = _cpu_s() - before_cpu_s
    pq.write_table(table, samples.with_name(f"answer-{way}.parquet"))
    return {
        "wall_s": round(time.monotonic() - began, 2),
        "cpu_s": round(query_cpu_s, 2),
        "process_cpu_s": round(_cpu_s(), 2),
        "rss_gib": round(peak_gib(), 3),
        "groups": table.num_rows,
    }


def peak_gib() -> float:
    """Return the peak memory of this process (getrusage would count what the parent held at the fork)."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    kib = next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))
    return int(kib) / MIB_PER_GIB / MIB_PER_GIB


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _sql(way: str) -> str:
    if way != "ours":
        return HAND_WRITTEN if way == "hand_written" else EXACT
    import ibis

    from trimtab.tables.rollup import SAMPLE_SCHEMA, histogram_expr, hourly_samples, statistics_expr

    samples = ibis.table(ibis.Schema.from_pyarrow(SAMPLE_SCHEMA), name="samples")
    keys = ("workload", "hour")
    statistics = statistics_expr(histogram_expr(hourly_samples(samples), keys, "sm_active"), keys, "sm_active")
    return str(ibis.to_sql(statistics, dialect="duckdb"))


def _summary(results: dict[str, dict[str, float]], samples: Path, rows: int) -> dict[str, object]:
    answers = {way: pq.read_table(samples.with_name(f"answer-{way}.parquet")) for way in WAYS}
    return {
        "benchmark": "rollup",
        "data": str(samples),
        "rows": rows,
        "groups": int(results["ours"]["groups"]),
        "cpu_ratio": round(results["ours"]["cpu_s"] / results["hand_written"]["cpu_s"], 3),
        "cpu_ratio_to_exact": round(results["ours"]["cpu_s"] / results["exact"]["cpu_s"], 3),
        "rss_gib": results["ours"]["rss_gib"],
        "cpu_s": {way: result["cpu_s"] for way, result in results.items()},
        "largest_difference_to_hand_written": _difference(answers, "hand_written"),
        "largest_difference_to_exact": _difference(answers, "exact"),
    }


def _difference(answers: dict[str, pa.Table], other: str) -> float:
    """Return the largest difference of any statistic of any group."""
    largest = 0.0
    for name in ("sm_active_mean", "sm_active_p50", "sm_active_p95"):
        left, right = (answers[way].column(name).to_numpy() for way in ("ours", other))
        largest = max(largest, float(np.abs(left - right).max()))
    return round(largest, 6)


if __name__ == "__main__":
    main()
