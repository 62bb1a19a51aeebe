"""A collect that is killed goes on where it stopped."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.e2e.conftest import END
from tests.e2e.generated_fleet import DAYS, START

from trimtab.cli import main
from trimtab.sources.prometheus.client import Prometheus

pytestmark = pytest.mark.prometheus
DAY_SPANS = 1000
"""Values a span that make spans of a day for a fleet of 26 GPUs."""


def arguments(url, out):
    return ["collect", "-p", url, "--from", f"{START:%Y-%m-%d}", "--to", f"{END:%Y-%m-%d}", "--out", str(out), "-q"]


def spans(folder):
    return sorted(path.name for path in folder.rglob("*.parquet"))


def until(found, what):
    for _ in range(6000):
        if found():
            return
        time.sleep(0.02)
    raise TimeoutError(what)


def rows_of(folder):
    keys = [("hour", "ascending"), ("device", "ascending"), ("workload", "ascending")]
    return pq.read_table(folder / "gpu_usage.parquet").sort_by(keys)


def assert_same_rows(left, right):
    """The same to the last digits: the server adds a little differently where a query covers other hours."""
    for name in left.column_names:
        if left[name].type == pa.float64():
            mine, theirs = (table[name].to_numpy(zero_copy_only=False) for table in (left, right))
            np.testing.assert_allclose(mine, theirs, rtol=1e-12)
        else:
            assert left[name].to_pylist() == right[name].to_pylist()


def test_a_killed_collect_goes_on_where_it_stopped(prometheus_server, collected_bundle, tmp_path, monkeypatch):
    out, journal = tmp_path / "fleet", tmp_path / ".fleet.collecting"
    program = (
        f"import sys; from trimtab.sources.prometheus import gpu_usage; gpu_usage.VALUES_PER_SPAN = {DAY_SPANS}\n"
        "from trimtab.cli import main; main(sys.argv[1:])"
    )
    command = [sys.executable, "-c", program, *arguments(prometheus_server.url, out)]
    sources = os.pathsep.join(("src", "packages/runtime/src"))
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": sources}) as process:
        until(lambda: len(spans(journal)) >= 3, "no span was kept")
        process.send_signal(signal.SIGKILL)
    kept = spans(journal)
    assert not out.exists()

    asked = []
    monkeypatch.setattr("trimtab.sources.prometheus.gpu_usage.VALUES_PER_SPAN", DAY_SPANS)
    original = Prometheus.range
    monkeypatch.setattr(
        Prometheus, "range", lambda self, query, *times: asked.append((query, times)) or original(self, query, *times)
    )
    with pytest.raises(SystemExit) as stopped:
        main(arguments(prometheus_server.url, out))

    hours = {float(times[0]) for query, times in asked if "quantile_over_time(0.95" in query}
    assert stopped.value.code == 0
    assert len(hours) == DAYS - len(kept)
    assert_same_rows(rows_of(out), rows_of(collected_bundle.path))
    assert not journal.exists()
