"""One's own measured point: a result of vllm bench, genai-perf or k6, or a profile; and measured over predicted.

Every form needs to say on which GPU it was measured: `gpu` in the file, or `--measured-on`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trimtab.catalog import Gpu
from trimtab.errors import UsageError
from trimtab.physics.boards import board
from trimtab.physics.models import Architecture
from trimtab.physics.offers import owned_offer
from trimtab.physics.search_serving import sweep
from trimtab.physics.search_training import TrainingDemand, search_training
from trimtab.physics.serving_demand import Demand
from trimtab.physics.serving_ways import ways_of
from trimtab.units import MS_PER_S

MOST_GPUS = 8
_TPOT_MS = ("tpot_ms", "mean_tpot_ms", "median_tpot_ms", "inter_token_latency")
"""Our own name, those of `vllm bench serve`, that of genai-perf (a record with `avg`, in milliseconds)."""
_LATENCY_MS = ("latency_ms", "mean_e2el_ms", "request_latency", "http_req_duration")
"""A whole request: our own name, vLLM's, genai-perf's, k6's (milliseconds all)."""
_CONCURRENCY = ("concurrency", "max_concurrency", "vus", "vus_max")
_TOK_S = ("tok_s", "tokens_per_s", "train_tokens_per_second")
"""Our own names, and the one that transformers' Trainer logs."""

_MOST = 1e15
"""No figure of a benchmark is larger."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A point that somebody measured; what it does not tell is None."""

    gpu: Gpu
    gpus: int
    tpot_s: float | None
    latency_s: float | None
    tok_s: float | None
    concurrency: int


def measured_point(content: object, where: str, on: str | None = None) -> Measured:
    """Return the point that a benchmark's result or a profile states; `on` names its GPU, `where` is for messages.

    Raises UsageError where the content cannot be a result, or hides its GPU.
    """
    if not isinstance(content, dict):
        raise UsageError(f"{where} must hold one JSON object: a result of vllm bench, genai-perf, k6, or a profile")
    fields = _flat(content)
    name = on or next(
        (content[key] for key in ("gpu", "gpu_name", "device") if isinstance(content.get(key), str)), None
    )
    if name is None:
        raise UsageError(
            f'{where} must say on which GPU it was measured: add "gpu": "A100-80GB", or give --measured-on'
        )
    tpot_ms, latency_ms = _number(fields, *_TPOT_MS), _number(fields, *_LATENCY_MS)
    return Measured(
        gpu=board(name),
        gpus=int(_number(fields, "tensor_parallel", "tensor_parallel_size", "gpus") or 1),
        tpot_s=None if tpot_ms is None else tpot_ms / MS_PER_S,
        latency_s=None if latency_ms is None else latency_ms / MS_PER_S,
        tok_s=_number(fields, *_TOK_S) or _by_step(fields),
        concurrency=int(_number(fields, *_CONCURRENCY) or 1),
    )


def _flat(content: Mapping[str, object]) -> Mapping[str, object]:
    """Return the fields that hold figures: k6 keeps its own under `metrics`, a newer k6 their figures under `values`."""
    metrics = content.get("metrics")
    return {**content, **metrics} if isinstance(metrics, Mapping) else content


def _number(fields: Mapping[str, object], *keys: str) -> float | None:
    """Return the first positive number under one of the keys; a record stands for its `avg`, `value` or `max`."""
    for key in keys:
        value = fields.get(key)
        if isinstance(value, Mapping):
            inner = value.get("values")
            record = inner if isinstance(inner, Mapping) else value
            value = next((record[name] for name in ("avg", "max", "value") if name in record), None)
        # to Python `true` is an int, but it is no measurement
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < _MOST:
            return float(value)
    return None


def _by_step(fields: Mapping[str, object]) -> float | None:
    """Return tokens a second from a profile's time of a step and its tokens."""
    step_s, tokens = _number(fields, "step_s", "step_s_p50"), _number(fields, "tokens_per_step")
    return tokens / step_s if step_s and tokens else None


def time_scale(model: Architecture, demand: Demand, engine: str, point: Measured | None) -> float:
    """Return measured over predicted time: per output token where it was measured, else of a whole request."""
    if point is None:
        return 1.0
    if point.tpot_s is None and point.latency_s is None:
        raise UsageError(
            "a serving calibration needs a time per output token (tpot_ms) or of a request (latency_ms) above 0"
        )
    ways, _ = ways_of(model, point.gpu, (owned_offer(point.gpu, MOST_GPUS),), demand, engine)
    # formats come widest first: a point that names none is taken to be of the widest that fits
    mine = next((way for way in ways if way.query.tensor == point.gpus), None)
    if mine is None:
        raise UsageError(
            f"the calibration point cannot have run: {model.name} does not fit {point.gpus} x {point.gpu.name}"
        )
    # at the very concurrency of the measurement, so that the ratio holds nothing but the model's error
    times = sweep([mine.query], [point.concurrency])
    tpot_s = float(times.tpot_s[0, 0])
    if point.tpot_s is not None:
        return point.tpot_s / tpot_s
    assert point.latency_s is not None
    # a request is its first token and then the others one by one, as in the search
    return point.latency_s / (float(times.ttft_s[0, 0]) + (demand.output_tokens - 1) * tpot_s)


def speed_scale(model: Architecture, demand: TrainingDemand, point: Measured | None) -> float:
    """Return measured over predicted tokens a second of one's own run."""
    if point is None:
        return 1.0
    if point.tok_s is None:
        raise UsageError("a training calibration needs tok_s above 0 (or step_s and tokens_per_step), gpu and gpus")
    # nothing is bought here, so price and deadline rule nothing out
    found, _ = search_training(model, [(point.gpu, (owned_offer(point.gpu, point.gpus),))], demand)
    mine = next((option for option in found if option.gpus == point.gpus), None)
    if mine is None:
        raise UsageError(
            f"the calibration point cannot have run: {model.name} does not fit {point.gpus} x {point.gpu.name}"
        )
    return point.tok_s / mine.tok_s.value
