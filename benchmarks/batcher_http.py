"""Serve the simulated device through the batcher over HTTP (uvicorn), with learned waits and without, and load it.

python -m benchmarks.batcher_http serve PORT [greedy]      # the server alone
python -m benchmarks.batcher_http [--runs N] [--peers]     # load all in turns at 1 and 32 connections; one JSON line

uvicorn takes uvloop where that is installed; the result says which loop it was. `--peers` adds mosec and LitServe where they
are installed, each with the wait that served this load best (`PEERS`): their users have to find it, ours is learned.

The load comes from wrk, or, where that is not installed, from a program of our own (`load`), which takes more of the host: its
figures are compared within a run only.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple, cast
from urllib.error import URLError
from urllib.request import Request, urlopen

from benchmarks.batcher_device import MAX_BATCH, Device, closed_limit_req_s, quantile
from trimtab.units import MS_PER_S
from trimtab_runtime.batcher import Batcher, Options
from trimtab_runtime.http import BatchApp, serve

PORT = 8731
PEERS = {"mosec": ("/inference", "1"), "litserve": ("/predict", "2")}
"""Module -> its path, and its wait for a batch to fill in ms, of 1, 2 and 5."""
BODY = b'{"x": 1}'
HEADERS = {"Content-Type": "application/json"}
REQUEST = b"POST %b HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 8\r\n\r\n" + BODY
SCRIPT = """
wrk.method = "POST"
wrk.body = '%s'
wrk.headers["Content-Type"] = "application/json"
done = function(summary, latency, requests)
  local errors = summary.errors
  io.write(string.format("RESULT %%f %%f %%f %%d\\n", summary.requests / (summary.duration / 1e6),
    latency:percentile(50) / 1e3, latency:percentile(95) / 1e3,
    errors.status + errors.timeout + errors.connect + errors.read))
end
"""


def application(*, learn: bool) -> BatchApp[object, object]:
    """Return the application under test: a JSON object in, its number back."""
    device = Device()
    batcher: Batcher[object, object] = Batcher(device.run, Options(max_batch=MAX_BATCH, learn=learn, name="device"))
    return BatchApp(batcher, encode=lambda result: {"y": result["x"] if isinstance(result, dict) else result})


class Server(NamedTuple):
    """A server under test, in a process of its own."""

    port: int
    path: str
    process: subprocess.Popen[bytes]

    def answers(self) -> bool:
        """Say whether it answers."""
        try:
            with urlopen(Request(f"http://127.0.0.1:{self.port}{self.path}", BODY, HEADERS), timeout=5) as response:
                return bool(response.status == 200)
        except (URLError, OSError):
            return False

    def end(self) -> None:
        """Stop it and the processes that it started, also those that do not want to."""
        self.process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(10)
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)


class Client(asyncio.Protocol):
    """One connection that sends its request again as soon as it is answered."""

    def __init__(self, path: str, latencies_s: list[float], errors: list[bytes]) -> None:
        self._request = REQUEST % path.encode()
        self._latencies_s = latencies_s
        self._errors = errors

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._ask()

    def _ask(self) -> None:
        self._data = b""
        self._began_s = time.perf_counter()
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._data += data
        if not self._data.endswith(b"}"):  # a server may send the head and the JSON one after the other
            return
        if self._data.startswith(b"HTTP/1.1 200"):
            self._latencies_s.append(time.perf_counter() - self._began_s)
        else:
            self._errors.append(self._data)
        self._ask()


async def load(port: int, path: str, connections: int, seconds: float) -> str:
    """Load a server from this process; return a line like that of the wrk script."""
    latencies_s: list[float] = []
    errors: list[bytes] = []
    loop = asyncio.get_running_loop()
    made = [
        await loop.create_connection(lambda: Client(path, latencies_s, errors), "127.0.0.1", port)
        for _ in range(connections)
    ]
    await asyncio.sleep(seconds)
    seen = sorted(latencies_s)
    for transport, _ in made:
        transport.abort()
    p50_ms, p95_ms = quantile(seen, 0.5) * MS_PER_S, quantile(seen, 0.95) * MS_PER_S
    return f"RESULT {len(seen) / seconds} {p50_ms} {p95_ms} {len(errors)}"


def under_load(script: Path, server: Server, connections: int, seconds: int) -> dict[str, float]:
    """Load a server once and return what the clients saw."""
    port, path = str(server.port), server.path
    line = ["wrk", f"-d{seconds}s", "-t1", f"-c{connections}", "-s", str(script), f"http://127.0.0.1:{port}{path}"]
    if shutil.which("wrk") is None:
        line = [sys.executable, "-m", "benchmarks.batcher_http", "load", port, path, str(connections), str(seconds)]
    output = subprocess.run(line, capture_output=True, text=True, check=True).stdout
    (result,) = [text for text in output.splitlines() if text.startswith("RESULT")]
    req_s, p50_ms, p95_ms, errors = map(float, result.split()[1:])
    return {"req_s": req_s, "p50_ms": p50_ms, "p95_ms": p95_ms, "errors": errors}


def started(port: int, path: str, *words: str) -> Server:
    """Start a server and wait until it answers."""
    quiet = subprocess.DEVNULL
    line = [sys.executable, "-m", *words]
    server = Server(port, path, subprocess.Popen(line, stdout=quiet, stderr=quiet, start_new_session=True))
    deadline_s = time.monotonic() + 20
    while not server.answers() and time.monotonic() < deadline_s:
        time.sleep(0.1)
    return server


def servers_under_test(*, peers: bool) -> dict[str, Server]:
    """Start ours with learned waits and without, and the peers that are installed."""
    ours, path = "benchmarks.batcher_http", "/predict"
    servers = {
        "learned": started(PORT, path, ours, "serve", str(PORT)),
        "greedy": started(PORT + 1, path, ours, "serve", str(PORT + 1), "greedy"),
    }
    for port, (name, (path, wait_ms)) in enumerate(PEERS.items(), PORT + 2):
        if peers and find_spec(name) is not None:
            servers[name] = started(port, path, f"benchmarks.batcher_http_{name}", str(port), wait_ms)
    return servers


def measure(
    connections: Sequence[int] = (1, 32), *, seconds: int = 3, runs: int = 3, peers: bool = False
) -> dict[str, object]:
    """Return each run at each number of connections, all servers in turns, beside the limit."""
    with ExitStack() as stack:
        script = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "load.lua"
        script.write_text(SCRIPT % BODY.decode())
        servers = servers_under_test(peers=peers)
        for server in servers.values():
            stack.callback(server.end)
        return {
            "generator": "wrk" if shutil.which("wrk") else "python",
            "loop": "uvloop" if find_spec("uvloop") is not None else "asyncio",
            "connections": {
                str(number): measure_at(number, servers, script, seconds=seconds, runs=runs) for number in connections
            },
        }


def measure_at(number: int, servers: dict[str, Server], script: Path, *, seconds: int, runs: int) -> dict[str, object]:
    """Return each server's runs at one number of connections, in turns after a second to warm up."""
    seen: dict[str, list[dict[str, float]]] = {name: [] for name in servers}
    for server in servers.values():
        under_load(script, server, number, 1)
    for _ in range(runs):
        for name, server in servers.items():
            seen[name].append(under_load(script, server, number, seconds))
    learned_req_s = [run["req_s"] for run in seen["learned"]]
    return {
        "limit_req_s": round(closed_limit_req_s(number)),
        "best": max(seen["learned"], key=lambda run: run["req_s"]),
        "spread_frac": round(max(learned_req_s) / min(learned_req_s) - 1, 3),
        "req_s_of_runs": {name: [round(run["req_s"]) for run in of_name] for name, of_name in seen.items()},
        "errors": sum(run["errors"] for of_name in seen.values() for run in of_name),
    }


def main() -> None:
    match sys.argv[1:]:
        case ["serve", port, *words]:
            serve(application(learn="greedy" not in words), port=int(port))
        case ["load", port, path, connections, seconds]:
            print(asyncio.run(load(int(port), path, int(connections), float(seconds))))
        case words:
            parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
            parser.add_argument("--runs", type=int, default=3)
            parser.add_argument("--peers", action="store_true")
            asked = parser.parse_args(words)
            print(
                json.dumps({"benchmark": "batcher_http", "data": None, **measure(runs=asked.runs, peers=asked.peers)})
            )


if __name__ == "__main__":
    main()
