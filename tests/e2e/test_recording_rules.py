"""Recording rules in a real Prometheus: it accepts them, runs them, and a collect reads what they recorded.

Time cannot be waited for, so the rules' own expressions are evaluated at the moments at which a server would, and their results
are stored under the names that they record.
"""

import subprocess
from datetime import UTC, datetime

import httpx
import pytest
import yaml
from tests.e2e.conftest import RunningPrometheus, backfill_text
from tests.e2e.generated_fleet import START

from trimtab.cli import main
from trimtab.sources.hour_grid import HourGrid
from trimtab.sources.prometheus.client import Prometheus
from trimtab.sources.prometheus.collect import collect_prometheus
from trimtab.tables.bundle import memory_bundle
from trimtab.tables.checks import check_bundle

pytestmark = pytest.mark.prometheus
WINDOW = HourGrid(start_s=int(START.timestamp()) + 24 * 3600, hours=5)
OFFSET_S = 1234
"""When within an hour the server happens to run the rules."""


@pytest.fixture(scope="module")
def rules(prometheus_server, tmp_path_factory):
    file = tmp_path_factory.mktemp("rules") / "rules.yaml"
    end = "2026-09-03"
    with pytest.raises(SystemExit) as stopped:
        main(["collect", "-p", prometheus_server.url, "--to", end, "--recording-rules", str(file)])
    assert stopped.value.code == 0
    return file


@pytest.fixture(scope="module")
def recorded(rules, prometheus_server, prometheus_data, prometheus_bin, promtool_bin, tmp_path_factory):
    """A server that holds the readings and a day of what the rules record of them."""
    lines = [line for rule in rules_of(rules) for line in record(rule, prometheus_server.url)]
    folder = tmp_path_factory.mktemp("recorded")
    backfill_text("".join(lines), promtool_bin, folder / "blocks")
    server = RunningPrometheus(prometheus_bin, prometheus_data, folder)
    for block in (folder / "blocks").iterdir():
        block.rename(folder / "data" / block.name)
    server.start()
    yield server
    server.stop()


def rules_of(file):
    return [rule for group in yaml.safe_load(file.read_text())["groups"] for rule in group["rules"]]


def record(rule, url):
    """What a server records of a rule that it runs once an hour: rules are instant queries."""
    for hour in range(WINDOW.hours):
        at = WINDOW.start_s + 3600 * (hour + 1) + OFFSET_S
        answer = httpx.post(f"{url}/api/v1/query", data={"query": rule["expr"], "time": at}, timeout=60).json()
        for series in answer["data"]["result"]:
            labels = ",".join(f'{key}="{value}"' for key, value in series["metric"].items())
            yield f"{rule['record']}{{{labels}}} {series['value'][1]} {at}\n"


def collected(url, raw_sample_limit, hours=WINDOW.hours):
    asked = []
    with Prometheus(url) as server:
        original = server.range
        server.range = lambda query, *times: asked.append(query) or original(query, *times)
        start, end = (datetime.fromtimestamp(at, UTC) for at in (WINDOW.start_s, WINDOW.start_s + hours * 3600))
        found = collect_prometheus(server, start, end, raw_sample_limit=raw_sample_limit)
    check_bundle(memory_bundle(found.tables, found.meta))
    return found.tables["gpu_usage"].sort_by([("hour", "ascending"), ("device", "ascending")]), asked


def test_promtool_finds_nothing_wrong_with_the_rules(rules, promtool_bin):
    done = subprocess.run([promtool_bin, "check", "rules", str(rules)], capture_output=True, text=True)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "SUCCESS" in done.stdout


def test_a_collect_reads_what_was_recorded_and_finds_the_same(recorded, prometheus_server):
    ruled, asked = collected(recorded.url, raw_sample_limit=0)
    pushed, _ = collected(prometheus_server.url, raw_sample_limit=10_000_000)

    assert not [query for query in asked if "quantile_over_time" in query]
    plain = [name for name in ruled.column_names if name not in ("activity_histogram", "basis")]
    assert_close(ruled.select(plain), pushed.select(plain))
    assert set(ruled["basis"].to_pylist()) == {"recording rules"}


def test_recorded_histograms_count_each_reading_once(recorded, prometheus_server):
    ruled, _ = collected(recorded.url, raw_sample_limit=0)
    raw, _ = collected(prometheus_server.url, raw_sample_limit=10_000_000)

    moved = 0
    for left, right in zip(ruled["activity_histogram"].to_pylist(), raw["activity_histogram"].to_pylist(), strict=True):
        assert abs(sum(left) - sum(right)) <= 1
        moved = max(moved, sum(abs(a - b) for a, b in zip(left, right, strict=True)))
    # A scrape at the edge of an hour may count in the one before: one reading in, one out.
    assert moved <= 2


def test_an_hour_that_the_rules_have_not_recorded_yet_is_pushed_down(recorded, prometheus_server):
    ruled, _ = collected(recorded.url, raw_sample_limit=0, hours=WINDOW.hours + 1)
    pushed, _ = collected(prometheus_server.url, raw_sample_limit=0, hours=WINDOW.hours + 1)

    plain = [name for name in ruled.column_names if name not in ("activity_histogram", "basis")]
    assert_close(ruled.select(plain), pushed.select(plain))
    bases = {
        (hour.hour, basis) for hour, basis in zip(*(ruled[name].to_pylist() for name in ("hour", "basis")), strict=True)
    }
    assert bases == {(hour, "recording rules") for hour in range(WINDOW.hours)} | {(WINDOW.hours, "pushed down")}


def assert_close(left, right):
    assert left.num_rows == right.num_rows
    for name in left.column_names:
        for mine, theirs in zip(left[name].to_pylist(), right[name].to_pylist(), strict=True):
            assert mine == (pytest.approx(theirs, abs=1e-9) if isinstance(theirs, float) else theirs), name
