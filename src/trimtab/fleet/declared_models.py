"""Workloads whose model is declared: memory and speed of serving and training it on any GPU, from physics.

Serving: ratios alone come from physics, time of a request there over time here, at the fleet's own token mix and concurrency.
The workload's observed latency and capacity are the constant.

Training: only ratios are taken from physics, the declared plan's computed memory is fixed to the observed peak, its predicted
speed to the runs' own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil

import numpy as np

from trimtab.catalog import Gpu
from trimtab.errors import UnknownName
from trimtab.fleet.model import ServiceObservation, Workload
from trimtab.physics.footprint import Parallel, Serving, inference_footprint
from trimtab.physics.formats import WeightFormat, weight_format
from trimtab.physics.measured_models import find_measured_model, relative_of
from trimtab.physics.models import Architecture, resolve_model
from trimtab.physics.predict import calibrated, coefficients_of, predict_training, times_of
from trimtab.physics.search_training import FINETUNE_FRAMEWORK
from trimtab.physics.serving import TokenSeconds, default_step_tokens, step_times, token_seconds
from trimtab.physics.serving_query import Load, ServingQuery, kv_value_bytes, serving_columns
from trimtab.physics.training import (
    Method,
    Optimizer,
    Recompute,
    Sharding,
    Training,
    query_of,
    training_footprint,
)
from trimtab.provenance import Estimate

ENGINE, ENGINE_YEAR = "vllm", 2026
"""The engine whose fitted constants are used for a language model's server if the engine is not known."""
ASSUMED_FORMAT = WeightFormat.BF16
"""Assumed precision of weights if none is declared."""
PREALLOCATED_FRAC = 0.85
"""Memory use above this share is an engine's reservation (vLLM takes 90 % whatever it serves), and no need."""
_PEAK_QUANTILE = 0.999
_MANY = 8.0
"""Requests at once by which the time that further ones add is judged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel:
    """What a service runs: architecture, stored weights, GPUs a replica, mean tokens, requests a replica (usual, most)."""

    architecture: Architecture
    stored: WeightFormat
    tensor: int
    input_tokens: float
    output_tokens: float
    requests: float
    most_requests: float

    def request_s(self, gpu: Gpu, stored: WeightFormat) -> float:
        """Return the predicted time of a request at the usual concurrency; not fixed to anything observed."""
        return _request_s(self, gpu, stored)

    def token_seconds(self, gpu: Gpu, cached_tokens: float) -> TokenSeconds:
        """Return what a mean request adds to the engine's steps at the usual concurrency; not fixed to anything observed."""
        query = _query(self, gpu, self.stored)
        columns = serving_columns([query])
        batch, step_tokens = ceil(query.requests), default_step_tokens(gpu)
        times = step_times(
            columns,
            coefficients_of([query], columns),
            max_num_seqs=batch,
            step_tokens=max(step_tokens, 2 * batch),
        )
        return token_seconds(
            times,
            input_tokens=self.input_tokens,
            cached_tokens=min(cached_tokens, self.input_tokens),
            output_tokens=self.output_tokens,
            requests=self.requests,
        )

    def speed(self, home: Gpu, gpu: Gpu, stored: WeightFormat) -> Estimate:
        """Return the speed on a GPU with weights stored so, relative to the present ones at home."""
        return calibrated(self.request_s(home, self.stored) / self.request_s(gpu, stored))

    def change_of_format(self, gpu: Gpu, stored: WeightFormat) -> Estimate:
        """Return the speed on a GPU with weights stored so, relative to the present format on that same GPU."""
        return calibrated(self.request_s(gpu, self.stored) / self.request_s(gpu, stored))

    def change_of_further_work(self, gpu: Gpu, stored: WeightFormat) -> Estimate:
        """Return the speed, in the new format over the present one, of what each further request of a batch adds on a GPU."""
        one, many = replace(self, requests=1.0), replace(self, requests=_MANY)
        before_s, after_s = (many.request_s(gpu, each) - one.request_s(gpu, each) for each in (self.stored, stored))
        return calibrated(before_s / after_s if before_s > 0 and after_s > 0 else 1.0)

    def need_gib(self, gpu: Gpu, stored: WeightFormat) -> float:
        """Return the memory that a GPU needs for the most requests that a replica had in work."""
        serving = Serving(
            model=self.architecture,
            stored=stored,
            kv_value_bytes=kv_value_bytes(stored, ENGINE, ENGINE_YEAR, gpu),
            parallel=Parallel(tensor=self.tensor),
            requests=max(1, ceil(self.most_requests)),
            context=max(1, ceil(self.input_tokens + self.output_tokens)),
        )
        return inference_footprint(serving).total_gib


@lru_cache(maxsize=4096)
def _request_s(model: ServedModel, gpu: Gpu, stored: WeightFormat) -> float:
    times = times_of([_query(model, gpu, stored)])
    return float(times.ttft_s[0] + model.output_tokens * times.tpot_s[0])


def _query(model: ServedModel, gpu: Gpu, stored: WeightFormat) -> ServingQuery:
    return ServingQuery(
        model=model.architecture,
        gpu=gpu,
        stored=stored,
        engine=ENGINE,
        year=ENGINE_YEAR,
        load=Load.ONLINE,
        requests=max(1.0, model.requests),
        input_tokens=model.input_tokens,
        output_tokens=model.output_tokens,
        kv_value_bytes=kv_value_bytes(stored, ENGINE, ENGINE_YEAR, gpu),
        gpus=model.tensor,
        tensor=model.tensor,
    )


@lru_cache(maxsize=256)
def _architecture(name: str, params_b: float | None) -> Architecture | str:
    try:
        return resolve_model(name, params_b)
    except UnknownName as error:
        if find_measured_model(name) is not None or relative_of(name) is not None:
            return f"{name} generates no text: its speed elsewhere has to be measured"
        return f"{error}; declare params_b: for its size"


def served_model(workload: Workload) -> ServedModel | str:
    """Return what a service runs, or why physics cannot say anything of it."""
    spec, service = workload.spec, workload.service
    if service is None or spec.model is None:
        return "its model is not declared (model: in workloads.yaml)"
    architecture = _architecture(spec.model, spec.params_b)
    if isinstance(architecture, str):
        return architecture
    try:
        stored = ASSUMED_FORMAT if spec.precision is None else weight_format(spec.precision)
    except UnknownName as error:
        return f"precision: {error}"
    if architecture.encoder:
        return f"{architecture.name} is an encoder, whose speed elsewhere has to be measured"
    if service.input_tokens is None or service.output_tokens is None:
        return "its tokens a request were not measured"
    usual, most = _concurrency(service)
    return ServedModel(
        architecture=architecture,
        stored=stored,
        tensor=max(1, round(workload.gpus_per_pod)),
        input_tokens=max(1.0, service.input_tokens),
        output_tokens=max(1.0, service.output_tokens),
        requests=usual,
        most_requests=most,
    )


def declared_format(workload: Workload) -> WeightFormat | None:
    """Return the declared format of the weights; None if it is not declared or not known."""
    try:
        return None if workload.spec.precision is None else weight_format(workload.spec.precision)
    except UnknownName:
        return None


def _concurrency(service: ServiceObservation) -> tuple[float, float]:
    """Return the requests in work a replica as a request meets them, and at the busiest."""
    each = service.running / np.where(service.replicas > 0, service.replicas, np.nan)
    seen = each[np.isfinite(each)]
    if not len(seen) or seen.sum() <= 0:
        return 1.0, 1.0
    return float((seen**2).sum() / seen.sum()), float(np.quantile(seen, _PEAK_QUANTILE))


def preallocates(workload: Workload) -> bool:
    """Return whether a service's engine took nearly all of the memory, so that its peak does not show its need."""
    peak, total = workload.activity.memory_peak_gib, workload.activity.memory_total_gib
    return peak is not None and total is not None and peak >= PREALLOCATED_FRAC * total


def need_on(workload: Workload, model: ServedModel | str, gpu: Gpu, stored: WeightFormat | None = None) -> float | None:
    """Return the memory that a workload needs on a GPU: declared, computed where an engine reserves it, else observed.

    With weights `stored` another way, what they save comes off. None where nothing is known.
    """
    peak = workload.spec.need_gib or workload.activity.memory_peak_gib
    if isinstance(model, str):
        return peak
    after = stored or model.stored
    if workload.spec.need_gib is None and (peak is None or preallocates(workload)):
        return model.need_gib(gpu, after)
    saved = model.need_gib(gpu, model.stored) - model.need_gib(gpu, after)
    return None if peak is None else peak - saved


BELIEVED_RATIO = 1.5
"""Observed over computed memory beyond this, either way, means that the declaration is of another run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedModel:
    """How a workload trains today, the sequences of a step over all GPUs, and observed over computed memory."""

    plan: Training
    global_batch: int
    memory_ratio: float

    @property
    def gpus(self) -> int:
        """Return the GPUs of a run."""
        return self.plan.parallel.data

    def memory_gib(self, plan: Training) -> float:
        """Return what the fullest GPU will show under a plan."""
        return training_footprint(plan).total_gib * self.memory_ratio

    def tok_s(self, plan: Training, gpu: Gpu) -> float:
        """Return the predicted tokens a second of all GPUs; not fixed to anything observed."""
        query = query_of(plan, gpu, framework=FINETUNE_FRAMEWORK, global_batch=self.global_batch)
        return predict_training(query).value * plan.parallel.data


def trained_model(workload: Workload) -> TrainedModel | str:
    """Return how a workload trains, or why no other plan can be judged."""
    declared, peak = workload.spec.training, workload.activity.memory_peak_gib
    if declared is None or workload.spec.model is None:
        return "its model and memory plan are not declared (model: and training: in workloads.yaml)"
    try:
        model = resolve_model(workload.spec.model, workload.spec.params_b)
    except UnknownName as error:
        return f"{error}; declare params_b: for its size"
    gpus = max(1, round(workload.gpus_per_pod))
    plan = Training(
        model=model,
        method=Method(declared.method),
        stored=WeightFormat.NF4 if declared.method == "qlora" else WeightFormat.BF16,
        optimizer=Optimizer(declared.optimizer),
        recompute=Recompute(declared.recompute),
        sharding=Sharding(declared.sharding if gpus > 1 else 0),
        parallel=Parallel(data=gpus),
        micro_batch=declared.micro_batch,
        sequence=declared.sequence,
        adapter_bits=declared.adapter_bits,
    )
    if peak is None:
        return "memory use was not measured"
    ratio = peak / training_footprint(plan).total_gib
    if not 1 / BELIEVED_RATIO <= ratio <= BELIEVED_RATIO:
        return f"the declared plan needs {peak / ratio:.0f} GiB a GPU and {peak:.0f} GiB were seen: check training:"
    return TrainedModel(
        plan=plan, global_batch=declared.global_batch or declared.micro_batch * gpus, memory_ratio=ratio
    )


def on_gpus(plan: Training, gpus: int) -> Training:
    """Return a plan on another number of GPUs, its states still shared out where there are several."""
    sharding = plan.sharding if gpus > 1 else Sharding.NONE
    return replace(plan, parallel=Parallel(data=gpus), sharding=sharding)
