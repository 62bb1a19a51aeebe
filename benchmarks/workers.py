"""An audit whose workloads are judged by workers of a Dask cluster on this machine, beside the same audit in one process.

    python -m benchmarks.workers [--data FLEET] [--workloads 200] [--workers 4]

Workers are processes of one thread each, as `dask worker` starts them. On fewer cores than workers their time by the clock says
nothing of what more of them bring: processor seconds do, and how evenly the work is spread over them.
"""

from __future__ import annotations

import argparse
import json
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from benchmarks.whole_audit import generated
from trimtab.cli.workers import DaskWorkers, open_workers
from trimtab.emit.audit_document import audit_document
from trimtab.pipeline.auditing import PlanningInput, audited
from trimtab.plan.needed_replays import Workers
from trimtab.tables.bundle import Bundle, read_bundle

DAYS = 30


class Cluster:
    """A scheduler on loopback and its workers, as `dask scheduler` and `dask worker` start them."""

    def __init__(self, folder: Path, names: Sequence[str]) -> None:
        """Start the scheduler; workers of these names follow when the cluster is `staffed`, with their logs in a folder."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            host, port = free.getsockname()
        self.address = f"{host}:{port}"
        self.workers: dict[str, subprocess.Popen[bytes]] = {}
        self._folder, self._names = folder, names
        self._scheduler = self._started("dask_scheduler", "--host", host, "--port", str(port))

    def staffed(self) -> Cluster:
        """Start the workers that are not there, and wait until all are."""
        from distributed import Client

        for name in self._names:
            if name not in self.workers or self.workers[name].poll() is not None:
                self.workers[name] = self._started(
                    "dask_worker", f"tcp://{self.address}", "--no-nanny", "--nthreads", "1",
                    "--name", name, "--local-directory", str(self._folder / name),
                )  # fmt: skip
        with Client(f"tcp://{self.address}", timeout=120, set_as_default=False) as client:
            client.wait_for_workers(len(self._names), timeout=120)
        return self

    def _started(self, module: str, *options: str) -> subprocess.Popen[bytes]:
        with (self._folder / f"{module}.log").open("a") as log:
            command = [sys.executable, "-m", f"distributed.cli.{module}", *options, "--no-dashboard"]
            return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)

    def end(self) -> None:
        """Kill every process of it."""
        for process in (*self.workers.values(), self._scheduler):
            process.kill()
            process.wait()


def document(bundle: Bundle, workers: Workers | None) -> tuple[str, float]:
    """Return an audit's document, and the processor seconds that this process took for it."""
    began = time.process_time()
    found, _ = audited(PlanningInput(bundle=bundle, workers=workers))
    return audit_document(found).model_dump_json(), time.process_time() - began


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="a bundle; without it a fleet is generated")
    parser.add_argument("--workloads", type=int, default=200)
    parser.add_argument("--workers", type=int, default=4)
    asked = parser.parse_args()
    bundle = generated(asked.workloads, DAYS) if asked.data is None else read_bundle(asked.data)
    document(generated(5, DAYS), None)  # so that no audit compiles
    with tempfile.TemporaryDirectory() as folder, ExitStack() as ends:
        cluster = Cluster(Path(folder), [f"worker-{number}" for number in range(asked.workers)])
        ends.callback(cluster.end)
        there = ends.enter_context(open_workers(f"dask://{cluster.staffed().address}"))
        if not isinstance(there, DaskWorkers):
            raise SystemExit(f"{cluster.address} opened no workers of Dask")
        document(generated(5 * asked.workers, DAYS), there)  # nor any worker loads what is compiled
        before = there.client.run(time.process_time)
        spread, here_s = document(bundle, there)
        each_s = [after - before[worker] for worker, after in there.client.run(time.process_time).items()]
    alone, alone_s = document(bundle, None)
    mean_s = sum(each_s) / len(each_s)
    answer = {
        "benchmark": "workers",
        "data": str(asked.data or "generated"),
        "workloads": asked.workloads,
        "workers": asked.workers,
        "each_worker_s": [round(each, 1) for each in each_s],
        "uneven_frac": round(max(abs(each - mean_s) for each in each_s) / mean_s, 3),
        "this_process_s": round(here_s, 1),
        "in_one_process_s": round(alone_s, 1),
        "same_document": spread == alone,
    }
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
