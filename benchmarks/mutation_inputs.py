"""Every kind of file that trimtab reads. Here are those that people and trimtab write; others' are in `mutation_records`."""

from __future__ import annotations

import io
import json
import random
import shutil
import sqlite3
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.mutation_kinds import EARLIER, START, Kind, run_command, text_lines, via_file
from benchmarks.mutation_records import bills, dumps, evaluations, request_logs, scrapes, traces
from benchmarks.mutation_wounds import in_bytes, in_cells, in_json, in_parquet, in_text, in_yaml
from trimtab.catalog import load_catalog
from trimtab.check import Schemas, check_folder, differences, read_cluster
from trimtab.check.cluster import series_of
from trimtab.check.documents import read_folder
from trimtab.cli.allocate.run import read_budgets, read_token_use
from trimtab.cli.emit.run import LISTING, write_folder
from trimtab.cli.fit.inputs import model_of, read_measured
from trimtab.cli.kept_audits import KEPT, SEAL_BYTES, recall, recall_fleet, recall_plan
from trimtab.cli.made_plans import read_made
from trimtab.cli.outcome_cache import OutcomeCache, encoded, readable
from trimtab.cli.running import running_audits
from trimtab.cli.settings import resolve
from trimtab.emit.document import parse_document
from trimtab.emit.kept_plan import parse_kept_plan, render_kept_plan
from trimtab.emit.manifests.cluster_facts import with_cluster
from trimtab.emit.manifests.cluster_file import parse_cluster_file
from trimtab.emit.manifests.limit_ranges import containers_of
from trimtab.emit.verify_document import parse_verification
from trimtab.inputs.files import read_text
from trimtab.monitor.watched import read_thresholds
from trimtab.replay.outcomes.outcome import Outcome
from trimtab.review.manifests import read_objects
from trimtab.sources.bills.commitments import read_inventory, read_owned
from trimtab.sources.cheap_hours import read_cheap_hours
from trimtab.sources.clouds import read_quotas
from trimtab.sources.hour_grid import Cube, HourGrid, UsageKey
from trimtab.sources.kubernetes.manifests import read_manifests
from trimtab.sources.prometheus.dcgm import GpuLabels
from trimtab.sources.prometheus.gpu_series import Tally
from trimtab.sources.prometheus.journal import HourSpan, Journal
from trimtab.sources.traces.profiles import read_torch_trace
from trimtab.tables.arrow import arrow_schema
from trimtab.tables.bundle import parse_meta
from trimtab.tables.checks import checked_bundle
from trimtab.tables.profile_file import checked_profile, profile_values
from trimtab.tables.workloads import read_workloads
from trimtab.web.reviews import ReviewFolder
from trimtab.web.server import read_token


def file_kinds(folder: Path) -> tuple[Kind, ...]:
    """Return every kind of file; `folder` is where readers find the damaged ones."""
    makers = (
        _bundles, _declared, _checks, _prices, _commitments, bills, traces, request_logs, scrapes, dumps, _fits,
        evaluations, _kept, _collected,
    )  # fmt: skip
    return tuple(kind for make in makers for kind in make(folder))


def _bundles(folder: Path) -> list[Kind]:
    found = []
    for file in sorted((EARLIER / "bundle").glob("*.parquet")):
        copied = folder / f"bundle-{file.stem}"
        shutil.copytree(EARLIER / "bundle", copied, dirs_exist_ok=True)

        def read(content: bytes, at: Path = copied / file.name) -> object:
            at.write_bytes(content)
            return checked_bundle(at.parent)

        def allocate(content: bytes, at: Path = copied / file.name) -> object:
            at.write_bytes(content)
            return run_command("allocate", str(at.parent), "-q", "-o", "json")

        seeds = (file.read_bytes(),)
        found.append(Kind(name=f"bundle {file.stem}", seeds=seeds, wound=in_parquet, read=read, cost=30))
        found.append(Kind(name=f"allocate {file.stem}", seeds=seeds, wound=in_parquet, read=allocate, cost=200))
    return found


def _declared(folder: Path) -> list[Kind]:
    workloads = (
        (EARLIER / "bundle" / "workloads.yaml").read_bytes(),
        b"workloads:\n  prod/chat: {kind: serving, targets: [{metric: ttft, limit_s: 0.5}], cold_start_s: 60}\n",
    )
    meta = (EARLIER / "bundle" / "bundle.yaml").read_bytes()
    cluster = (
        b"autoscaler: keda\nrule_labels: {release: prom}\nquota_nodes: {p4d.24xlarge: 4}\nworkloads: {prod/chat: {}}\n"
    )
    settings = (
        b'[planning]\nproof_frac = 0.25\n[limits]\nregions = ["us-east-1"]\n[limits.quotas]\n"p4d.24xlarge" = 4\n'
    )
    manifests = tuple(
        path.read_bytes() for path in sorted((EARLIER / "manifests").rglob("*.yaml")) if path.stat().st_size < 4_000
    )
    kustomization = (
        b"kind: Kustomization\npatches:\n- target: {kind: Deployment, name: chat}\n"
        b"  patch: '[{op: replace, path: /spec/replicas, value: 3}]'\n"
    )

    shares = (
        b"kind: ConfigMap\nmetadata: {name: shares}\ndata:\n  halves: |\n    version: v1\n    sharing:\n"
        b"      timeSlicing: {renameByDefault: true, resources: [{name: nvidia.com/gpu, replicas: 2}]}\n"
    )

    def read_meta(path: Path) -> object:
        return parse_meta(read_text(path), where=str(path))

    def read_cluster(path: Path) -> object:
        return parse_cluster_file(read_text(path), where=str(path))

    return [
        Kind(name="workloads.yaml", seeds=workloads, wound=in_yaml, read=via_file(folder, "workloads.yaml", read_workloads)),
        Kind(name="bundle.yaml", seeds=(meta,), wound=in_yaml, read=via_file(folder, "bundle.yaml", read_meta)),
        Kind(name="cluster file", seeds=(cluster,), wound=in_yaml, read=via_file(folder, "cluster.yaml", read_cluster)),
        Kind(
            name="settings", seeds=(settings,), wound=in_text,
            read=via_file(folder, "trimtab.toml", lambda path: resolve(file=path, environ={}, flags=())), cost=5,
        ),
        Kind(
            name="manifests", seeds=(*manifests[:12], kustomization, shares), wound=in_yaml,
            read=via_file(folder, "manifest.yaml", lambda path: read_objects(read_manifests(path))), cost=5,
        ),
    ]  # fmt: skip


def _prices(folder: Path) -> list[Kind]:
    rates = text_lines(
        "provider,instance_type,region,option,usd_hr,as_of,note,gpu,gpu_count",
        "aws,p5.48xlarge,us-east-1,on-demand,40.0,2026-01-01,ours,,",
        "lab,box,,on-demand,1.5,,,H100-80GB,8",
    )
    listed = (
        b"prices:\n- {provider: aws, instance_type: p5.48xlarge, option: on-demand, usd_hr: 40.0}\n"
        b"owned:\n- {instance_type: box, capital_usd: 200000, years: 4, power_w: 6000, pue: 1.3, electricity_usd_kwh: 0.1,"
        b" gpu: A100-80GB, gpu_count: 8}\n"
    )
    uses = text_lines(
        "service,consumer,input_tokens,output_tokens,cached_tokens",
        "apps/chat,acme,1200000,300000,0",
        "apps/chat,lora-7,5000,800,1000",
    )
    quotas = text_lines(
        "provider,instance_type,region,capacity_type,nodes,limit,unit,per_node,used,quota,code",
        "aws,p4d.24xlarge,us-east-1,on-demand,4,384,vCPU,96,96,Running On-Demand P instances,L-417A185B",
    )
    hours = text_lines("hour,usd_factor", *(f"{hour},{1 + hour / 24}" for hour in range(24)))

    def command(path: Path) -> object:
        return run_command("prices", "--prices", str(path), "-o", "csv")

    return [
        Kind(name="prices.csv", seeds=(rates,), wound=in_cells, read=via_file(folder, "p.csv", load_catalog), cost=3),
        Kind(name="prices.yaml", seeds=(listed,), wound=in_yaml, read=via_file(folder, "p.yaml", load_catalog), cost=3),
        Kind(name="prices (command)", seeds=(rates,), wound=in_cells, read=via_file(folder, "pc.csv", command), cost=300),
        Kind(name="quotas", seeds=(quotas,), wound=in_cells, read=via_file(folder, "quotas.csv", read_quotas)),
        Kind(name="use of tokens", seeds=(uses,), wound=in_cells, read=via_file(folder, "uses.csv", read_token_use)),
        Kind(name="cheap hours", seeds=(hours,), wound=in_cells, read=via_file(folder, "hours.csv", read_cheap_hours)),
        Kind(
            name="budgets", seeds=(b"name,usd_mo\nresearch,12000\nassist,500\n",), wound=in_cells,
            read=via_file(folder, "budgets.csv", read_budgets),
        ),
    ]  # fmt: skip


def _commitments(folder: Path) -> list[Kind]:
    owned = text_lines(
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
        Kind(name="owned", seeds=(owned,), wound=in_cells, read=via_file(folder, "owned.csv", read_owned)),
        Kind(
            name="inventories", seeds=tuple(json.dumps(one).encode() for one in documents), wound=in_json,
            read=via_file(folder, "held.json", read), cost=2,
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
            read=via_file(folder, "profile.json", read_profile),
        ),
        Kind(
            name="calibrations", seeds=tuple(json.dumps(one).encode() for one in measured), wound=in_json,
            read=via_file(folder, "measured.json", read_measured),
        ),
        Kind(
            name="model configurations", seeds=(json.dumps(config).encode(),), wound=in_json,
            read=via_file(folder, "config.json", lambda path: model_of(str(path), None)),
        ),
        Kind(
            name="traces of torch", seeds=(json.dumps({"traceEvents": events}).encode(),), wound=in_json,
            read=via_file(folder, "torch.json", read_torch_trace),
        ),
    ]  # fmt: skip


def _kept(folder: Path) -> list[Kind]:
    state = EARLIER / "state" / "history" / "000001"
    outcome = encoded(
        Outcome(on_demand=np.arange(5), spot=np.zeros(5, dtype=np.int64), attained=(), interruptions=3, gpus=None)
    )

    def read_audit(path: Path) -> object:
        return parse_document(read_text(path), where=str(path))

    def read_plan(path: Path) -> object:
        return parse_kept_plan(read_text(path), where=str(path))

    def explain(path: Path) -> object:
        return run_command("explain", "--audit", str(path))

    def read_outcome(content: bytes) -> object:
        connection = sqlite3.connect(":memory:")
        connection.execute("CREATE TABLE outcome (key TEXT PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID")
        connection.execute("INSERT INTO outcome VALUES ('p:k', ?)", (content,))
        try:
            return OutcomeCache(connection, "p", b"key").get("k"), readable(content)
        finally:
            connection.close()

    def read_kept(content: bytes) -> object:
        kept = folder / "kept" / "000001"
        kept.mkdir(parents=True, exist_ok=True)
        (kept / KEPT).write_bytes(content)
        return recall_fleet(kept), recall(kept), recall_plan(kept)

    def read_listing(content: bytes) -> object:
        out = folder / "emitted"
        out.mkdir(exist_ok=True)
        (out / LISTING).write_bytes(content)
        write_folder(out, {"APPLY.md": "apply\n", "stage/pool.yaml": "kind: NodePool\n"})
        return out

    def read_verified(path: Path) -> object:
        return parse_verification(read_text(path), where=str(path))

    def read_review(path: Path) -> object:
        return ReviewFolder(folder=path.parent).review(path.stem)

    def read_unsealed(path: Path) -> object:
        return read_made(path, b"key", bytes(SEAL_BYTES), None)

    def read_running(path: Path) -> object:
        return running_audits(path.parent.parent)

    audit, plan = (state / "audit.json").read_bytes(), (state / "plan.json").read_bytes()
    both = b"\n".join([*(json.dumps(json.loads(part)).encode() for part in (audit, plan)), b"0f" * 32])
    listing = b"%s  APPLY.md\n%s  stage/pool.yaml\n" % (b"a" * 64, b"b" * 64)
    fresh = render_kept_plan(parse_kept_plan(plan.decode(), where="a plan of 0.1.0")).encode()
    review = {"schema_version": 1, "rows": [
        {"workload": "prod/api", "change_usd_mo": -120.5, "changes": "2 replicas at least", "target": "latency p95",
         "before_frac": 0.99, "after_frac": 0.94, "required_frac": 0.95, "verdict": "BROKEN"},
        {"workload": "ml/train", "changes": "nothing"},
    ]}  # fmt: skip
    progress = {"fleet": "fleet/", "started": "2026-11-20T10:00:00+00:00", "stage": "replaying", "done_frac": 0.4}
    (folder / "running").mkdir(exist_ok=True)
    return [
        Kind(name="audits", seeds=(audit,), wound=in_json, read=via_file(folder, "audit.json", read_audit), cost=20),
        Kind(
            name="kept plans", seeds=(plan, fresh), wound=in_json, read=via_file(folder, "plan.json", read_plan), cost=20
        ),
        Kind(name="explain (command)", seeds=(audit,), wound=in_json, read=via_file(folder, "a.json", explain), cost=60),
        Kind(name="kept outcomes", seeds=(outcome,), wound=in_bytes, read=read_outcome),
        Kind(
            name="made plans", seeds=(bytes(2 * SEAL_BYTES) + outcome,), wound=in_bytes,
            read=via_file(folder, "made.plan", read_unsealed),
        ),
        Kind(name="kept audit with its plan", seeds=(both,), wound=in_text, read=read_kept, cost=30),
        Kind(name="listing of emitted files", seeds=(listing,), wound=in_text, read=read_listing, cost=5),
        Kind(
            name="verifications", seeds=((EARLIER / "verify.json").read_bytes(),), wound=in_json,
            read=via_file(folder, "verify.json", read_verified),
        ),
        Kind(
            name="reviews", seeds=(json.dumps(review).encode(),), wound=in_json,
            read=via_file(folder, "review.json", read_review),
        ),
        Kind(
            name="progress of audits", seeds=(json.dumps(progress).encode(),), wound=in_json,
            read=via_file(folder, "running/1.json", read_running),
        ),
    ]  # fmt: skip


def _checks(folder: Path) -> list[Kind]:
    thresholds = b"underused_frac: 0.3\nhot_c: 85\nidle_min: 30\nrunbooks: https://wiki/x\n"
    manifests = tuple(
        path.read_bytes() for path in sorted((EARLIER / "manifests").rglob("*.yaml")) if path.stat().st_size < 4_000
    )[:12]
    config = (
        b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c, namespace: gpu-operator}\ndata:\n  config.yaml: |\n"
        b"    version: v1\n    mig-configs:\n      all-1g: [{devices: all, mig-enabled: true, mig-devices: {1g.10gb: 7}}]\n"
        b"    sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}\n"
    )
    scaler = (
        b"apiVersion: keda.sh/v1alpha1\nkind: ScaledObject\nmetadata: {name: s, namespace: n}\nspec:\n"
        b"  scaleTargetRef: {name: chat}\n  maxReplicaCount: 4\n  triggers:\n"
        b"  - {type: prometheus, metadata: {serverAddress: 'http://p:9090', query: 'sum(rate(vllm:request_success_total[5m]))',"
        b" threshold: '2'}}\n"
    )
    kustomization = (
        b"apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [manifest.yaml]\npatches:\n"
        b"- target: {kind: Deployment, name: chat}\n  patch: '[{op: replace, path: /spec/replicas, value: 3}]'\n"
    )
    crd = {
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "pools.x.io"},
        "spec": {"group": "x.io", "names": {"kind": "Pool"}, "versions": [{"name": "v1", "schema": {"openAPIV3Schema": {
            "type": "object", "properties": {"spec": {"type": "object", "required": ["size"], "properties": {
                "size": {"type": "integer", "minimum": 1}, "name": {"type": "string", "pattern": "^[a-z]+$"}},
                "x-kubernetes-validations": [{"rule": "self.size < 10", "message": "small"}]}}}}}]},
    }  # fmt: skip
    series = text_lines("DCGM_FI_DEV_GPU_UTIL", "vllm:num_requests_running")
    named = b'{"status": "success", "data": ["up", "DCGM_FI_DEV_GPU_UTIL"]}'
    catalog = load_catalog()
    checked, own = folder / "checked", folder / "own"
    checked.mkdir()
    own.mkdir()
    (own / "pool.yaml").write_text("apiVersion: x.io/v1\nkind: Pool\nmetadata: {name: p}\nspec: {size: 12, name: B}\n")

    def check(path: Path) -> object:
        return check_folder(path.parent, catalog, build=False)

    def patched(path: Path) -> object:
        (path.parent / "manifest.yaml").write_bytes(manifests[0])
        return check_folder(path.parent, catalog, build=False)

    def crds(path: Path) -> object:
        schemas = Schemas.of_crds([document for _, document in read_manifests(path)])
        return check_folder(own, catalog, schemas=schemas, build=False)

    def against(path: Path) -> object:
        return differences(read_folder(own), read_cluster(path))

    (folder / "patched").mkdir()
    return [
        Kind(
            name="thresholds", seeds=(thresholds,), wound=in_yaml, read=via_file(folder, "thresholds.yaml", read_thresholds)
        ),
        Kind(
            name="emit --check", seeds=(*manifests, config, scaler), wound=in_yaml, read=via_file(checked, "m.yaml", check),
            cost=60,
        ),
        Kind(
            name="emit --check of patches", seeds=(kustomization,), wound=in_yaml,
            read=via_file(folder / "patched", "kustomization.yaml", patched), cost=60,
        ),
        Kind(
            name="schemas of a cluster", seeds=(json.dumps(crd).encode(),), wound=in_json,
            read=via_file(folder, "crds.json", crds), cost=60,
        ),
        Kind(
            name="emit --diff", seeds=manifests, wound=in_yaml, read=via_file(folder, "against.yaml", against), cost=10
        ),
        Kind(
            name="names of series", seeds=(series, named), wound=in_text, read=via_file(folder, "series.txt", series_of)
        ),
        Kind(name="token files", seeds=(b"t" * 40 + b"\n",), wound=in_text, read=via_file(folder, "token", read_token)),
    ]  # fmt: skip


def _collected(folder: Path) -> list[Kind]:
    """Return what a collect keeps while it runs, and what it says of pods, whose cells are read again by emit."""
    grid = HourGrid(start_s=7200, hours=3)
    key = UsageKey("GPU-0", "prod", "chat-0")
    cube = Cube(grid=grid, values={"samples": {key: np.ones(3)}, "sm_active_mean": {key: np.ones(3)}})
    labels = GpuLabels(
        device="GPU-0", uuid="GPU-0", product="A100", node="n0", mig_profile="", namespace="prod", pod="chat-0"
    )
    tally = Tally(devices={"GPU-0": labels}, counts={"clamped": 2})
    journal = Journal(folder=folder / "journal")
    journal.write(grid, HourSpan(cube=cube, bins={key: {1: [0] * 100 + [7]}}, tally=tally, basis="raw samples"))
    (kept,) = (folder / "journal").iterdir()
    span = kept.read_bytes()
    plan = parse_kept_plan(
        (EARLIER / "state" / "history" / "000001" / "plan.json").read_text(encoding="utf-8"), where="a plan of 0.1.0"
    )
    pod = dict.fromkeys(arrow_schema("pods").names)
    claim = {"place": 0, "name": "gpu", "template": "t", "api_version": "resource.k8s.io/v1", "spec": {"devices": {}}}
    pod |= {
        "workload": plan.facts.workloads[0].name, "namespace": "prod", "pod": "chat-0", "created": START,
        "gpu_containers": "0:limits:args", "gpu_claims": json.dumps([claim]), "gpus_requested": 1.0, "phase": "Running",
        "containers": json.dumps([{"limits": {"nvidia.com/gpu": 1.0}, "requests": {"cpu": 4.0}, "role": "sidecar"}]),
    }  # fmt: skip
    pods = pa.Table.from_pylist([pod], schema=arrow_schema("pods"))
    stream = io.BytesIO()
    pq.write_table(pods, stream)
    copied = folder / "with-pods"
    shutil.copytree(EARLIER / "bundle", copied)

    def read_span(content: bytes) -> object:
        kept.write_bytes(content)
        return journal.read(grid)

    def read_pods(content: bytes) -> object:
        (copied / "pods.parquet").write_bytes(content)
        bundle = checked_bundle(copied)
        rows = {name: bundle.table(name).to_pylist() for name in ("nodes", "allocations", "pods", "scalers")}
        judged = [containers_of(row["containers"]) for row in rows["pods"] if row["containers"]]
        return judged, with_cluster(
            plan.facts,
            bundle.end,
            nodes=rows["nodes"],
            held=rows["allocations"],
            pods=rows["pods"],
            scalers=rows["scalers"],
        )

    return [
        Kind(name="journal of a collect", seeds=(span,), wound=in_parquet, read=read_span, cost=20),
        Kind(name="bundle pods", seeds=(stream.getvalue(),), wound=in_parquet, read=read_pods, cost=40),
    ]


def damaged_input(kind: Kind, rng: random.Random) -> bytes:
    """Return one of a kind's valid inputs, damaged."""
    return kind.wound(rng.choice(kind.seeds), rng)
