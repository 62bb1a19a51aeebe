"""Files that other systems write: bills, recorded traces, logs of requests, scrapes, dumps of clusters, evaluations."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import yaml

from benchmarks.fuzz import BUILT_IN
from benchmarks.fuzz_places import DUMP, JOBS, NODES
from benchmarks.mutation_kinds import OWN, START, Kind, parquet_bytes, refusal, run_command, text_lines, via_file
from benchmarks.mutation_wounds import in_bytes, in_cells, in_json, in_lines, in_parquet, in_text, in_yaml
from benchmarks.reference.scrape import read_scrape
from trimtab.cli.replay.run import read_availability
from trimtab.diagnose.bill_split import COLUMNS, ChargeBasis, charges_of
from trimtab.diagnose.quality import QualityRule, judged, paired
from trimtab.errors import InputError
from trimtab.pipeline.canary import read_run
from trimtab.sources.bills.focus import read_bills
from trimtab.sources.demo.trace import read_series
from trimtab.sources.evaluations import read_evaluation
from trimtab.sources.kubernetes.objects import read_dumps
from trimtab.sources.kubernetes.snapshot import collect_snapshot, snapshot_moment
from trimtab.sources.slurm import collect_slurm, read_slurm
from trimtab.sources.traces import read_trace
from trimtab.sources.traces.batch_files import read_arrivals, read_curve
from trimtab.sources.traces.request_mix import read_request_mix
from trimtab.tables.bundle import memory_bundle
from trimtab.tables.checks import check_bundle
from trimtab.tables.quality_evidence import read_evidence


def bills(folder: Path) -> list[Kind]:
    focus, cur = ((OWN / "bills" / name).read_bytes() for name in ("focus_1_2.csv", "cur_2_0.csv"))
    day = timedelta(days=1)
    packed = parquet_bytes(
        {
            "ChargePeriodStart": [START, START + day], "ChargePeriodEnd": [START + day, START + 2 * day],
            "BilledCost": [10.0, -5.0], "EffectiveCost": [9.0, -5.0], "BillingCurrency": ["USD", "USD"],
            "ChargeCategory": ["Usage", "Credit"], "ResourceId": ["i-0abc", None], "Tags": ['{"team": "a"}', None],
        }
    )  # fmt: skip

    def read(path: Path) -> object:
        costs = read_bills([path]).table.select(COLUMNS)
        return [charges_of(costs, basis, {"EUR": 1.1, "GBP": 1.2}) for basis in ChargeBasis]

    return [
        Kind(name="bill FOCUS", seeds=(focus,), wound=in_cells, read=via_file(folder, "focus.csv", read), cost=30),
        Kind(name="bill CUR", seeds=(cur,), wound=in_cells, read=via_file(folder, "cur.csv", read), cost=30),
        Kind(
            name="bill Parquet", seeds=(packed,), wound=in_parquet, read=via_file(folder, "bill.parquet", read), cost=30
        ),
        Kind(
            name="bill gzip",
            seeds=(gzip.compress(focus, mtime=0),),
            wound=in_bytes,
            read=via_file(folder, "bill.csv.gz", read),
            cost=30,
        ),
    ]


def traces(folder: Path) -> list[Kind]:
    count = 40
    seconds = [float(60 * n) for n in range(count)]
    requests = {"t_s": seconds, "input_tokens": [100.0] * count, "output_tokens": [50.0] * count}
    rates = {"t_s": seconds, "requests_per_s": [1.0 + n % 5 for n in range(count)], "model": ["m"] * count}
    philly = {
        "submit_utc": [START + timedelta(hours=n) for n in range(count)], "duration_s": [3600.0] * count,
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
    as_csv = text_lines("t_s,input_tokens,output_tokens", *(f"{second},100,50" for second in seconds))
    return [
        Kind(
            name="traces of jobs and pods", wound=in_parquet,
            seeds=(parquet_bytes(philly), parquet_bytes(openb), parquet_bytes(gentd), parquet_bytes(dlrm)),
            read=via_file(folder, "trace.parquet", read_trace), cost=20,
        ),
        Kind(
            name="traces of requests", seeds=(parquet_bytes(requests), parquet_bytes(rates)), wound=in_parquet,
            read=via_file(folder, "requests.parquet", lambda path: (read_request_mix(path), read_series(path))), cost=10,
        ),
        Kind(
            name="traces as CSV", seeds=(as_csv,), wound=in_cells, read=via_file(folder, "requests.csv", read_request_mix),
            cost=5,
        ),
        Kind(
            name="spot availability", seeds=(parquet_bytes(zones),), wound=in_parquet,
            read=via_file(folder, "zones.parquet", read_availability), cost=10,
        ),
    ]  # fmt: skip


def request_logs(folder: Path) -> list[Kind]:
    log = text_lines("start_s,latency_s,status", *(f"{n * 0.1},{0.2 + n % 7 / 100},200" for n in range(120)))
    bench = {
        "ttfts": [0.1] * 120, "itls": [[0.01, 0.01]] * 120, "start_times": [n * 0.1 for n in range(120)], "errors": [""] * 120,
        "duration": 12.0,
    }  # fmt: skip
    curve = text_lines("batch,ms", *(f"{size},{5 + size}" for size in (1, 2, 4, 8)))
    arrivals = text_lines("t_s", *(f"{n / 10}" for n in range(50)))
    return [
        Kind(
            name="request logs", seeds=(log,), wound=in_cells,
            read=via_file(folder, "log.csv", lambda path: read_run(path, 2.0)), cost=10,
        ),
        Kind(
            name="request logs of vLLM", seeds=(json.dumps(bench).encode(),), wound=in_json,
            read=via_file(folder, "bench.json", lambda path: read_run(path, 2.0)), cost=5,
        ),
        Kind(name="batch times", seeds=(curve,), wound=in_cells, read=via_file(folder, "curve.csv", read_curve)),
        Kind(name="batch arrivals", seeds=(arrivals,), wound=in_cells, read=via_file(folder, "arrivals.csv", read_arrivals)),
    ]  # fmt: skip


def scrapes(_folder: Path) -> list[Kind]:
    def scrape(content: bytes) -> object:
        return read_scrape(content.decode("utf-8", "replace"))

    openmetrics = (
        "# TYPE vllm:time_to_first_token_seconds histogram\n# UNIT vllm:time_to_first_token_seconds seconds\n"
        'vllm:time_to_first_token_seconds_bucket{le="0.5",model_name="m"} 12 # {trace_id="a"} 0.4 1788200000.1\n'
        'vllm:time_to_first_token_seconds_bucket{le="+Inf",model_name="m"} 15\nvllm:time_to_first_token_seconds_sum 6.5\n'
        "vllm:time_to_first_token_seconds_count 15\nvllm:request_success_total 15 1788200000000\n# EOF\n"
    )
    dcgm = (
        "# HELP DCGM_FI_PROF_SM_ACTIVE The ratio of cycles.\n# TYPE DCGM_FI_PROF_SM_ACTIVE gauge\n"
        'DCGM_FI_PROF_SM_ACTIVE{gpu="0",UUID="GPU-1",modelName="NVIDIA A100-SXM4-80GB",namespace="n",pod="p"} 0.61\n'
        'DCGM_FI_DEV_FB_USED{gpu="0",UUID="GPU-1",pod="say \\"hi\\""} NaN\n'
    )
    seeds = (*(f"{line}\n" for line in BUILT_IN.splitlines()), openmetrics, dcgm)
    return [Kind(name="scrapes", seeds=tuple(seed.encode() for seed in seeds), wound=in_text, read=scrape)]


_METADATA = {"name": "team", "namespace": "ml"}
_LIMITS = (
    {"apiVersion": "v1", "kind": "LimitRange", "metadata": _METADATA, "spec": {"limits": [
        {"type": "Container", "max": {"nvidia.com/gpu": "4", "memory": "64Gi"}, "default": {"cpu": "500m"},
         "maxLimitRequestRatio": {"cpu": 4}}]}},
    {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": _METADATA, "spec": {
        "hard": {"requests.nvidia.com/gpu": "8", "pods": 9}, "scopeSelector": {"matchExpressions": [
            {"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}]}}},
    {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": "team"}, "spec": {
        "weight": 1, "reclaimable": False, "parent": "root", "capability": {"nvidia.com/gpu": 8},
        "deserved": {"nvidia.com/gpu": "4"}, "guarantee": {"resource": {"nvidia.com/gpu": 2}}},
     "status": {"allocated": {"nvidia.com/gpu": "3"}, "pending": 2}},
)  # fmt: skip


def dumps(folder: Path) -> list[Kind]:
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
    limits = json.dumps({"kind": "List", "items": [*json.loads(DUMP)["items"], *_LIMITS]}).encode()
    return [
        Kind(
            name="Kubernetes dumps", seeds=(DUMP.encode(), limits), wound=in_json,
            read=via_file(folder, "dump.json", cluster), cost=30,
        ),
        Kind(
            name="Kubernetes dumps as YAML", seeds=(text,), wound=in_yaml,
            read=via_file(folder, "dump.yaml", cluster), cost=40,
        ),
        Kind(
            name="Slurm records", seeds=(JOBS.encode(), (OWN / "slurm" / "jobs.txt").read_bytes()[:4000]), wound=in_text,
            read=via_file(folder, "jobs.txt", slurm), cost=30,
        ),
        Kind(
            name="Slurm records as JSON", seeds=(json.dumps(records).encode(),), wound=in_json,
            read=via_file(folder, "jobs.json", slurm), cost=30,
        ),
    ]  # fmt: skip


def evaluations(folder: Path) -> list[Kind]:
    count = 120
    plain = text_lines(
        *(json.dumps({"id": n, "score": n % 3 == 0, "subject": f"s{n % 2}", "task": "t"}) for n in range(count))
    )
    harness = text_lines(
        *(
            json.dumps(
                {"doc_id": n, "doc": {"category": f"c{n % 3}"}, "filter": "none", "metrics": ["acc"], "acc": n % 2,
                 "doc_hash": f"h{n}"}
            )
            for n in range(count)
        )
    )  # fmt: skip
    results = {"results": {"law": {"acc,none": 0.5}}, "versions": {"law": 1}, "n-shot": {"law": 5},
               "higher_is_better": {"law": {"acc": True}}}  # fmt: skip
    helm = [
        {"instance_id": f"id{n}", "train_trial_index": 0, "stats": [{"name": {"name": "exact_match"}, "mean": n % 2}]}
        for n in range(count)
    ]  # fmt: skip
    verdict = {
        "kind": "trimtab-quality", "schema_version": 1, "verdict": "accept", "because": "b", "format": "fp8",
        "decided_on": "2026-11-20", "look": 1, "alpha_frac": 0.05, "margin_frac": 0.02, "pairs": 500, "tasks": ["t"],
        "baseline_frac": 0.7, "candidate_frac": 0.695, "loss_frac": 0.005, "low_frac": -0.004, "high_frac": 0.013,
        "method": "m", "seen": ["a"],
    }  # fmt: skip

    def against(name: str, whole: bytes) -> Callable[[Path], object]:
        """Return what reads a folder and pairs it with what was there before it was damaged."""
        baseline = folder / f"baseline-{name}" / "run"
        baseline.mkdir(parents=True)
        (baseline / name).write_bytes(whole)

        def read(path: Path) -> object:
            pairs = paired(read_evaluation(baseline, slice_fields=()), read_evaluation(path), drop_unpaired=True)
            return judged(pairs, QualityRule(margin_frac=0.02))

        return read

    def beside(path: Path) -> object:
        (path.parent / "samples_law_2026-11-20T10-00-00.1.jsonl").write_bytes(harness)
        return read_evaluation(path.parent, slice_fields=("category",))

    def means(path: Path) -> object:
        return refusal(lambda: read_evaluation(path))

    def command(path: Path) -> object:
        return run_command(
            "quality", "--baseline", str(folder / "baseline-a.jsonl"), "--candidate", str(path), "-o", "json"
        )

    run = folder / "run"
    run.mkdir()
    (folder / "harness").mkdir()
    samples = "samples_law_2026-11-20T10-00-00.1.jsonl"
    stats = json.dumps(helm).encode()
    reading = against("a.jsonl", plain)
    stated = json.dumps(results).encode()
    return [
        Kind(name="evaluations as JSONL", seeds=(plain,), wound=in_lines, read=via_file(folder, "b.jsonl", reading), cost=20),
        Kind(
            name="evaluations of the harness", seeds=(harness,), wound=in_lines,
            read=via_file(folder, samples, against(samples, harness)), cost=20,
        ),
        Kind(
            name="results of the harness", seeds=(stated,), wound=in_json,
            read=via_file(folder / "harness", "results_2026-11-20T10-00-00.1.json", beside), cost=10,
        ),
        Kind(name="means of the harness", seeds=(stated,), wound=in_json, read=via_file(folder, "results.json", means)),
        Kind(
            name="evaluations of HELM", seeds=(stats,), wound=in_json,
            read=via_file(run, "per_instance_stats.json", against("per_instance_stats.json", stats)), cost=10,
        ),
        Kind(
            name="verdicts", seeds=(json.dumps(verdict).encode(),), wound=in_json,
            read=via_file(folder, "verdict.json", read_evidence),
        ),
        Kind(
            name="quality (command)", seeds=(plain,), wound=in_lines, read=via_file(folder, "c.jsonl", command), cost=80
        ),
    ]  # fmt: skip
