"""Every kind of input that trimtab reads: a valid one, how it is damaged, and the reader or whole command that it meets."""

from __future__ import annotations

import contextlib
import io
import json
import random
import shutil
import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import httpx
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.fuzz import ANSWER, BUILT_IN
from benchmarks.fuzz_places import DUMP, JOBS, NODES
from benchmarks.mutation_wounds import Wound, in_bytes, in_cells, in_json, in_parquet, in_text, in_yaml
from benchmarks.reference.scrape import read_scrape
from trimtab.catalog import load_catalog
from trimtab.cli import root
from trimtab.cli.allocate.run import read_budgets
from trimtab.cli.fit.inputs import model_of, read_measured
from trimtab.cli.outcome_cache import OutcomeCache, encoded
from trimtab.cli.replay.spot import read_availability
from trimtab.cli.settings import resolve
from trimtab.diagnose.bill_split import COLUMNS, ChargeBasis, charges_of
from trimtab.emit.audit_data import parse_document
from trimtab.emit.kept_plan import parse_kept_plan, render_kept_plan
from trimtab.emit.manifests.cluster_file import parse_cluster_file
from trimtab.errors import InputError, SourceError
from trimtab.inputs.files import read_text
from trimtab.replay.outcomes.outcome import Outcome
from trimtab.review.manifests import read_objects
from trimtab.sources.bills.commitments import read_inventory, read_owned
from trimtab.sources.bills.focus import read_bills
from trimtab.sources.cheap_hours import read_cheap_hours
from trimtab.sources.clouds.quotas import read_quotas
from trimtab.sources.demo.trace import read_series
from trimtab.sources.kubernetes.api import ApiAnswer, KubeApi
from trimtab.sources.kubernetes.manifests import read_manifests
from trimtab.sources.kubernetes.objects import read_dumps
from trimtab.sources.kubernetes.snapshot import collect_snapshot, snapshot_moment
from trimtab.sources.prometheus.client import Prometheus
from trimtab.sources.slurm import collect_slurm, read_slurm
from trimtab.sources.traces import read_trace
from trimtab.sources.traces.batch_files import read_arrivals, read_curve
from trimtab.sources.traces.canary_files import read_run
from trimtab.sources.traces.profiles import read_torch_trace
from trimtab.sources.traces.request_mix import read_request_mix
from trimtab.tables.bundle import memory_bundle, parse_meta
from trimtab.tables.checks import check_bundle, checked_bundle
from trimtab.tables.profile_file import checked_profile, profile_values
from trimtab.tables.workloads import read_workloads

OWN = Path(__file__).parent.parent / "tests" / "data"
_EARLIER = OWN / "written_by_0_1_0"
_START = datetime(2026, 9, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of input: valid ones, how one is damaged, what reads it; `cost` is about how many times a cheap reader's time."""

    name: str
    seeds: tuple[bytes, ...]
    wound: Wound
    read: Callable[[bytes], object]
    cost: int = 1


def kinds(folder: Path) -> tuple[Kind, ...]:
    """Return every kind; `folder` is where readers find the damaged files."""
    makers = (_bundles, _declared, _prices, _commitments, _bills, _traces, _requests, _servers, _dumps, _fits, _kept)
    return tuple(kind for make in makers for kind in make(folder))


def _file(folder: Path, name: str, read: Callable[[Path], object]) -> Callable[[bytes], object]:
    """Return a reader of bytes through a file of that name."""

    def through(content: bytes) -> object:
        path = folder / name
        path.write_bytes(content)
        return read(path)

    return through


def _command(*arguments: str) -> object:
    """Run a whole command in this process, its answer thrown away."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        return root.main(args=list(arguments), prog_name="trimtab", standalone_mode=False)


def _parquet(columns: Mapping[str, object]) -> bytes:
    stream = io.BytesIO()
    pq.write_table(pa.table(dict(columns)), stream)
    return stream.getvalue()


def _lines(*lines: str) -> bytes:
    return ("\n".join(lines) + "\n").encode()


def _bundles(folder: Path) -> list[Kind]:
    found = []
    for file in sorted((_EARLIER / "bundle").glob("*.parquet")):
        copied = folder / f"bundle-{file.stem}"
        shutil.copytree(_EARLIER / "bundle", copied, dirs_exist_ok=True)

        def read(content: bytes, at: Path = copied / file.name) -> object:
            at.write_bytes(content)
            return checked_bundle(at.parent)

        def allocate(content: bytes, at: Path = copied / file.name) -> object:
            at.write_bytes(content)
            return _command("allocate", str(at.parent), "-q", "-o", "json")

        seeds = (file.read_bytes(),)
        found.append(Kind(name=f"bundle {file.stem}", seeds=seeds, wound=in_parquet, read=read, cost=30))
        found.append(Kind(name=f"allocate {file.stem}", seeds=seeds, wound=in_parquet, read=allocate, cost=200))
    return found


def _declared(folder: Path) -> list[Kind]:
    workloads = (
        (_EARLIER / "bundle" / "workloads.yaml").read_bytes(),
        b"workloads:\n  prod/chat: {kind: serving, targets: [{metric: ttft, limit_s: 0.5}], cold_start_s: 60}\n",
    )
    meta = (_EARLIER / "bundle" / "bundle.yaml").read_bytes()
    cluster = (
        b"autoscaler: keda\nrule_labels: {release: prom}\nquota_nodes: {p4d.24xlarge: 4}\nworkloads: {prod/chat: {}}\n"
    )
    settings = (
        b'[planning]\nproof_frac = 0.25\n[limits]\nregions = ["us-east-1"]\n[limits.quotas]\n"p4d.24xlarge" = 4\n'
    )
    manifests = tuple(
        path.read_bytes() for path in sorted((_EARLIER / "manifests").rglob("*.yaml")) if path.stat().st_size < 4_000
    )
    kustomization = (
        b"kind: Kustomization\npatches:\n- target: {kind: Deployment, name: chat}\n"
        b"  patch: '[{op: replace, path: /spec/replicas, value: 3}]'\n"
    )

    def read_meta(path: Path) -> object:
        return parse_meta(read_text(path), where=str(path))

    def read_cluster(path: Path) -> object:
        return parse_cluster_file(read_text(path), where=str(path))

    return [
        Kind(name="workloads.yaml", seeds=workloads, wound=in_yaml, read=_file(folder, "workloads.yaml", read_workloads)),
        Kind(name="bundle.yaml", seeds=(meta,), wound=in_yaml, read=_file(folder, "bundle.yaml", read_meta)),
        Kind(name="cluster file", seeds=(cluster,), wound=in_yaml, read=_file(folder, "cluster.yaml", read_cluster)),
        Kind(
            name="settings", seeds=(settings,), wound=in_text,
            read=_file(folder, "trimtab.toml", lambda path: resolve(file=path, environ={}, flags=())), cost=5,
        ),
        Kind(
            name="manifests", seeds=(*manifests[:12], kustomization), wound=in_yaml,
            read=_file(folder, "manifest.yaml", lambda path: read_objects(read_manifests(path))), cost=5,
        ),
    ]  # fmt: skip


def _prices(folder: Path) -> list[Kind]:
    rates = _lines(
        "provider,instance_type,region,option,usd_hr,as_of,note,gpu,gpu_count",
        "aws,p5.48xlarge,us-east-1,on-demand,40.0,2026-01-01,ours,,",
        "lab,box,,on-demand,1.5,,,H100-80GB,8",
    )
    listed = (
        b"prices:\n- {provider: aws, instance_type: p5.48xlarge, option: on-demand, usd_hr: 40.0}\n"
        b"owned:\n- {instance_type: box, capital_usd: 200000, years: 4, power_w: 6000, pue: 1.3, electricity_usd_kwh: 0.1,"
        b" gpu: A100-80GB, gpu_count: 8}\n"
    )
    quotas = _lines(
        "provider,instance_type,region,capacity_type,nodes,limit,unit,per_node,used,quota,code",
        "aws,p4d.24xlarge,us-east-1,on-demand,4,384,vCPU,96,96,Running On-Demand P instances,L-417A185B",
    )
    hours = _lines("hour,usd_factor", *(f"{hour},{1 + hour / 24}" for hour in range(24)))

    def command(path: Path) -> object:
        return _command("prices", "--prices", str(path), "-o", "csv")

    return [
        Kind(name="prices.csv", seeds=(rates,), wound=in_cells, read=_file(folder, "p.csv", load_catalog), cost=3),
        Kind(name="prices.yaml", seeds=(listed,), wound=in_yaml, read=_file(folder, "p.yaml", load_catalog), cost=3),
        Kind(name="prices (command)", seeds=(rates,), wound=in_cells, read=_file(folder, "pc.csv", command), cost=300),
        Kind(name="quotas", seeds=(quotas,), wound=in_cells, read=_file(folder, "quotas.csv", read_quotas)),
        Kind(name="cheap hours", seeds=(hours,), wound=in_cells, read=_file(folder, "hours.csv", read_cheap_hours)),
        Kind(
            name="budgets", seeds=(b"name,usd_mo\nresearch,12000\nassist,500\n",), wound=in_cells,
            read=_file(folder, "budgets.csv", read_budgets),
        ),
    ]  # fmt: skip


def _commitments(folder: Path) -> list[Kind]:
    owned = _lines(
        "name,provider,instance_type,region,count,term_years,upfront_usd,usd_hr,start,end",
        "r1,aws,p4d.24xlarge,us-east-1,2,1,0,20,2026-01-01,2027-01-01",
    )
    reserved = {
        "ReservedInstancesId": "r-1", "InstanceType": "p4d.24xlarge", "InstanceCount": 2, "Duration": 31536000,
        "Start": "2026-03-01T00:00:00Z", "End": "2027-03-01T00:00:00Z", "FixedPrice": 87600.0, "UsagePrice": 0.0,
        "RecurringCharges": [{"Amount": 3.0, "Frequency": "Hourly"}], "State": "active", "Scope": "Region",
    }  # fmt: skip
    plan = {
        "savingsPlanId": "s-1", "savingsPlanType": "Compute", "commitment": "10.0", "state": "active",
        "start": "2026-03-01T00:00:00Z", "end": "2027-03-01T00:00:00Z", "upfrontPaymentAmount": "0",
        "termDurationInSeconds": 31536000,
    }  # fmt: skip
    azure = {
        "location": "eastus", "sku": {"name": "Standard_ND96asr_v4"},
        "properties": {
            "displayName": "nd", "quantity": 1, "term": "P1Y", "provisioningState": "Succeeded",
            "effectiveDateTime": "2026-05-01T00:00:00Z", "expiryDate": "2027-05-01",
        },
    }  # fmt: skip
    google = {
        "name": "c", "plan": "TWELVE_MONTH", "status": "ACTIVE", "type": "ACCELERATOR_OPTIMIZED",
        "region": "https://x/regions/us-central1", "startTimestamp": "2026-05-01T00:00:00Z",
        "endTimestamp": "2027-05-01T00:00:00Z", "resources": [{"type": "VCPU", "amount": "96"}],
    }  # fmt: skip
    documents = ({"ReservedInstances": [reserved]}, {"savingsPlans": [plan]}, [azure], [google])
    catalog = load_catalog()

    def read(path: Path) -> object:
        return read_inventory(path, catalog, region="us-east-1", type_of={})

    return [
        Kind(name="owned", seeds=(owned,), wound=in_cells, read=_file(folder, "owned.csv", read_owned)),
        Kind(
            name="inventories", seeds=tuple(json.dumps(one).encode() for one in documents), wound=in_json,
            read=_file(folder, "held.json", read), cost=2,
        ),
    ]  # fmt: skip


def _bills(folder: Path) -> list[Kind]:
    focus, cur = ((OWN / "bills" / name).read_bytes() for name in ("focus_1_2.csv", "cur_2_0.csv"))
    day = timedelta(days=1)
    packed = _parquet(
        {
            "ChargePeriodStart": [_START, _START + day], "ChargePeriodEnd": [_START + day, _START + 2 * day],
            "BilledCost": [10.0, -5.0], "EffectiveCost": [9.0, -5.0], "BillingCurrency": ["USD", "USD"],
            "ChargeCategory": ["Usage", "Credit"], "ResourceId": ["i-0abc", None], "Tags": ['{"team": "a"}', None],
        }
    )  # fmt: skip

    def read(path: Path) -> object:
        costs = read_bills([path]).table.select(COLUMNS)
        return [charges_of(costs, basis, {"EUR": 1.1, "GBP": 1.2}) for basis in ChargeBasis]

    return [
        Kind(name="bill FOCUS", seeds=(focus,), wound=in_cells, read=_file(folder, "focus.csv", read), cost=30),
        Kind(name="bill CUR", seeds=(cur,), wound=in_cells, read=_file(folder, "cur.csv", read), cost=30),
        Kind(name="bill Parquet", seeds=(packed,), wound=in_parquet, read=_file(folder, "bill.parquet", read), cost=30),
        Kind(name="bill gzip", seeds=(_gzip(focus),), wound=in_bytes, read=_file(folder, "bill.csv.gz", read), cost=30),
    ]


def _gzip(content: bytes) -> bytes:
    import gzip

    return gzip.compress(content, mtime=0)


def _traces(folder: Path) -> list[Kind]:
    count = 40
    seconds = [float(60 * n) for n in range(count)]
    requests = {"t_s": seconds, "input_tokens": [100.0] * count, "output_tokens": [50.0] * count}
    rates = {"t_s": seconds, "requests_per_s": [1.0 + n % 5 for n in range(count)], "model": ["m"] * count}
    philly = {
        "submit_utc": [_START + timedelta(hours=n) for n in range(count)], "duration_s": [3600.0] * count,
        "num_gpus": [4] * count, "virtual_cluster": ["vc"] * count,
    }  # fmt: skip
    openb = {
        "name": [f"p{n}" for n in range(count)], "num_gpu": [1] * count, "gpu_milli": [500] * count,
        "qos": ["LS", "BE"] * (count // 2),
        "pod_phase": ["Succeeded"] * count, "creation_time": [100 * n for n in range(count)],
        "scheduled_time": [100 * n + 1 for n in range(count)], "deletion_time": [100 * n + 5000 for n in range(count)],
    }  # fmt: skip
    gentd = {"pod": ["p"] * count, "t_s": seconds, "gpu_util_pct": [50.0] * count, "gpu_mem_used_bytes": [1e9] * count}
    dlrm = {
        "instance_sn": [f"i{n}" for n in range(count)], "app_name": ["a"] * count, "gpu_request": [1] * count,
        "creation_time": [100 * n for n in range(count)], "deletion_time": [100 * n + 5000 for n in range(count)],
    }  # fmt: skip
    zones = {"zone": ["a", "b"] * (count // 2), "t_s": seconds, "available_nodes": [1, 0] * (count // 2)}
    as_csv = _lines("t_s,input_tokens,output_tokens", *(f"{second},100,50" for second in seconds))
    return [
        Kind(
            name="traces of jobs and pods", wound=in_parquet,
            seeds=(_parquet(philly), _parquet(openb), _parquet(gentd), _parquet(dlrm)),
            read=_file(folder, "trace.parquet", read_trace), cost=20,
        ),
        Kind(
            name="traces of requests", seeds=(_parquet(requests), _parquet(rates)), wound=in_parquet,
            read=_file(folder, "requests.parquet", lambda path: (read_request_mix(path), read_series(path))), cost=10,
        ),
        Kind(
            name="traces as CSV", seeds=(as_csv,), wound=in_cells, read=_file(folder, "requests.csv", read_request_mix),
            cost=5,
        ),
        Kind(
            name="spot availability", seeds=(_parquet(zones),), wound=in_parquet,
            read=_file(folder, "zones.parquet", read_availability), cost=10,
        ),
    ]  # fmt: skip


def _requests(folder: Path) -> list[Kind]:
    log = _lines("start_s,latency_s,status", *(f"{n * 0.1},{0.2 + n % 7 / 100},200" for n in range(120)))
    bench = {
        "ttfts": [0.1] * 120, "itls": [[0.01, 0.01]] * 120, "start_times": [n * 0.1 for n in range(120)], "errors": [""] * 120,
        "duration": 12.0,
    }  # fmt: skip
    curve = _lines("batch,ms", *(f"{size},{5 + size}" for size in (1, 2, 4, 8)))
    arrivals = _lines("t_s", *(f"{n / 10}" for n in range(50)))
    return [
        Kind(
            name="request logs", seeds=(log,), wound=in_cells,
            read=_file(folder, "log.csv", lambda path: read_run(path, 2.0)), cost=10,
        ),
        Kind(
            name="request logs of vLLM", seeds=(json.dumps(bench).encode(),), wound=in_json,
            read=_file(folder, "bench.json", lambda path: read_run(path, 2.0)), cost=5,
        ),
        Kind(name="batch times", seeds=(curve,), wound=in_cells, read=_file(folder, "curve.csv", read_curve)),
        Kind(name="batch arrivals", seeds=(arrivals,), wound=in_cells, read=_file(folder, "arrivals.csv", read_arrivals)),
    ]  # fmt: skip


class _Carrier:
    """Answers every request of a Kubernetes API with one body."""

    def __init__(self, body: str) -> None:
        self._body = body

    def get(self, path: str, parameters: Mapping[str, str]) -> ApiAnswer:
        return ApiAnswer(status=200, body=self._body)


def _servers(folder: Path) -> list[Kind]:
    page = json.dumps({**json.loads(DUMP), "metadata": {}}).encode()
    labels = b'{"status":"success","data":[{"__name__":"up","pod":"p"}]}'

    def prometheus(content: bytes) -> object:
        transport = httpx.MockTransport(lambda request: httpx.Response(200, content=content))
        with Prometheus("http://fuzz.test", transport=transport, sleep=lambda seconds: None) as server:
            asked: tuple[Callable[[], object], ...] = (
                lambda: server.instant("up", 0.0),
                lambda: list(server.range("up", 0.0, 600.0, 60.0)),
                lambda: server.series(["up"], 0.0, 60.0),
                lambda: server.label_values("pod", 0.0, 60.0),
            )
            refused = []
            for ask in asked:
                try:
                    ask()
                except SourceError as error:
                    refused.append(error)
            if len(refused) == len(asked):
                raise refused[0]
            return len(refused)

    def kubernetes(content: bytes) -> object:
        body = content.decode("utf-8", "replace")
        return KubeApi(carrier=_Carrier(body), server="fuzz", pause=lambda seconds: None).read()

    def scrape(content: bytes) -> object:
        return read_scrape(content.decode("utf-8", "replace"))

    return [
        Kind(name="scrapes", seeds=tuple(f"{line}\n".encode() for line in BUILT_IN.splitlines()), wound=in_text, read=scrape),
        Kind(name="Prometheus answers", seeds=(ANSWER.encode(), labels), wound=in_json, read=prometheus, cost=30),
        Kind(name="Kubernetes API answers", seeds=(page,), wound=in_json, read=kubernetes, cost=5),
    ]  # fmt: skip


def _dumps(folder: Path) -> list[Kind]:
    import yaml

    def cluster(path: Path) -> object:
        objects = read_dumps([path])
        end = snapshot_moment(objects)
        made = collect_snapshot(objects, end - timedelta(days=14), end, source="fuzz")
        return check_bundle(memory_bundle(made.tables, made.meta))

    def slurm(path: Path) -> object:
        found = read_slurm([path, folder / "nodes.txt"], ZoneInfo("Europe/Berlin"))
        first, last = found.span
        if not first < last:
            raise InputError("no time passes in the dump")
        made = collect_slurm(found, first, last, gpu_names={}, source="fuzz")
        return check_bundle(memory_bundle(made.tables, made.meta))

    (folder / "nodes.txt").write_text(NODES)
    records = {
        "jobs": [
            {
                "job_id": 1, "name": "train", "user": "ana", "account": "vision", "partition": "gpu",
                "state": {"current": ["COMPLETED"]}, "time": {"submission": 1788200000, "start": 1788201000, "end": 1788300000},
                "tres": {"allocated": [{"type": "gres", "name": "gpu:a100", "count": 8}]}, "nodes": "gpu01",
            }
        ]
    }  # fmt: skip
    text = yaml.safe_dump(json.loads(DUMP)).encode()
    return [
        Kind(name="Kubernetes dumps", seeds=(DUMP.encode(),), wound=in_json, read=_file(folder, "dump.json", cluster), cost=30),
        Kind(name="Kubernetes dumps as YAML", seeds=(text,), wound=in_yaml, read=_file(folder, "dump.yaml", cluster), cost=40),
        Kind(
            name="Slurm records", seeds=(JOBS.encode(), (OWN / "slurm" / "jobs.txt").read_bytes()[:4000]), wound=in_text,
            read=_file(folder, "jobs.txt", slurm), cost=30,
        ),
        Kind(
            name="Slurm records as JSON", seeds=(json.dumps(records).encode(),), wound=in_json,
            read=_file(folder, "jobs.json", slurm), cost=30,
        ),
    ]  # fmt: skip


def _fits(folder: Path) -> list[Kind]:
    profile = {
        "schema_version": 1, "gpu": "A100-80GB", "gpus": 1, "started_epoch_s": 1.0, "wall_s": 60.0, "interval_s": 1.0,
        "program": {"pids": [1], "cpu_s": 1.0}, "torch": [{"step_s": 0.1}],
    }  # fmt: skip
    measured = (
        {"gpu": "A100-80GB", "tpot_ms": 20.0, "concurrency": 8, "tensor_parallel": 2},
        {"gpu": "H100-80GB", "metrics": {"http_req_duration": {"values": {"avg": 120.0}}, "vus": {"value": 4}}},
        {"gpu": "H100-80GB", "step_s": 0.5, "tokens_per_step": 4096},
    )
    config = {
        "num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
        "intermediate_size": 14336, "torch_dtype": "bfloat16",
    }  # fmt: skip
    names = {"kernel": "k", "gpu_memcpy": "Memcpy HtoD", "cpu_op": "enumerate(DataLoader)#__next__"}
    events = [
        {"ph": "X", "cat": cat, "name": name, "ts": 100.0 * n, "dur": 50.0}
        for n, (cat, name) in enumerate(names.items())
    ]

    def read_profile(path: Path) -> object:
        return checked_profile(profile_values(path))

    return [
        Kind(
            name="profiles", seeds=(json.dumps(profile).encode(),), wound=in_json,
            read=_file(folder, "profile.json", read_profile),
        ),
        Kind(
            name="calibrations", seeds=tuple(json.dumps(one).encode() for one in measured), wound=in_json,
            read=_file(folder, "measured.json", read_measured),
        ),
        Kind(
            name="model configurations", seeds=(json.dumps(config).encode(),), wound=in_json,
            read=_file(folder, "config.json", lambda path: model_of(str(path), None)),
        ),
        Kind(
            name="traces of torch", seeds=(json.dumps({"traceEvents": events}).encode(),), wound=in_json,
            read=_file(folder, "torch.json", read_torch_trace),
        ),
    ]  # fmt: skip


def _kept(folder: Path) -> list[Kind]:
    import numpy as np

    state = _EARLIER / "state" / "history" / "000001"
    outcome = encoded(
        Outcome(on_demand=np.arange(5), spot=np.zeros(5, dtype=np.int64), attained=(), interruptions=3, gpus=None)
    )

    def read_audit(path: Path) -> object:
        return parse_document(read_text(path), where=str(path))

    def read_plan(path: Path) -> object:
        return parse_kept_plan(read_text(path), where=str(path))

    def explain(path: Path) -> object:
        return _command("explain", "--audit", str(path))

    def read_outcome(content: bytes) -> object:
        connection = sqlite3.connect(":memory:")
        connection.execute("CREATE TABLE outcome (key TEXT PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID")
        connection.execute("INSERT INTO outcome VALUES ('p:k', ?)", (content,))
        try:
            return OutcomeCache(connection, "p", b"key").get("k")
        finally:
            connection.close()

    audit, plan = (state / "audit.json").read_bytes(), (state / "plan.json").read_bytes()
    fresh = render_kept_plan(parse_kept_plan(plan.decode(), where="a plan of 0.1.0")).encode()
    return [
        Kind(name="audits", seeds=(audit,), wound=in_json, read=_file(folder, "audit.json", read_audit), cost=20),
        Kind(
            name="kept plans", seeds=(plan, fresh), wound=in_json, read=_file(folder, "plan.json", read_plan), cost=20
        ),
        Kind(name="explain (command)", seeds=(audit,), wound=in_json, read=_file(folder, "a.json", explain), cost=60),
        Kind(name="kept outcomes", seeds=(outcome,), wound=in_bytes, read=read_outcome),
    ]


def damaged_input(kind: Kind, rng: random.Random) -> bytes:
    """Return one of a kind's valid inputs, damaged."""
    return kind.wound(rng.choice(kind.seeds), rng)
