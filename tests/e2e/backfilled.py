"""A real Prometheus over a backfilled history of one service, and the emitted expressions asked of it."""

import json
import math
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from contextlib import contextmanager

import yaml

EPOCH_S = 1_790_000_100
"""A moment that steps of 15 s divide."""
STEP_S = 15
_LETTERS = str.maketrans("0123456789", "bcdfghjklm")
"""Kubernetes makes up names of consonants and the digits 2 and 4 to 9."""
_TYPES = {
    "vllm:request_success": "counter",
    "vllm:prompt_tokens": "counter",
    "vllm:generation_tokens": "counter",
    "vllm:num_requests_waiting": "gauge",
    "kube_pod_status_ready": "gauge",
    "kube_deployment_status_replicas": "gauge",
}


def as_openmetrics(series, labels):
    """Recorded series as OpenMetrics text; a step's value stands at its end, a missing one is left out."""
    blocks = []
    for name, values in series.items():
        lines = [
            f"{name}{labels} {float(value)!r} {EPOCH_S + (step + 1) * STEP_S}"
            for step, value in enumerate(values)
            if not math.isnan(value)
        ]
        blocks.append(f"# TYPE {name} gauge\n" + "\n".join(lines))
    return "\n".join(blocks) + "\n# EOF\n"


def openmetrics(service, history, lengths=None):
    """The service's series as OpenMetrics text: each pod exports while it is up, from a counter of 0 on.

    `history` has `replicas`, `ready` and `served` by step, and `queue` at its end; pods share all of it evenly. `lengths`: by
    step how many requests, prompt tokens and answer tokens what is served is, each; else it is requests, and no tokens.
    """
    lengths = [(1.0, 0.0, 0.0)] * len(history.ready) if lengths is None else lengths
    series = {name: [] for name in _TYPES}
    most = int(max(history.ready))
    for pod in range(most):
        number = f"{pod:05d}".translate(_LETTERS)
        labels = f'namespace="{service.namespace}",pod="{service.short_name}-7d4b9c6f5-{number}"'
        for step, value in _pod_samples(history, pod, lengths):
            at = EPOCH_S + (step + 1) * STEP_S
            series["vllm:request_success"].append(f"vllm:request_success_total{{{labels}}} {value['served']!r} {at}")
            for name in ("prompt_tokens", "generation_tokens"):
                series[f"vllm:{name}"].append(f"vllm:{name}_total{{{labels}}} {value[name]!r} {at}")
            series["vllm:num_requests_waiting"].append(f"vllm:num_requests_waiting{{{labels}}} {value['queue']!r} {at}")
            series["kube_pod_status_ready"].append(
                f'kube_pod_status_ready{{{labels},condition="true"}} {value["ready"]} {at}'
            )
    labels = f'namespace="{service.namespace}",deployment="{service.short_name}"'
    for step, replicas in enumerate(history.replicas):
        at = EPOCH_S + (step + 1) * STEP_S
        series["kube_deployment_status_replicas"].append(f"kube_deployment_status_replicas{{{labels}}} {replicas} {at}")
    blocks = [f"# TYPE {name} {_TYPES[name]}\n" + "\n".join(lines) for name, lines in series.items()]
    return "\n".join(blocks) + "\n# EOF\n"


def _pod_samples(history, pod, lengths):
    """(step, counters and gauge) of a pod; it is scraped once before it serves."""
    counters = ("served", "prompt_tokens", "generation_tokens")
    nothing = dict.fromkeys(counters, 0.0)
    total = nothing
    if history.ready[0] > pod:
        yield -1, {"ready": 1, "queue": 0.0, **nothing}
    for step in range(len(history.ready)):
        up = history.ready[step] > pod
        if up:
            share = float(history.served[step] / history.ready[step])
            total = {name: total[name] + share * each for name, each in zip(counters, lengths[step], strict=True)}
            yield step, {"ready": 1, "queue": float(history.queue[step] / history.ready[step]), **total}
        else:
            total = nothing
            if step + 1 < len(history.ready) and history.ready[step + 1] > pod:
                yield step, {"ready": 0, "queue": 0.0, **nothing}


@contextmanager
def prometheus_over(text, rules, folder, prometheus_bin, promtool_bin):
    """Serve a backfilled history; yields the server's address. The rules must be ones that it accepts."""
    (folder / "history.txt").write_text(text, encoding="utf-8")
    (folder / "rules.yaml").write_text(yaml.safe_dump(rules), encoding="utf-8")
    (folder / "prometheus.yaml").write_text("rule_files: [rules.yaml]\n", encoding="utf-8")
    data = folder / "data"
    subprocess.run(
        [promtool_bin, "tsdb", "create-blocks-from", "openmetrics", str(folder / "history.txt"), str(data)],
        check=True,
        capture_output=True,
    )
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    command = [
        prometheus_bin,
        f"--config.file={folder / 'prometheus.yaml'}",
        f"--storage.tsdb.path={data}",
        "--storage.tsdb.retention.time=100y",
        f"--web.listen-address=127.0.0.1:{port}",
        # A backfill has no staleness markers: a pod that is gone must not be read for five more minutes.
        f"--query.lookback-delta={STEP_S - 1}s",
        "--log.level=error",
    ]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            _wait_until_ready(address)
            yield address
        finally:
            server.terminate()
            server.wait(timeout=10)


def _wait_until_ready(address):
    for _ in range(200):
        try:
            with urllib.request.urlopen(f"{address}/-/ready", timeout=1):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.05)
    raise TimeoutError("Prometheus did not start")


def ask(address, expression, steps):
    """The values of an expression at the end of each step, by label set: {labels: {step: value}}."""
    query = {
        "query": expression,
        "start": EPOCH_S + STEP_S,
        "end": EPOCH_S + steps * STEP_S,
        "step": STEP_S,
    }
    with urllib.request.urlopen(f"{address}/api/v1/query_range?{urllib.parse.urlencode(query)}", timeout=30) as answer:
        result = json.load(answer)["data"]["result"]
    return {
        tuple(sorted(one["metric"].items())): {
            round((at - EPOCH_S) / STEP_S) - 1: float(value) for at, value in one["values"]
        }
        for one in result
    }
