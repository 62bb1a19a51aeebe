"""Two clusters with the same names behind one server, told apart by a label, and behind two."""

from datetime import UTC, datetime

import pyarrow.parquet as pq
import pytest
from tests.e2e.conftest import RunningPrometheus, backfill_text

from trimtab.cli import main

pytestmark = pytest.mark.prometheus
START = datetime(2026, 9, 1, tzinfo=UTC)
STEPS = 180


def series(cluster, uuid, value):
    """Three hours of a GPU on node `n0` under pod `ml/run-0`; each cluster has such a one."""
    labels = f'UUID="{uuid}",gpu="0",modelName="Tesla T4",hostname="n0",namespace="ml",pod="run-0",cluster="{cluster}"'
    first = int(START.timestamp())
    return "".join(f"DCGM_FI_PROF_SM_ACTIVE{{{labels}}} {value} {first + 60 * step}\n" for step in range(STEPS))


@pytest.fixture(scope="module")
def server(prometheus_bin, promtool_bin, tmp_path_factory):
    folder = tmp_path_factory.mktemp("clusters")
    backfill_text(series("east", "GPU-a", 0.25) + series("west", "GPU-b", 0.75), promtool_bin, folder / "blocks")
    running = RunningPrometheus(prometheus_bin, folder / "blocks", folder)
    running.start()
    yield running
    running.stop()


def collect(*arguments, out):
    window = ("--from", "2026-09-01T00:00:00Z", "--to", "2026-09-01T03:00:00Z")
    with pytest.raises(SystemExit) as stopped:
        main(["collect", *arguments, *window, "--out", str(out), "-q"])
    return stopped.value.code


def means(out):
    rows = pq.read_table(out / "gpu_usage.parquet", columns=["workload", "device", "sm_active_mean"]).to_pylist()
    return {(row["workload"], row["device"]): row["sm_active_mean"] for row in rows}


def test_a_label_of_a_central_server_tells_clusters_apart(server, tmp_path):
    assert collect("-p", server.url, "--cluster-label", "cluster", out=tmp_path / "fleet") == 0

    assert means(tmp_path / "fleet") == {("ml/run@east", "GPU-a"): 0.25, ("ml/run@west", "GPU-b"): 0.75}
    nodes = pq.read_table(tmp_path / "fleet" / "nodes.parquet")["node"].to_pylist()
    assert sorted(nodes) == ["n0@east", "n0@west"]


def test_servers_that_are_named_are_collected_one_after_another(server, tmp_path):
    here, there = f"a={server.url}", f"b={server.url.replace('127.0.0.1', 'localhost')}"

    assert collect("-p", here, "-p", there, "-l", 'cluster="east"', out=tmp_path / "fleet") == 0

    assert means(tmp_path / "fleet") == {("ml/run@a", "GPU-a"): 0.25, ("ml/run@b", "GPU-a"): 0.25}


def test_two_servers_of_one_name_are_a_usage_error(server, tmp_path):
    assert collect("-p", server.url, "-p", server.url, out=tmp_path / "fleet") == 2
