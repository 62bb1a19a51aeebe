"""The pages of `trimtab serve`: first view, weight, the time a switched plan takes, and requests a second with flat memory.

    python -m benchmarks.web [--workloads 100] [--days 30] [--shown 1000] [--seconds 60] [--rate 200] [--demo NAME]
                             [--cases 10000 [--operation PATH] [--schemathesis st]]

A server in a process of its own audits a generated fleet (`benchmarks.whole_audit`), or a demonstration, in memory. Each action
is switched off once. The pages are those of the same audit with its workloads repeated until there are as many as are to be
shown: a real Chromium opens them at 1440 and 390 px, then eight clients ask for all of them, at a rate or as fast
as they are answered. Each scenario of `SCENARIOS` is asked for once, each of `CANCELLED` is cancelled. With `--cases`,
Schemathesis asks every operation of the API's description so often. Making the audit is not timed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import httpx
import uvicorn
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from tests.web.browser import browser
from tests.web.fleet import Shelf, verified, whole

from benchmarks.whole_audit import generated
from trimtab.emit.audit_document import audit_document
from trimtab.emit.document import AuditDocument
from trimtab.pipeline import kept_plan, open_demo, verify_plan
from trimtab.pipeline.auditing import PlanningInput, audited
from trimtab.units import MS_PER_S
from trimtab.web.library import Library
from trimtab.web.server import ServerPlace, configured

READY = "ready"
CLIENTS = 8
MOST_SWITCHED = 25
WIDTHS = (1440, 390)
PAGES = (
    "/audits/many",
    "/audits/many/spend",
    "/audits/many/spend?sort=usd_mo&page=2",
    "/audits/many/plan",
    "/audits/many/proof",
    "/audits/many/finance",
    "/audits/many/what-if",
    "/audits/many/allocation?by=workload",
    "/audits/1/verify",
    "/audits/1/year",
    "/audits/many/replay",
    "/audits/1/commitments",
    "/prices",
    "/audits/many/use",
    "/audits/many/more",
    "/audits",
)
"""Of the audit whose workloads are repeated."""
SCENARIOS = ("price=on-demand-10%25", "price=spot%2B30%25", "no_spot=1", "demand=1.5", "demand=0.8", "budget=80000")
CANCELLED = ("demand=1.6", "demand=1.9", "demand=0.6", "demand=0.7", "demand=2.5")
"""Scenarios that are cancelled once the first page has said that they are being worked out."""
_WEIGHT = """
(() => { const parts = [...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')];
  const sum = (size) => parts.reduce((total, part) => total + part[size], 0);
  return [sum('encodedBodySize'), sum('decodedBodySize'), performance.getEntriesByType('navigation')[0].loadEventEnd] })()
"""


def serve(asked: argparse.Namespace) -> None:
    """Audit the fleet and serve it: the process that is measured."""
    if asked.small:
        (document, made), later = whole(), verified()
    else:
        bundle = open_demo(asked.demo) if asked.demo else generated(asked.workloads, asked.days)
        found, made = audited(PlanningInput(bundle=bundle, name=asked.demo or f"{asked.workloads} generated workloads"))
        document, later = audit_document(found), verify_plan(kept_plan(found, bundle, made), bundle)
    library = Library(source=Shelf({"1": document, "many": repeated(document, asked.shown)}, {"1": made}, later))
    print(READY, flush=True)
    config = configured(library, ServerPlace(host="127.0.0.1", port=asked.port))
    config.app = CountedAnswers(cast("ASGIApp", config.app))
    uvicorn.Server(config).run()


def repeated(document: AuditDocument, workloads: int) -> AuditDocument:
    """Return the document of a fleet with so many workloads: those of this one over and over, each time by another name.

    Their sums are no fleet's: it weighs pages, and nothing else.
    """
    times = max(1, -(-workloads // len(document.spend.by_workload)))

    def again(text: str, number: int) -> str:
        return f"{text}-{number}" if number else text

    spend, pictures = document.spend, document.pictures
    workload_rows = tuple(
        row.model_copy(update={"name": again(row.name, number)}) for number in range(times) for row in spend.by_workload
    )
    verdicts = tuple(
        row.model_copy(update={"workload": again(row.workload, number)})
        for number in range(times)
        for row in document.verdicts
    )
    targets = tuple(
        row.model_copy(update={"workload": again(row.workload, number)})
        for number in range(times)
        for row in document.proof.targets
    )
    heat = pictures.heat_map.model_copy(
        update={
            "rows": tuple(again(row, number) for number in range(times) for row in pictures.heat_map.rows),
            "activity_frac": pictures.heat_map.activity_frac * times,
        }
    )
    capacity = tuple(
        part.model_copy(update={"workload": again(part.workload, number)})
        for number in range(times)
        for part in pictures.capacity
    )
    return document.model_copy(
        update={
            "spend": spend.model_copy(update={"by_workload": workload_rows}),
            "verdicts": verdicts,
            "proof": document.proof.model_copy(update={"targets": targets}),
            "pictures": pictures.model_copy(update={"heat_map": heat, "capacity": capacity}),
            "laws": document.laws * times,
            "plan": document.plan.model_copy(update={"not_worth_doing": document.plan.not_worth_doing * times}),
        }
    )


def free_port() -> int:
    """Return a port that nobody listens to."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port: int = listening.getsockname()[1]
        return port


def rss_mib(process: int) -> float:
    """Return a process's resident memory."""
    (line,) = [row for row in Path(f"/proc/{process}/status").read_text().splitlines() if row.startswith("VmRSS")]
    return int(line.split()[1]) / 1024


def cpu_ms(process: int) -> float:
    """Return the processor time that a process has had, in user and kernel."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") * MS_PER_S


def seen(address: str, chromium: str) -> dict[str, object]:
    """Open every page twice at each width; return the slowest load, and the heaviest page as sent and unpacked."""
    slowest_ms, sent, unpacked, wide = 0.0, 0, 0, 0
    slowest = ""
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile,
        browser(chromium, profile) as found,
    ):
        for width in WIDTHS:
            found.screen(width, 900, phone=width < 500)
            for path in PAGES:
                found.ask("Network.setCacheDisabled", cacheDisabled=True)
                found.open(address + path)
                encoded, decoded, load_ms = found.evaluate(_WEIGHT)
                if load_ms > slowest_ms:
                    slowest_ms, slowest = load_ms, path
                sent, unpacked = max(sent, int(encoded)), max(unpacked, int(decoded))
                wide += found.evaluate("document.documentElement.scrollWidth > innerWidth") is True
        complaints = len(found.said)
    return {
        "slowest_view_ms": round(slowest_ms, 1),
        "slowest_view": slowest,
        "heaviest_page_kb": round(sent / 1000, 1),
        "heaviest_page_unpacked_kb": round(unpacked / 1000, 1),
        "pages_wider_than_screen": wide,
        "console_complaints": complaints,
    }


def switched(client: httpx.Client, process: int) -> dict[str, object]:
    """Switch each action off alone, up to so many of them, and one set of three; return how long the answers took."""
    while client.get("/api/audits/1/plan").status_code == 202:
        time.sleep(0.05)
    ids = [action["id"] for action in client.get("/api/audits/1").json()["plan"]["actions"]]
    times_ms = []
    spent_ms = cpu_ms(process)
    for off in [*ids[:MOST_SWITCHED], ",".join(ids[:3])]:
        began = time.perf_counter()
        client.get(f"/audits/1/plan?off={off}").raise_for_status()
        times_ms.append((time.perf_counter() - began) * MS_PER_S)
    spent_ms = (cpu_ms(process) - spent_ms) / len(times_ms)
    began = time.perf_counter()
    client.get(f"/audits/1/plan?off={ids[0]}").raise_for_status()
    return {
        "actions": len(ids),
        "switch_cpu_mean_ms": round(spent_ms, 1),
        "switch_p50_ms": round(statistics.median(times_ms), 1),
        "switch_max_ms": round(max(times_ms), 1),
        "switch_again_ms": round((time.perf_counter() - began) * MS_PER_S, 1),
    }


def asked_otherwise(client: httpx.Client) -> dict[str, object]:
    """Ask for each scenario until its page has the answer; return how long that took, and when the first bytes came."""
    first_ms, whole_ms = [], []
    for scenario in SCENARIOS:
        began = time.perf_counter()
        answer = client.get(f"/audits/1/what-if?{scenario}")
        first_ms.append((time.perf_counter() - began) * MS_PER_S)
        while 'id="waiting"' in answer.raise_for_status().text:
            time.sleep(0.05)
            answer = client.get(f"/audits/1/what-if?{scenario}")
        whole_ms.append((time.perf_counter() - began) * MS_PER_S)
    began = time.perf_counter()
    client.get(f"/audits/1/what-if?{SCENARIOS[0]}").raise_for_status()
    return {
        "what_if_first_page_max_ms": round(max(first_ms), 1),
        "what_if_p50_ms": round(statistics.median(whole_ms), 1),
        "what_if_max_ms": round(max(whole_ms), 1),
        "what_if_again_ms": round((time.perf_counter() - began) * MS_PER_S, 1),
    }


def cancelled(client: httpx.Client) -> dict[str, object]:
    """Cancel scenarios that are being worked out; return how long the answers took, and until the work had ended."""
    answer_ms, ended_ms = [], []
    for scenario in CANCELLED:
        told = client.get(f"/api/audits/1/what-if?{scenario}")
        if told.raise_for_status().status_code != 202:
            continue
        path = f"/api/computations/{told.json()['computation']}"
        began = time.perf_counter()
        state = client.delete(path).raise_for_status().json()["state"]
        answer_ms.append((time.perf_counter() - began) * MS_PER_S)
        while state != "cancelled":
            time.sleep(0.01)
            state = client.get(path).raise_for_status().json()["state"]
        ended_ms.append((time.perf_counter() - began) * MS_PER_S)
    return {
        "cancelled": len(ended_ms),
        "cancel_answer_max_ms": round(max(answer_ms, default=0.0), 1),
        "cancel_ended_max_ms": round(max(ended_ms, default=0.0), 1),
    }


def fuzzed(
    address: str, program: str, cases: int, limit_s: float, only: Sequence[str] = (), workers: int = 4
) -> dict[str, object]:
    """Let Schemathesis send up to `cases` requests to each operation; return answers by status and failed checks.

    `only`: these paths of the description alone (default: all).

    Each operation is tested in a run of its own, so that a slow one does not take the time of the others. A run that takes
    longer than `limit_s` is stopped, and what it had sent until then counts. The server itself counts its answers.

    The description is narrowed to names of audits that are there and one that is not: otherwise nearly all cases would be 404.
    """
    with httpx.Client(base_url=address, trust_env=False, timeout=60) as client:
        described = client.get("/api/openapi.json").json()
        known = [found["id"] for found in client.get("/api/computations").json()["computations"]]
    names = {"audit": ["1", "many", "none"], "computation": [*known[:2], "none"]}
    for operation in described["paths"].values():
        for parameter in (parameter for method in operation.values() for parameter in method["parameters"]):
            if parameter["name"] in names:
                parameter["schema"] = {"type": "string", "enum": names[parameter["name"]]}
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "openapi.json"
        file.write_text(json.dumps(described), encoding="utf-8")
        for path in only or described["paths"]:
            found[path] = _fuzzed_operation((file, address), path, program, cases, limit_s, workers)
    return {
        "fuzz_operations": found,
        "fuzz_cases_least": min(part["cases"] for part in found.values()),
        "fuzz_server_errors": sum(part["server_errors"] for part in found.values()),
    }


def _fuzzed_operation(
    described: tuple[Path, str], path: str, program: str, cases: int, limit_s: float, workers: int
) -> dict[str, Any]:
    """Return what Schemathesis found of one operation; `described` are its description and the server's address."""
    file, address = described
    before = _counted(address)
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.ndjson"
        command = [program, "run", str(file), "--url", address, "--include-path", path, "--phases"]
        command += ["examples,coverage,fuzzing", "--seed", "7", "-n", str(cases), "-w", str(workers)]
        command += ["--continue-on-failure", "--suppress-health-check", "all", "--generation-unique-inputs"]
        command += ["--report", "ndjson", "--report-ndjson-path", str(report)]
        began = time.monotonic()
        with suppress(subprocess.TimeoutExpired):
            subprocess.run(
                command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False, timeout=limit_s
            )
        failures = _failed_checks(report)
    statuses = _counted(address) - before
    answer = {
        "cases": sum(statuses.values()),
        "seconds": round(time.monotonic() - began, 1),
        "statuses": dict(sorted(statuses.items())),
        "server_errors": sum(count for status, count in statuses.items() if status >= "500"),
        "failed_checks": dict(failures),
    }
    print(path, json.dumps(answer), flush=True)
    return answer


def _failed_checks(report: Path) -> Counter[str]:
    """Return the names of failed checks in a report; a run that was stopped has none, since it reports at its end."""
    failures: Counter[str] = Counter()
    with suppress(FileNotFoundError), report.open(encoding="utf-8") as lines:
        for line in lines:
            if line.endswith("\n"):
                event = json.loads(line).get("ScenarioFinished", {}).get("recorder", {})
                checks = (check for some in event.get("checks", {}).values() for check in some)
                failures.update(check["name"] for check in checks if check["status"] == "failure")
    return failures


COUNTS = "/benchmark/counts"
"""Where the server that is measured tells how it answered."""


@dataclass(slots=True)
class CountedAnswers:
    """The application that is measured, and how many of its answers had which status."""

    app: ASGIApp
    statuses: Counter[str] = field(default_factory=Counter)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request and count the answer."""
        if scope["type"] == "http" and scope["path"] == COUNTS:
            await JSONResponse(self.statuses)(scope, receive, send)
            return

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                self.statuses[str(message["status"])] += 1
            await send(message)

        await self.app(scope, receive, counted)


def _counted(address: str) -> Counter[str]:
    return Counter(httpx.get(f"{address}{COUNTS}", trust_env=False, timeout=60).json())


def loaded(address: str, process: int, seconds: float, rate_s: float = 0.0) -> dict[str, object]:
    """Ask for all pages with several clients at once; return requests a second, late answers, and memory before and after.

    `rate_s`: requests a second of all clients together; 0 is as fast as they are answered.
    """
    end = time.monotonic() + seconds
    apart_s = CLIENTS / rate_s if rate_s else 0.0
    statuses: Counter[int] = Counter()
    times_ms: list[float] = []
    memory, spent_ms = [rss_mib(process)], cpu_ms(process)

    def ask(first: int) -> None:
        with httpx.Client(base_url=address, trust_env=False, timeout=60) as client:
            number, due = first, time.monotonic() + apart_s * first / CLIENTS
            while time.monotonic() < end:
                # late requests are not left out: the next come at once until the pace is kept again
                time.sleep(max(0.0, due - time.monotonic()))
                due += apart_s
                began = time.perf_counter()
                statuses[client.get(PAGES[number % len(PAGES)]).status_code] += 1
                times_ms.append((time.perf_counter() - began) * MS_PER_S)
                number += 1

    clients = [threading.Thread(target=ask, args=(number,)) for number in range(CLIENTS)]
    for thread in clients:
        thread.start()
    while any(thread.is_alive() for thread in clients):
        time.sleep(1.0)
        memory.append(rss_mib(process))
    settled = memory[len(memory) // 4 :]
    return {
        "requests": sum(statuses.values()),
        "requests_s": round(sum(statuses.values()) / seconds, 1),
        "cpu_ms_a_request": round((cpu_ms(process) - spent_ms) / max(sum(statuses.values()), 1), 2),
        "answer_p95_ms": round(statistics.quantiles(times_ms, n=20)[-1], 1),
        "server_errors": sum(count for status, count in statuses.items() if status >= 500),
        "rss_start_mib": round(memory[0], 1),
        "rss_end_mib": round(memory[-1], 1),
        "rss_growth_after_first_quarter_mib": round(max(settled) - settled[0], 1),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="taken and not used: the fleet is generated")
    parser.add_argument("--workloads", type=int, default=100)
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--rate", type=float, default=0.0, help="requests a second; 0: as fast as they are answered")
    parser.add_argument("--cases", type=int, default=0, help="cases of Schemathesis for each operation; 0: none")
    parser.add_argument(
        "--operation", action="append", default=[], help="a path of the API to send them to; default: all"
    )
    parser.add_argument("--limit", type=float, default=600.0, help="seconds for the cases of one operation")
    parser.add_argument("--schemathesis", default="st", help="its program, which is no requirement of this project")
    parser.add_argument("--demo")
    parser.add_argument("--small", action="store_true", help="the small fleet of the tests, whose scenarios are quick")
    parser.add_argument("--shown", type=int, default=1000, help="workloads of the audit whose pages are loaded")
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    if asked.port is not None:
        serve(asked)
        return
    port = free_port()
    command = [sys.executable, "-m", "benchmarks.web", *(arguments or sys.argv[1:]), "--port", str(port)]
    address = f"http://127.0.0.1:{port}"
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            if server.stdout.readline().strip() != READY:
                raise SystemExit("the server did not start")
            with httpx.Client(base_url=address, trust_env=False, timeout=120) as client:
                _reached(client)
                answer: dict[str, object] = {
                    "benchmark": "web",
                    "fleet": client.get("/api/audits/1").json()["fleet"],
                    "workloads_shown": len(client.get("/api/audits/many").json()["spend"]["by_workload"]),
                    **switched(client, server.pid),
                    **asked_otherwise(client),
                    **cancelled(client),
                }
            chromium = shutil.which("chromium")
            answer |= seen(address, chromium) if chromium else {}
            answer |= loaded(address, server.pid, asked.seconds, asked.rate)
            answer |= (
                fuzzed(address, asked.schemathesis, asked.cases, asked.limit, asked.operation) if asked.cases else {}
            )
        finally:
            server.terminate()
    print(json.dumps(answer))


def _reached(client: httpx.Client, timeout_s: float = 60.0) -> None:
    end = time.monotonic() + timeout_s
    while True:
        try:
            client.get("/audits")
            return
        except httpx.ConnectError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


if __name__ == "__main__":
    main()
