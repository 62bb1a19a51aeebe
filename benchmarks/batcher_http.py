"""Serve the simulated device through the batcher over HTTP, and measure it under wrk.

python -m benchmarks.batcher_http serve PORT     # the server alone
python -m benchmarks.batcher_http                # start it, run wrk at 1 and 32 connections, print one JSON line
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from urllib.error import URLError
from urllib.request import Request, urlopen

from benchmarks.batcher_device import MAX_BATCH, Device, closed_limit_req_s
from trimtab_runtime.batcher import Batcher, Options
from trimtab_runtime.http import BatchApp, serve

PORT = 8731
BODY = b'{"x": 1}'
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


def application() -> BatchApp[object, object]:
    """Return the application under test: a JSON object in, its number back."""
    device = Device()
    batcher: Batcher[object, object] = Batcher(device.run, Options(max_batch=MAX_BATCH, name="device"))
    return BatchApp(batcher, encode=lambda result: {"y": result["x"] if isinstance(result, dict) else result})


def answers(port: int) -> bool:
    """Say whether the server answers."""
    try:
        with urlopen(Request(f"http://127.0.0.1:{port}/predict", BODY), timeout=5) as response:
            return bool(response.status == 200)
    except (URLError, OSError):
        return False


def wrk(script: Path, port: int, connections: int, seconds: int) -> dict[str, float]:
    """Run wrk once and return what it saw."""
    line = ["wrk", f"-d{seconds}s", "-t1", f"-c{connections}", "-s", str(script), f"http://127.0.0.1:{port}/predict"]
    output = subprocess.run(line, capture_output=True, text=True, check=True).stdout
    (result,) = [text for text in output.splitlines() if text.startswith("RESULT")]
    req_s, p50_ms, p95_ms, errors = map(float, result.split()[1:])
    return {"req_s": req_s, "p50_ms": p50_ms, "p95_ms": p95_ms, "errors": errors}


def measure(connections: Sequence[int] = (1, 32), *, seconds: int = 3, repeats: int = 3) -> dict[str, object]:
    """Return the best of a few runs at each number of connections, beside the limit; all in one server's life."""
    if shutil.which("wrk") is None:
        return {"skipped": "wrk is not installed"}
    command = [sys.executable, "-m", "benchmarks.batcher_http", "serve", str(PORT)]
    server = subprocess.Popen(command)
    try:
        deadline_s = time.monotonic() + 20
        while not answers(PORT) and time.monotonic() < deadline_s:
            time.sleep(0.1)
        with tempfile.TemporaryDirectory() as folder:
            script = Path(folder) / "load.lua"
            script.write_text(SCRIPT % BODY.decode())
            rows = {}
            for number in connections:
                wrk(script, PORT, number, 1)
                runs = [wrk(script, PORT, number, seconds) for _ in range(repeats)]
                rows[str(number)] = {
                    "limit_req_s": round(closed_limit_req_s(number)),
                    "best": max(runs, key=lambda run: run["req_s"]),
                    "req_s_of_runs": [round(run["req_s"]) for run in runs],
                }
            return {"connections": rows}
    finally:
        server.terminate()
        server.wait(10)


def main() -> None:
    if sys.argv[1:2] == ["serve"]:
        serve(application(), port=int(sys.argv[2]))
    else:
        print(json.dumps({"benchmark": "batcher_http", "data": None, **measure()}))


if __name__ == "__main__":
    main()
