"""What rollups are held against: quantiles straight from a histogram, and samples in memory rolled up on an embedded DuckDB."""

import duckdb
import ibis
import numpy as np

from trimtab.tables.rollup import SAMPLE_SCHEMA, rollup


def histogram_quantile(histogram, quantile):
    """Return the value in 0..1 of the smallest bin that reaches the quantile; None where nothing was counted."""
    total = int(histogram.sum())
    if total == 0:
        return None
    rank = max(1, int(np.ceil(quantile * total)))
    return float(np.searchsorted(np.cumsum(histogram), rank)) / (len(histogram) - 1)


def rollup_samples(samples, *, step_s):
    """Roll up samples held in memory; see `rollup`."""
    named = ibis.table(ibis.Schema.from_pyarrow(SAMPLE_SCHEMA), name="samples")
    with duckdb.connect(config={"autoinstall_known_extensions": False}) as connection:
        connection.register("samples", samples.cast(SAMPLE_SCHEMA))

        def execute(expression):
            return connection.sql(ibis.to_sql(expression, dialect="duckdb")).to_arrow_table()

        return rollup(named, execute, step_s=step_s, basis="raw samples")
