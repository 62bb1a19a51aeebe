"""Kubernetes Jobs that measure a user's own mix on each candidate GPU, to calibrate predictions with."""

from __future__ import annotations

import re

import yaml

from trimtab.emit.launch import vllm_serve
from trimtab.physics.found_ways import ServingOption
from trimtab.units import S_PER_DAY

IMAGE = "vllm/vllm-openai:v0.10.0"
PROMPTS_PER_SLOT = 10
"""Prompts for each concurrent request: long enough that the first burst weighs little (InferenceX uses ten)."""


def job_name(option: ServingOption) -> str:
    """Return a DNS label for a candidate."""
    return re.sub(
        r"[^a-z0-9]+", "-", f"bench-{option.gpu.name}-{option.tensor}x-{option.stored.value}".casefold()
    ).strip("-")


def bench_script(option: ServingOption, model: str, input_tokens: int, output_tokens: int) -> str:
    """Return the script: serve, wait for health, replay the mix, print the result as JSON."""
    serve = " ".join(vllm_serve(option, model, input_tokens + output_tokens).replace("\\\n", " ").split())
    prompts = option.concurrency * PROMPTS_PER_SLOT
    bench = (
        f"vllm bench serve --model {model} --dataset-name random --random-input-len {input_tokens} "
        f"--random-output-len {output_tokens} --max-concurrency {option.concurrency} --num-prompts {prompts} "
        "--save-result --result-filename /tmp/result.json"
    )
    wait = "until curl -sf localhost:8000/health; do sleep 5; done"
    return f"set -e\n{serve.split(' #')[0]} &\n{wait}\n{bench}\ncat /tmp/result.json\n"


def bench_job(option: ServingOption, model: str, input_tokens: int, output_tokens: int) -> str:
    """Return a Job that benchmarks one candidate on a node with its GPU; its log ends with the result."""
    container = {
        "name": "bench",
        "image": IMAGE,
        "command": ["bash", "-c", bench_script(option, model, input_tokens, output_tokens)],
        "resources": {"limits": {"nvidia.com/gpu": option.tensor}},
        "env": [{"name": "HF_HOME", "value": "/models"}],
        "volumeMounts": [{"name": "models", "mountPath": "/models"}, {"name": "shm", "mountPath": "/dev/shm"}],
    }
    pod = {
        "restartPolicy": "Never",
        "nodeSelector": {"nvidia.com/gpu.product": option.gpu.nvidia_smi_name.replace(" ", "-")},
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
        "containers": [container],
        "volumes": [{"name": "models", "emptyDir": {}}, {"name": "shm", "emptyDir": {"medium": "Memory"}}],
    }
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": job_name(option), "labels": {"app.kubernetes.io/created-by": "trimtab"}},
        "spec": {"backoffLimit": 0, "ttlSecondsAfterFinished": S_PER_DAY, "template": {"spec": pod}},
    }
    text: str = yaml.safe_dump(job, sort_keys=False)
    return text
