"""Serve the simulated device through the batcher over HTTP (uvicorn), with learned waits and without, and load it.

python -m benchmarks.batcher_http serve PORT [greedy]    # the server alone
python -m benchmarks.batcher_http                        # load both in turns at 1 and 32 connections; one JSON line

The load comes from wrk, or, where that is not installed, from a program of our own (`load`), which takes more of the host: its
figures are compared within a run only.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import cast
from urllib.error import URLError
from urllib.request import Request, urlopen

from benchmarks.batcher_device import MAX_BATCH, Device, closed_limit_req_s, quantile
from trimtab.units import MS_PER_S
from trimtab_runtime.batcher import Batcher, Options
from trimtab_runtime.http import BatchApp, serve

PORT = 8731
BODY = b'{"x": 1}'
REQUEST = b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 8\r\n\r\n" + BODY
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


def answers(port: int) -> bool:
    """Say whether the server answers."""
    try:
        with urlopen(Request(f"http://127.0.0.1:{port}/predict", BODY), timeout=5) as response:
            return bool(response.status == 200)
    except (URLError, OSError):
        return False


class Client(asyncio.Protocol):
    """One connection that sends its request again as soon as it is answered."""

    def __init__(self, latencies_s: list[float], errors: list[bytes]) -> None:
        self._latencies_s = latencies_s
        self._errors = errors

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._ask()

    def _ask(self) -> None:
        self._data = b""
        self._began_s = time.perf_counter()
        self._transport.write(REQUEST)

    def data_received(self, data: bytes) -> None:
        self._data += data
        if not self._data.endswith(b"}"):  # a server may send the head and the JSON one after the other
            return
        if self._data.startswith(b"HTTP/1.1 200"):
            self._latencies_s.append(time.perf_counter() - self._began_s)
        else:
            self._errors.append(self._data)
        self._ask()


async def load(port: int, connections: int, seconds: float) -> str:
    """Load a server from this process; return a line like that of the wrk script."""
    latencies_s: list[float] = []
    errors: list[bytes] = []
    loop = asyncio.get_running_loop()
    made = [
        await loop.create_connection(lambda: Client(latencies_s, errors), "127.0.0.1", port) for _ in range(connections)
    ]
    await asyncio.sleep(seconds)
    seen = sorted(latencies_s)
    for transport, _ in made:
        transport.abort()
    p50_ms, p95_ms = quantile(seen, 0.5) * MS_PER_S, quantile(seen, 0.95) * MS_PER_S
    return f"RESULT {len(seen) / seconds} {p50_ms} {p95_ms} {len(errors)}"


def under_load(script: Path, port: int, connections: int, seconds: int) -> dict[str, float]:
    """Load a server once and return what the clients saw."""
    line = ["wrk", f"-d{seconds}s", "-t1", f"-c{connections}", "-s", str(script), f"http://127.0.0.1:{port}/predict"]
    if shutil.which("wrk") is None:
        line = [sys.executable, "-m", "benchmarks.batcher_http", "load", str(port), str(connections), str(seconds)]
    output = subprocess.run(line, capture_output=True, text=True, check=True).stdout
    (result,) = [text for text in output.splitlines() if text.startswith("RESULT")]
    req_s, p50_ms, p95_ms, errors = map(float, result.split()[1:])
    return {"req_s": req_s, "p50_ms": p50_ms, "p95_ms": p95_ms, "errors": errors}


def serving(port: int, *words: str) -> subprocess.Popen[bytes]:
    """Start a server and wait until it answers."""
    server = subprocess.Popen([sys.executable, "-m", "benchmarks.batcher_http", "serve", str(port), *words])
    deadline_s = time.monotonic() + 20
    while not answers(port) and time.monotonic() < deadline_s:
        time.sleep(0.1)
    return server


def measure(connections: Sequence[int] = (1, 32), *, seconds: int = 3, repeats: int = 3) -> dict[str, object]:
    """Return each run at each number of connections, learned waits and bare greedy in turns, beside the limit."""
    servers = {"learned": (PORT, serving(PORT)), "greedy": (PORT + 1, serving(PORT + 1, "greedy"))}
    try:
        with tempfile.TemporaryDirectory() as folder:
            script = Path(folder) / "load.lua"
            script.write_text(SCRIPT % BODY.decode())
            rows = {}
            for number in connections:
                runs: dict[str, list[dict[str, float]]] = {name: [] for name in servers}
                for port, _ in servers.values():
                    under_load(script, port, number, 1)
                for _ in range(repeats):
                    for name, (port, _) in servers.items():
                        runs[name].append(under_load(script, port, number, seconds))
                rows[str(number)] = {
                    "limit_req_s": round(closed_limit_req_s(number)),
                    "best": max(runs["learned"], key=lambda run: run["req_s"]),
                    "req_s_of_runs": {name: [round(run["req_s"]) for run in of_name] for name, of_name in runs.items()},
                    "errors": sum(run["errors"] for of_name in runs.values() for run in of_name),
                }
            return {"generator": "wrk" if shutil.which("wrk") else "python", "connections": rows}
    finally:
        for _, server in servers.values():
            server.terminate()
            server.wait(10)


def main() -> None:
    match sys.argv[1:]:
        case ["serve", port, *words]:
            serve(application(learn="greedy" not in words), port=int(port))
        case ["load", port, connections, seconds]:
            print(asyncio.run(load(int(port), int(connections), float(seconds))))
        case _:
            print(json.dumps({"benchmark": "batcher_http", "data": None, **measure()}))


if __name__ == "__main__":
    main()
