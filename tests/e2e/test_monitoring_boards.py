"""Boards asked of a real Prometheus: every panel shows something, in old and new styles and on recorded scrapes."""

import functools
import http.server
import json
import threading
import time

import httpx
import pytest
import yaml
from tests.e2e.conftest import RunningPrometheus
from tests.monitor.fleet import STYLES, WATCHED, gpu, node, owner

from trimtab.monitor.boards import boards
from trimtab.monitor.folders import rule_object
from trimtab.monitor.watched import Thresholds

SERVER = {
    "vllm:request_success_total": 100,
    "vllm:num_requests_waiting": 1,
    "vllm:num_requests_running": 2,
    "vllm:kv_cache_usage_perc": 0.4,
}
BUCKETS = {"0.5": 40, "1.0": 90, "+Inf": 100}


def first_value(series):
    return series["values"].split("x")[0]


def pages():
    """Exporters' pages by job: two styles of GPU telemetry, kube-state-metrics, a model server."""
    for job, style in (("old", STYLES["old names"]), ("new", STYLES["new names, exported labels"])):
        # a scrape that keeps its own labels renames the exporter's: Prometheus makes exported_pod of pod
        plain = style.__class__(names=style.names, node_label=style.node_label)
        held = [
            *gpu(plain, f"{job}-node", 0, "chat-api-7d4b9c6f5-x2x9k", "prod", mig="1", sm_active=0.3),
            *gpu(plain, f"{job}-node", 0, "embed-0", "prod", mig="2", sm_active=0),
            *gpu(plain, f"{job}-node", 1),
        ]
        tensor = "TENSOR_UTIL_RATIO" if job == "new" else "PIPE_TENSOR_ACTIVE"
        dram = "DRAM_UTIL_RATIO" if job == "new" else "DRAM_ACTIVE"
        labels = f'gpu="0",UUID="GPU-{job}-node-0",{plain.node_label}="{job}-node",pod="embed-0",namespace="prod"'
        lines = [f"{series['series']} {first_value(series)}" for series in held]
        lines += [f"DCGM_FI_PROF_{name}{{{labels}}} 0.2" for name in (tensor, dram)]
        yield job, "\n".join(lines) + "\n"
    kube = [*node("old-node"), *node("new-node"), *owner("prod", "embed-0", "Job")]
    yield "kube", "\n".join(f"{series['series']} {first_value(series)}" for series in kube) + "\n"
    labels = 'pod="chat-api-7d4b9c6f5-x2x9k",namespace="prod"'
    lines = [f"{name}{{{labels}}} {value}" for name, value in SERVER.items()]
    for histogram in ("vllm:e2e_request_latency_seconds", "vllm:time_to_first_token_seconds"):
        lines += [f'{histogram}_bucket{{{labels},le="{bound}"}} {count}' for bound, count in BUCKETS.items()]
    yield "server", "\n".join(lines) + "\n"


@pytest.fixture
def prometheus(prometheus_bin, tmp_path):
    """Run a server that scrapes the pages it is given, by job, with the emitted rules; return where it answers."""
    running = []

    def start(told):
        folder, exported, empty = tmp_path / "prometheus", tmp_path / "exported", tmp_path / "empty"
        for path in (folder, exported, empty):
            path.mkdir()
        for job, text in told.items():
            (exported / job).write_text(text, encoding="utf-8")
        handler = functools.partial(QuietHandler, directory=str(exported))
        exporter = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=exporter.serve_forever, daemon=True).start()
        spec = rule_object(WATCHED, Thresholds())["spec"]
        for group in spec["groups"]:
            group["interval"] = "1s"
        (folder / "rules.yaml").write_text(yaml.safe_dump(spec), encoding="utf-8")
        server = RunningPrometheus(prometheus_bin, empty, folder)
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(folder / "rules.yaml")],
            "scrape_configs": [
                {
                    "job_name": job,
                    "metrics_path": f"/{job}",
                    "honor_labels": job != "new",
                    "static_configs": [
                        {
                            "targets": [f"127.0.0.1:{exporter.server_port}"],
                            "labels": {"pod": "dcgm-exporter-x7k2p", "namespace": "gpu-operator"}
                            if job == "new"
                            else {},
                        }
                    ],
                }
                for job in told
            ],
        }
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config), encoding="utf-8")
        server.start()
        running.extend([server.stop, exporter.shutdown, exporter.server_close])
        return server.url

    yield start
    for stop in running:
        stop()


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


def queries():
    """(board, panel, its expressions with every variable at "all")."""
    for board in boards(WATCHED):
        for panel in json.loads(board.text)["panels"]:
            expressions = [target["expr"] for target in panel["targets"]]
            for name in ("$namespace", "$workload", "$node"):
                expressions = [expression.replace(name, ".*") for expression in expressions]
            yield board.uid, panel["title"], [text.replace("$__rate_interval", "10s") for text in expressions]


def answered(url, expression):
    answer = httpx.get(f"{url}/api/v1/query", params={"query": expression}, timeout=30).json()
    assert answer["status"] == "success", (expression, answer)
    return bool(answer["data"]["result"])


def silent_panels(url, titles):
    return {
        title for _, title, texts in queries() if title in titles and not any(answered(url, text) for text in texts)
    }


def eventually_silent(url, titles, patience_s=60):
    """The panels that stay empty."""
    end = time.monotonic() + patience_s
    while (silent := silent_panels(url, titles)) and time.monotonic() < end:
        time.sleep(1)
    return silent


def test_every_panel_shows_something_in_old_and_new_styles(prometheus):
    url = prometheus(dict(pages()))

    assert eventually_silent(url, {title for _, title, _ in queries()}) == set()


def test_every_gpu_panel_shows_something_on_recorded_scrapes(prometheus, shared_dir):
    samples = shared_dir / "data" / "telemetry" / "samples"
    told = {
        name: (samples / f"{name}.prom").read_text(encoding="utf-8")
        for name in ("dcgm_fraction_1_workload", "dcgm_a100_mig_4_active", "vllm_v1_qwen05b")
    }
    url = prometheus(told)

    # these scrapes lack SM occupancy, clock events and the node's labels, and the model server has no pod
    lacking = {"SM occupancy", "Slowed down by heat or power supply"}
    wanted = {title for board, title, _ in queries() if board in ("fleet", "gpus")} - lacking

    assert eventually_silent(url, wanted) == set()
