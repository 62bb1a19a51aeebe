"""A real Prometheus server that holds 14 days of a generated fleet, and the bundle that trimtab collects from it."""

import fcntl
import os
import shutil
import socket
import subprocess
import time
from datetime import timedelta
from pathlib import Path

import httpx
import pytest
from tests.e2e.generated_fleet import DAYS, START, GeneratedFleet

from trimtab.sources.prometheus.client import Prometheus
from trimtab.sources.prometheus.collect import collect_prometheus
from trimtab.tables.bundle import memory_bundle, write_bundle
from trimtab.tables.checks import check_bundle

END = START + timedelta(days=DAYS)


@pytest.fixture(scope="session")
def generated_fleet():
    """The truth."""
    return GeneratedFleet()


@pytest.fixture(scope="session")
def prometheus_data(generated_fleet, promtool_bin, tmp_path_factory):
    """The server's storage, made once for all the workers of a parallel run."""
    shared = (
        tmp_path_factory.getbasetemp().parent if "PYTEST_XDIST_WORKER" in os.environ else tmp_path_factory.getbasetemp()
    )
    data = shared / "prometheus-data"
    with (shared / "prometheus-data.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not data.is_dir():
            _backfill(generated_fleet, promtool_bin, data)
    return data


def _backfill(fleet, promtool, data):
    text = data.with_suffix(".om")
    fresh = data.with_suffix(".new")
    fleet.write(text)
    backfill(text, promtool, fresh)
    text.unlink()
    fresh.rename(data)


def backfill_text(text, promtool, blocks):
    """Make storage of OpenMetrics lines."""
    page = blocks.with_suffix(".om")
    page.write_text(text + "# EOF\n")
    backfill(page, promtool, blocks)


def backfill(page, promtool, blocks):
    """Make storage of a file of OpenMetrics text."""
    command = [promtool, "tsdb", "create-blocks-from", "--quiet", "--max-block-duration=744h", "openmetrics"]
    subprocess.run([*command, str(page), str(blocks)], check=True, capture_output=True)


class RunningPrometheus:
    """A Prometheus process over a copy of the storage."""

    def __init__(self, binary: str, data: Path, folder: Path) -> None:
        self.command = [
            binary,
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            "--storage.tsdb.retention.time=20y",
            "--log.level=error",
        ]
        (folder / "prometheus.yml").write_text("global: {}\n")
        shutil.copytree(data, folder / "data", copy_function=os.link)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.process: subprocess.Popen | None = None

    def start(self) -> None:
        self.process = subprocess.Popen(
            [*self.command, f"--web.listen-address=127.0.0.1:{self.port}"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for _ in range(300):
            try:
                if httpx.get(f"{self.url}/-/ready").status_code == 200:
                    return
            except httpx.TransportError:
                pass
            time.sleep(0.1)
        raise RuntimeError("the Prometheus server did not become ready")

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


def collected_from(text, folder, binaries, start, hours, **how):
    """Return what is collected of OpenMetrics lines through a server over `hours` from `start`; `how` as collect has it.

    `binaries` are those of Prometheus and of promtool.
    """
    prometheus, promtool = binaries
    backfill_text(text, promtool, folder / "blocks")
    server = RunningPrometheus(prometheus, folder / "blocks", folder)
    server.start()
    try:
        with Prometheus(server.url) as client:
            collected = collect_prometheus(client, start, start + timedelta(hours=hours), **how)
    finally:
        server.stop()
    return check_bundle(memory_bundle(collected.tables, collected.meta))


@pytest.fixture(scope="session")
def prometheus_server(prometheus_bin, prometheus_data, tmp_path_factory):
    """A running server."""
    server = RunningPrometheus(prometheus_bin, prometheus_data, tmp_path_factory.mktemp("prometheus"))
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def collected_bundle(prometheus_server, tmp_path_factory):
    """The bundle collected from the server over the whole 14 days."""
    with Prometheus(prometheus_server.url) as server:
        collected = collect_prometheus(server, START, END)
    return write_bundle(tmp_path_factory.mktemp("collected") / "fleet", collected.tables, collected.meta)
