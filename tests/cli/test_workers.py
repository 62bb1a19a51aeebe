"""Workers of a real Dask cluster, a scheduler and two processes: the plan is that of one process, also where one is killed."""

import os
import signal
import socket
import sys
import threading
import time

import pytest
from benchmarks.workers import Cluster
from tests.fleets import FleetRows

from trimtab.cli import main, workers
from trimtab.cli.workers import open_workers
from trimtab.emit.audit_document import audit_document
from trimtab.errors import SourceError, UsageError
from trimtab.pipeline import PlanningInput, audit
from trimtab.pipeline.auditing import audited
from trimtab.plan import needed_replays

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:distributed", "ignore::ResourceWarning")
DAYS = 9
HOURS = DAYS * 24
LE_S = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0, float("inf"))


def fleet():
    """Two services that are at work by day, runs, and a notebook."""
    rows = FleetRows(DAYS)
    for name in ("chat", "rank"):
        for number in range(3):
            node = f"{name}-{number}"
            rows.node(node, "g5.xlarge").hold(f"prod/{name}", node, [0], pod=node, owner_kind="Deployment")
            rows.use(f"prod/{name}", node, 0, range(HOURS), sm=0.2, memory_gib=6.0, tensor=0.1, dram=0.1)
        rows.demand(
            f"prod/{name}",
            lambda hour: 900 if 8 <= hour % 24 < 18 else 90,
            3,
            le_s=LE_S,
            counts=lambda hour: (0, 720, 162, 18, 0, 0, 0) if 8 <= hour % 24 < 18 else (0, 72, 16, 2, 0, 0, 0),
            running=lambda hour: 0.6 if 8 <= hour % 24 < 18 else 0.06,
        )
    rows.node("t", "g5.12xlarge").hold("research/exp", "t", [0, 1, 2, 3], owner_kind="Job")
    for device in range(4):
        rows.use("research/exp", "t", device, range(HOURS), sm=0.8)
    for start in range(0, HOURS - 12, 12):
        rows.job("research/exp", float(start), float(start), start + 5.0, 4, name=f"exp-{start}")
    rows.node("n", "g5.xlarge").hold("lab/notebook", "n", [0], owner_kind="Notebook")
    rows.use("lab/notebook", "n", 0, range(HOURS), sm=lambda hour: 0.5 if 9 <= hour % 24 < 17 else 0.0)
    return rows.bundle()


@pytest.fixture(scope="module")
def started(tmp_path_factory):
    try:
        import distributed  # noqa: F401
    except ImportError:
        if os.environ.get("CI") == "true":
            pytest.fail("Dask is missing, and CI=true: pip install -r requirements/dask.txt")
        pytest.skip("Dask is missing: pip install -r requirements/dask.txt")
    cluster = Cluster(tmp_path_factory.mktemp("dask"), ["first", "second"])
    try:
        yield cluster
    finally:
        cluster.end()


@pytest.fixture
def cluster(started):
    """A cluster of two workers, whatever became of those of other tests."""
    return started.staffed()


@pytest.fixture(scope="module")
def here():
    """The audit of one process."""
    return audit_document(audit(fleet())).model_dump_json()


@pytest.fixture
def one_at_a_time(monkeypatch):
    """A batch a workload, so that a few of them keep two workers busy."""
    monkeypatch.setattr(needed_replays, "_AT_A_TIME", 1)


def killed_at_work(client, cluster, name):
    """Kill a worker once the scheduler has given it something to do."""
    address = next(at for at, worker in client.scheduler_info()["workers"].items() if worker["name"] == name)

    def kill():
        while not client.processing().get(address):
            time.sleep(0.01)
        cluster.workers[name].kill()

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    return killer


def test_workers_give_the_audit_of_one_process(cluster, here, one_at_a_time):
    with open_workers(f"dask://{cluster.address}") as there:
        found = audited(PlanningInput(bundle=fleet(), workers=there))[0]

    assert audit_document(found).model_dump_json() == here


def test_a_worker_killed_in_the_middle_costs_time_only(cluster, here, one_at_a_time):
    with open_workers(f"dask://{cluster.address}") as there:
        killer = killed_at_work(there.client, cluster, "first")
        found = audited(PlanningInput(bundle=fleet(), workers=there))[0]
        killer.join(timeout=30)

    assert cluster.workers["first"].wait(timeout=30) == -signal.SIGKILL
    assert audit_document(found).model_dump_json() == here


def test_a_cluster_without_workers_is_no_engine(cluster):
    with open_workers(f"dask://{cluster.address}") as there:
        for worker in cluster.workers.values():
            worker.kill()
            worker.wait()
        while there.client.nthreads():  # until the scheduler has noticed
            time.sleep(0.1)

    with pytest.raises(SourceError, match="no workers: start some with `dask worker`"):
        open_workers(f"dask://{cluster.address}").__enter__()


def test_where_all_workers_are_lost_in_the_middle_it_says_so(cluster, monkeypatch):
    monkeypatch.setattr(workers, "_LOOK_S", 0.2)
    with open_workers(f"dask://{cluster.address}") as there:
        answers = there.answers(time.sleep, [60, 60, 60])
        for name in cluster.workers:
            killed_at_work(there.client, cluster, name)

        with pytest.raises(SourceError, match="all workers of the Dask cluster are gone"):
            next(answers)


def test_where_nobody_answers_it_says_how_to_start_a_scheduler(monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.setattr(workers, "_CONNECT_S", 0.2)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"

    with pytest.raises(SourceError, match=r"no Dask scheduler answers at tcp://.*start one with `dask scheduler`"):
        open_workers(f"dask://{address}").__enter__()


class Answering:
    """A client whose workers answer as given."""

    def __init__(self, answers):
        self._answers = answers

    def run(self, function, on_error):
        return self._answers


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (("0.0.1", "abc"), "tcp://w has 0.0.1 abc"),
        (ModuleNotFoundError("No module named 'trimtab'"), "tcp://w cannot load it"),
        (OSError("timed out"), "tcp://w did not answer"),
    ],
)
def test_workers_with_another_trimtab_are_refused_with_the_cure(answer, said):
    client = Answering({"tcp://v": workers.program(), "tcp://w": answer})

    with pytest.raises(SourceError, match=said) as refused:
        workers._require_same_program(client)

    assert "pip install 'trimtab[dask]==" in str(refused.value)
    assert "tcp://v" not in str(refused.value)


def test_without_dask_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)

    with pytest.raises(UsageError, match=r"pip install 'trimtab\[dask\]'"):
        open_workers("dask://127.0.0.1:1").__enter__()


@pytest.mark.parametrize("url", ["ray://head:10001", "dask://", "somewhere"])
def test_what_names_no_engine_is_refused_before_the_work(url, capsys):
    with pytest.raises(SystemExit) as refused:
        main(["audit", "--demo", "finetune-7b", "--engine", url])

    assert refused.value.code == 2
    assert "give dask://HOST:PORT" in capsys.readouterr().err
