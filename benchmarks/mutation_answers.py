"""Answers of servers (Prometheus, Kubernetes, monitors, quotas and price lists of the clouds), and requests to our own pages.

Answers of clouds come over HTTP from loopback: one answer of an exchange is damaged, the others are as the provider documents
them. So clients, pages that follow one another, and AWS' own library are part of what is fed.
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from functools import cache
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx
from tests.sources.answering_server import Asked
from tests.sources.clouds import test_azure_monitor, test_google_monitoring, test_quotas
from tests.sources.price_lists.test_aws import history_page
from tests.sources.recorded_cloudwatch import START_S, cloudwatch
from tests.sources.recorded_prices import AWS_COLUMNS, AWS_CSV, AZURE_ITEMS, GCP_SKUS, PLAN_CSV, PLAN_INDEX, everything

from benchmarks.fuzz import ANSWER
from benchmarks.fuzz_places import DUMP
from benchmarks.mutation_kinds import EARLIER, Kind, refusal
from benchmarks.mutation_wounds import Wound, in_cells, in_json, in_query, in_text
from trimtab.catalog import load_catalog
from trimtab.emit.document import AuditDocument, parse_document
from trimtab.errors import InputError, SourceError
from trimtab.pipeline.auditing import Progress, ProvenPlan
from trimtab.plan.verify.verification import Verification
from trimtab.sources.clouds import CloudMachine, CloudMonitor, CloudReading, QuotaReading, quotas_text, settings_text
from trimtab.sources.clouds.aws import CloudWatch, aws_quotas, described
from trimtab.sources.clouds.azure import AzureMonitor, azure_quotas
from trimtab.sources.clouds.clients import AwsClient, aws_client, aws_items
from trimtab.sources.clouds.fleet import cloud_fleet
from trimtab.sources.clouds.google import GoogleMonitoring, describe, google_quotas
from trimtab.sources.hour_grid import HourGrid
from trimtab.sources.http import WebServer
from trimtab.sources.kubernetes.api import ApiAnswer, KubeApi
from trimtab.sources.price_lists import PriceReading
from trimtab.sources.price_lists.aws import (
    WINDOW_DAYS,
    derived_spot,
    item_lines,
    observed_spot,
    read_advisor,
    read_bulk,
    term_rates,
)
from trimtab.sources.price_lists.aws_savings_plans import read_savings_plans
from trimtab.sources.price_lists.azure import read_azure
from trimtab.sources.price_lists.gcp import read_gcp
from trimtab.sources.prometheus.client import Prometheus
from trimtab.tables.bundle import memory_bundle
from trimtab.tables.checks import check_bundle
from trimtab.web.access import AccessRules
from trimtab.web.app import web_app
from trimtab.web.library import AuditEntry, HistoryQuestion, Library, RunningAudit
from trimtab.web.tables import AllocatedBill, AllocationQuestion

Answer = tuple[int, Mapping[str, str], bytes]
_TODAY = date(2026, 11, 20)
_NOW = datetime(2026, 11, 20, tzinfo=UTC)
_GRID = HourGrid(start_s=START_S, hours=4)
_TOKEN = "t" * 32


class Loopback:
    """A server on loopback that answers what `answer` says; its threads end with the process."""

    def __init__(self) -> None:
        self.answer: Callable[[Asked], Answer] = lambda asked: (404, {}, b"")
        loopback = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None:
                pass

            def do_GET(self) -> None:
                url = urlsplit(self.path)
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                asked = Asked(self.command, url.path, dict(parse_qsl(url.query)), dict(self.headers), body)
                status, headers, content = loopback.answer(asked)
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_POST = do_GET

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        self.url = f"http://127.0.0.1:{server.server_address[1]}"
        threading.Thread(target=server.serve_forever, daemon=True).start()


@cache
def _loopback(_process: int) -> Loopback:
    """Return the server of a process: threads do not survive a fork."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        os.environ.setdefault(name, "x")
    os.environ["AWS_EC2_METADATA_DISABLED"] = "true"
    return Loopback()


def _exchange(
    name: str,
    seeds: tuple[bytes, ...],
    whole: Callable[[Asked], Answer],
    damaged: Callable[[Asked], bool],
    read: Callable[[str], object],
    *,
    wound: Wound = in_json,
    cost: int = 10,
) -> Kind:
    """Return a kind of which the input stands in the place of those answers of an exchange that `damaged` chooses."""

    def through(content: bytes) -> object:
        loopback = _loopback(os.getpid())

        def answer(asked: Asked) -> Answer:
            status, headers, body = whole(asked)
            return status, headers, content if damaged(asked) else body

        loopback.answer = answer
        return read(loopback.url)

    return Kind(name=name, seeds=seeds, wound=wound, read=through, cost=cost)


def answer_kinds(folder: Path) -> tuple[Kind, ...]:
    """Return every kind of answer and request; nothing is written to `folder`."""
    makers = (_metrics_and_objects, _monitors, _quotas, _price_lists, _pages)
    return tuple(kind for make in makers for kind in make())


class _Carrier:
    """Answers every request of a Kubernetes API with one body."""

    def __init__(self, body: str, status: int) -> None:
        self._body, self._status = body, status

    def get(self, path: str, parameters: Mapping[str, str]) -> ApiAnswer:
        return ApiAnswer(status=self._status, body=self._body)


def _metrics_and_objects() -> list[Kind]:
    page = json.dumps({**json.loads(DUMP), "metadata": {}}).encode()
    labels = b'{"status":"success","data":[{"__name__":"up","pod":"p"}]}'
    fault = b'{"status":"error","errorType":"execution","error":"query processing would load too many samples"}'
    status = b'{"kind":"Status","status":"Failure","message":"nodes is forbidden","code":403}'

    def prometheus(content: bytes, code: int = 200) -> object:
        transport = httpx.MockTransport(lambda request: httpx.Response(code, content=content))
        with Prometheus("http://fuzz.test", transport=transport, sleep=lambda seconds: None) as server:
            return _any_of(
                lambda: server.instant("up", 0.0),
                lambda: list(server.range("up", 0.0, 600.0, 60.0)),
                lambda: server.series(["up"], 0.0, 60.0),
                lambda: server.label_values("pod", 0.0, 60.0),
            )

    def kubernetes(content: bytes, code: int = 200) -> object:
        carrier = _Carrier(content.decode("utf-8", "replace"), code)
        return KubeApi(carrier=carrier, server="fuzz", pause=lambda seconds: None).read()

    return [
        Kind(name="Prometheus answers", seeds=(ANSWER.encode(), labels), wound=in_json, read=prometheus, cost=30),
        Kind(
            name="Prometheus refusals", seeds=(fault,), wound=in_json,
            read=lambda content: refusal(lambda: prometheus(content, 422)), cost=10,
        ),
        Kind(name="Kubernetes API answers", seeds=(page,), wound=in_json, read=kubernetes, cost=5),
        Kind(
            name="Kubernetes API refusals", seeds=(status,), wound=in_json,
            read=lambda content: refusal(lambda: kubernetes(content, 403)), cost=5,
        ),
    ]  # fmt: skip


def _any_of(*asks: Callable[[], object]) -> int:
    """Ask all; return how many were refused, and raise the first refusal where all were."""
    refused = []
    for ask in asks:
        try:
            ask()
        except SourceError as error:
            refused.append(error)
    if len(refused) == len(asks):
        raise refused[0]
    return len(refused)


def _asked(path: str, body: Mapping[str, object] | None = None, **query: str) -> Asked:
    return Asked("GET", path, query, {}, b"" if body is None else json.dumps(body).encode())


def _quiet(stage: str, done_frac: float) -> None:
    pass


def _fleet(monitor: CloudMonitor) -> object:
    """Read a monitor up to a bundle that is checked whole."""
    made = cloud_fleet(monitor.read(_GRID, _quiet), load_catalog())
    return check_bundle(memory_bundle(made.tables, made.meta))


def _ends_with(name: str) -> Callable[[Asked], bool]:
    """Return what chooses the requests of a path that ends so."""
    return lambda asked: bool(asked.path.endswith(name))


def _target(asked: Asked) -> str:
    """Return the operation that a signed request names."""
    named = {key.lower(): value for key, value in asked.headers.items()}
    return str(named.get("x-amz-target", "")).rpartition(".")[2]


def _monitors() -> list[Kind]:
    return [*_amazon_monitor(), *_google_monitor(), _azure_monitor()]


def _amazon_monitor() -> list[Kind]:
    whole = cloudwatch()
    data = {
        "MetricDataResults": [
            {"Id": f"q{number}", "Timestamps": [START_S, START_S + 3600], "Values": [40.0, 41.5], "StatusCode": "Complete"}
            for number in range(12)
        ]
    }  # fmt: skip
    asked = b'{"MetricName": "nvidia_smi_utilization_gpu", "NextToken": "more"}'
    listed = whole(Asked("POST", "/", {}, {"x-amz-target": "A.ListMetrics"}, asked))
    instances = whole(Asked("POST", "/", {}, {}, b"Action=DescribeInstances&Filter.1.Name=instance-id"))

    def read(url: str) -> object:
        return _fleet(CloudWatch(region="us-east-1", endpoint=url))

    def machines(url: str) -> object:
        machine = CloudMachine(name="i-b", instance="i-b", provider="aws")
        reading = CloudReading(grid=_GRID, source="EC2", machines={"i-b": machine})
        return described(_ec2(url), reading)

    return [
        _exchange(
            "CloudWatch metrics", (listed[2],), whole, lambda asked: _target(asked) == "ListMetrics", read, cost=400
        ),
        _exchange(
            "CloudWatch values", (json.dumps(data).encode(),), whole, lambda asked: _target(asked) == "GetMetricData",
            read, cost=400,
        ),
        _exchange("EC2 instances", (instances[2],), whole, lambda asked: True, machines, wound=in_text, cost=15),
    ]  # fmt: skip


@cache
def _ec2(url: str) -> AwsClient:
    """Return a client that asks once: the waits before it asks again would be most of a run."""
    return aws_client("ec2", "us-east-1", url, tries=1)


def _google_monitor() -> list[Kind]:
    whole = test_google_monitoring.google
    told = test_google_monitoring.told(
        "prometheus.googleapis.com/DCGM_FI_PROF_SM_ACTIVE/gauge", "ALIGN_MEAN"
    ) + test_google_monitoring.told("agent.googleapis.com/gpu/utilization", "ALIGN_MEAN")

    def read(url: str) -> object:
        return _fleet(GoogleMonitoring(project="p", headers={}, url=url, compute_url=url))

    def machines(url: str) -> object:
        reading = CloudReading(grid=_GRID, source="Google")
        reading.machines["box"] = CloudMachine(name="box", provider="gcp")
        describe(url, {}, "p", reading)
        return reading

    return [
        _exchange(
            "Google time series", (json.dumps({"timeSeries": told, "nextPageToken": ""}).encode(),), whole,
            lambda asked: not asked.path.startswith("/compute/"), read, cost=150,
        ),
        _exchange(
            "Google instances", (json.dumps(test_google_monitoring.INSTANCES).encode(),), whole,
            lambda asked: asked.path.startswith("/compute/"), machines, cost=15,
        ),
    ]  # fmt: skip


def _azure_monitor() -> Kind:
    whole = test_azure_monitor.azure
    seed = whole(_asked("/", {"timespan": datetime.fromtimestamp(test_azure_monitor.START_S, tz=UTC).isoformat()}))[2]

    def read(url: str) -> object:
        return _fleet(AzureMonitor(workspace="w", headers={}, url=url))

    return _exchange("Azure Monitor answers", (seed,), whole, lambda asked: True, read, cost=60)


def _quotas() -> list[Kind]:
    catalog = load_catalog()

    def whole(reading: QuotaReading) -> object:
        return quotas_text(reading.quotas), settings_text(reading.quotas)

    def amazon(url: str) -> object:
        return whole(aws_quotas("us-east-1", url, catalog))

    def google(url: str) -> object:
        return whole(google_quotas(url, {}, "p", catalog))

    def azure(url: str) -> object:
        return whole(azure_quotas(url, {}, "s", "eastus", catalog))

    def seed(answer: Callable[[Asked], Answer], path: str) -> bytes:
        return answer(_asked(path, {}))[2]

    listed = json.dumps({"Quotas": test_quotas.AWS_QUOTAS}).encode()
    return [
        _exchange("AWS quotas", (listed,), test_quotas.aws, lambda asked: True, amazon, cost=120),
        *(
            _exchange(
                f"Google quotas, {path}", (seed(test_quotas.google, path),), test_quotas.google,
                _ends_with(path), google, cost=20,
            )
            for path in ("/regions", "/projects/p")
        ),
        *(
            _exchange(
                f"Azure {path.strip('/')}", (seed(test_quotas.azure, path),), test_quotas.azure,
                _ends_with(path), azure, cost=20,
            )
            for path in ("/usages", "/skus")
        ),
    ]  # fmt: skip


def _price_lists() -> list[Kind]:
    catalog = load_catalog()
    types = frozenset(machine.name for machine in catalog.instance_types if machine.provider == "aws")
    item = {
        "product": {"sku": "S", "attributes": {"instanceType": "p4d.24xlarge", "regionCode": "us-east-1",
                    "operatingSystem": "Linux", "tenancy": "Shared", "preInstalledSw": "NA", "capacitystatus": "Used"}},
        "terms": {"OnDemand": {"S.J": {"priceDimensions": {"S.J.6": {"unit": "Hrs", "pricePerUnit": {"USD": "21.9"}}}}}},
    }  # fmt: skip
    spot = history_page([("p4d.24xlarge", "Linux/UNIX", "8.0", "2026-11-18T00:00:00.000Z", "us-east-1a")])
    pages = (
        json.dumps({"Items": AZURE_ITEMS, "NextPageLink": None}).encode(),
        json.dumps({"Items": AZURE_ITEMS[:2], "NextPageLink": "https://prices.azure.com/api/retail/prices?$skip=7"}).encode(),
    )  # fmt: skip

    def through(read: Callable[[WebServer], PriceReading]) -> Callable[[str], object]:
        def reading(url: str) -> object:
            with WebServer(url, sleep=lambda seconds: None) as server:
                return read(server).prices

        return reading

    def bulk(server: WebServer) -> PriceReading:
        reading = read_bulk(server, types, ("us-east-1",), _TODAY)
        derived_spot(read_advisor(server), tuple(reading.prices), _TODAY, reading)
        return reading

    def plans(server: WebServer) -> PriceReading:
        reading = PriceReading()
        read_savings_plans(server, types, ("us-east-1",), _TODAY, reading)
        return reading

    def history(url: str) -> object:
        reading = PriceReading()
        entries = aws_items(_ec2(url), "describe_spot_price_history", "SpotPriceHistory")
        observed_spot(entries, "us-east-1", types, _NOW - timedelta(days=WINDOW_DAYS), _NOW, reading)
        return reading.prices

    def items(content: bytes) -> object:
        reading = PriceReading()
        term_rates(item_lines([content.decode("utf-8", "replace")], "us-east-1", reading), types, _TODAY, reading)
        return reading.prices

    rows = AWS_CSV[AWS_CSV.index(",".join(f'"{name}"' for name in AWS_COLUMNS)) :]
    return [
        _exchange(
            "Azure price list", pages, everything, lambda asked: asked.path.endswith("/prices") and "$skip" not in asked.query,
            through(lambda server: read_azure(server, catalog, ("eastus",), _TODAY)), cost=60,
        ),
        _exchange(
            "Google price list", (json.dumps({"skus": GCP_SKUS}).encode(),), everything, _ends_with("/skus"),
            through(lambda server: read_gcp(server, catalog, (), _TODAY)), cost=40,
        ),
        _exchange(
            "AWS index of offers", (everything(_asked("/region_index.json"))[2],), everything,
            _ends_with("region_index.json"), through(bulk), cost=20,
        ),
        _exchange(
            "AWS offer file", (AWS_CSV.encode(),), everything, _ends_with("index.csv"), through(bulk), wound=in_text, cost=20
        ),
        _exchange(
            "AWS offer file, cells", (rows.encode(),), everything, _ends_with("index.csv"), through(bulk), wound=in_cells,
            cost=20,
        ),
        _exchange(
            "AWS index of savings plans", (json.dumps(PLAN_INDEX).encode(),), everything, _ends_with("region_index.json"),
            through(plans), cost=20,
        ),
        _exchange(
            "AWS savings plans, cells", (PLAN_CSV[PLAN_CSV.index("SKU,") :].encode(),), everything, _ends_with("index.csv"),
            through(plans), wound=in_cells, cost=20,
        ),
        _exchange(
            "AWS Spot Advisor", (everything(_asked("/spot-advisor-data.json"))[2],), everything,
            _ends_with("advisor-data.json"), through(bulk), cost=20,
        ),
        Kind(name="AWS products", seeds=(json.dumps(item).encode(),), wound=in_json, read=items, cost=2),
        _exchange(
            "AWS spot history", (spot,), lambda asked: (200, {"Content-Type": "text/xml"}, b""), lambda asked: True,
            history, wound=in_text, cost=15,
        ),
    ]  # fmt: skip


class _Shelf:
    """One audit that was kept, without its history."""

    def __init__(self, document: AuditDocument) -> None:
        self._document = document

    def entries(self) -> list[AuditEntry]:
        return [AuditEntry(name="1", stamp="")]

    def document(self, name: str) -> AuditDocument:
        return self._document

    def plan(self, name: str, tell: Progress) -> ProvenPlan:
        raise InputError("the history is not here")

    def verified(self, name: str, tell: Progress) -> Verification:
        raise InputError("the plan is not here")

    def later_stamp(self, name: str) -> str:
        return ""

    def allocated(self, name: str, asked: AllocationQuestion, tell: Progress) -> AllocatedBill:
        raise InputError("the history is not here")

    def worked_out(self, name: str, question: HistoryQuestion, tell: Progress) -> object:
        raise InputError("the history is not here")

    def running(self) -> list[RunningAudit]:
        return []


_PAGES = (
    "GET /", "GET /audits", "GET /audits/1", "GET /audits/1/spend?q=train&team=ml&sort=usd&down=1&page=2",
    "GET /audits/1/workload?name=prod%2Fapi", "GET /audits/1/action?id=a1", "GET /audits/1/plan?set=1&on=a1&on=a2",
    "GET /audits/1/tables/workloads.csv?sort=team", "GET /audits/1/tables/actions.json?page=1",
    "GET /fit?model=llama-3-8b&rate=5&input=512&output=128&ttft=500&tpot=50", "GET /api/audits/1",
    "GET /api/audits/1/tables/teams?q=a&down=0", "HEAD /api/openapi.json", "GET /login?next=%2Faudits&wrong=1",
    "GET /audits/1/year?order=a2,a1", "GET /audits/1/replay?what=prod%2Fapi&from=24&hours=48", "GET /audits/1/limits",
    "GET /audits/1/gpus?name=prod%2Fapi&week=2", "GET /api/prices?gpu=H100-SXM5-80GB&option=spot&sort=usd_hr", "GET /reviews",
    "GET /api/audits/1/year?order=a1", "GET /audits/1/tables/gpus.csv?name=prod%2Fapi", "GET /audits/1/commitments",
    "GET /audits/1/plan?off=a1,a2", "GET /api/audits/1/plan?off=a1", "GET /audits/1/finance", "GET /audits/1/verify?q=a",
    "GET /api/audits/1/what-if?demand=1.5&price=H100-15%25,spot%2B30%25&quota=p5.48xlarge=16&deadline=2027-03&budget=9",
    "GET /audits/1/allocation?by=label:team&cost=billed&idle=even&shared=spread&team=ml", "GET /audits/1/workbook.xlsx",
)  # fmt: skip
_LOGINS = (
    f"POST /login\nsec-fetch-site: same-origin\n\ntoken={_TOKEN}&next=%2Faudits%2F1",
    f"GET /audits\nauthorization: Bearer {_TOKEN}\n\n",
    "GET /audits/1?x=1\ncookie: __Host-trimtab=abc; other=\"a b\"\nhost: localhost:8080\n\n",
)  # fmt: skip


def _pages() -> list[Kind]:
    @cache
    def library(_process: int) -> Library:
        document = (EARLIER / "state" / "history" / "000001" / "audit.json").read_text()
        return Library(source=_Shelf(parse_document(document, where="kept")))

    def asked(content: bytes, token: str | None) -> object:
        status = asyncio.run(_status(web_app(library(os.getpid()), AccessRules(token=token)), content))
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            raise AssertionError(f"answered {status}")
        if (
            status >= HTTPStatus.BAD_REQUEST and status != HTTPStatus.CONFLICT
        ):  # the plan of an audit without its history
            raise InputError(f"answered {status}")
        return status

    return [
        Kind(
            name="requests for pages", seeds=tuple(page.encode() for page in _PAGES), wound=in_query,
            read=lambda content: asked(content, None), cost=15,
        ),
        Kind(
            name="requests with a token", seeds=tuple(login.encode() for login in _LOGINS), wound=in_text,
            read=lambda content: asked(content, _TOKEN), cost=5,
        ),
    ]  # fmt: skip


async def _status(app: Any, content: bytes) -> int:
    """Send a request, as a server hands it on, and return the status of the answer."""
    head, _, body = content.partition(b"\n\n")
    line, *fields = head.split(b"\n")
    method, _, target = line.partition(b" ")
    path, _, query = target.partition(b"?")
    named = [(name.strip().lower(), value.strip()) for name, _, value in (field.partition(b":") for field in fields)]
    scope = {
        "type": "http", "http_version": "1.1", "method": method.decode("latin-1"), "scheme": "http", "raw_path": path,
        "path": _unquoted(path), "query_string": query, "root_path": "", "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80), "headers": named if b"host" in dict(named) else [*named, (b"host", b"localhost")],
    }  # fmt: skip
    statuses: list[int] = []

    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Mapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    await app(scope, receive, send)
    return statuses[0]


def _unquoted(path: bytes) -> str:
    """Return a path as uvicorn unquotes it."""
    from urllib.parse import unquote

    return unquote(path.decode("ascii", "replace"))
