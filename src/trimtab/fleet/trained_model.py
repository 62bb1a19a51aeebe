"""A training workload whose memory plan is declared: what each GPU holds and how fast a run is under other plans.

Only ratios are taken from physics: the declared plan's computed memory is fixed to the observed peak, its predicted speed to
the runs' own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from trimtab.catalog import Gpu
from trimtab.errors import UnknownName
from trimtab.fleet.model import Workload
from trimtab.physics.footprint import Parallel
from trimtab.physics.formats import WeightFormat
from trimtab.physics.models import resolve_model
from trimtab.physics.predict import predict_training
from trimtab.physics.search_training import FINETUNE_FRAMEWORK
from trimtab.physics.training import TrainingQuery, TrainPrecision
from trimtab.physics.training_memory import Method, Optimizer, Recompute, Sharding, Training, training_footprint

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
        quantized = plan.method is Method.QLORA
        query = TrainingQuery(
            model=plan.model,
            gpu=gpu,
            gpus=plan.parallel.data,
            precision=TrainPrecision.QUANTIZED_BASE if quantized else TrainPrecision.BF16,
            method=plan.method,
            framework=FINETUNE_FRAMEWORK,
            recompute=plan.recompute,
            sequence=plan.sequence,
            micro_batch=plan.micro_batch,
            global_batch=self.global_batch,
        )
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
